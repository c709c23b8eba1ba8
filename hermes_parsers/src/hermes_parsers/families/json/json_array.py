r"""Calls as a JSON array of objects after a mark; each item is a separate attempt.

`<tool_calls>[{"name": "f", "arguments": {"a": 1}}]</tool_calls>` and similar formats. A single object in place of the
array is read as an array of one item.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, ClassVar, Final

from hermes_parsers.engine.scanning.closed_blocks import pairs_of
from hermes_parsers.engine.scanning.parser import ScanningParser
from hermes_parsers.engine.scanning.scan import (
    INVALID_JSON,
    OK,
    REPAIRED,
    TRUNCATED,
    UNDECIDED,
    Draft,
    Scan,
    Wait,
    sees,
    skip_space,
)
from hermes_parsers.engine.values.error_recovery import broken_call, broken_call_at
from hermes_parsers.engine.values.json_calls import (
    OPENAI_KEYS,
    CallKeys,
    Match,
    draft_of,
    plain_call,
    plain_head,
    repaired_end,
    repaired_object,
    without_spans,
)
from hermes_parsers.engine.values.json_text import FEW, JsonError, Members, dead_at_once, read_members
from hermes_parsers.writing import dumps

if TYPE_CHECKING:
    from hermes_parsers.engine.rendering import WrittenCall

_NEVER: Final = "\0\0"
"""A mark that never comes: waiting for it means waiting for the end of the text."""


class JsonArrayParser(ScanningParser):
    """The base of these formats; a subclass names its marks."""

    closers: ClassVar[Mapping[str, str]] = {}
    """The closing mark of each opening one; "" for a format without one. The key "" stands for `pattern`."""
    keys: ClassVar[CallKeys] = OPENAI_KEYS
    body: ClassVar[str] = r"[ \t\n\r]*+(?:\[[ \t\n\r]*+(?:\{|\Z)|\{|\Z)"
    ends: ClassVar[str] = ""
    """Further places before which an unreadable item ends, as a regular expression."""
    between: ClassVar[str] = ", "
    wire_open: ClassVar[str] = "["
    wire_close: ClassVar[str] = "]"

    def block_marks(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the marks around arrays."""
        return pairs_of(self.closers)

    def prepare(self) -> None:
        """Compile the patterns for reading."""
        self._boundary = _boundary(self.keys, tuple(self.closers.values()), self.openers, self.ends)
        self._next = _next_item(self.keys, tuple(self.closers.values()), self.openers)
        self._closing = frozenset(self.closers.values()) - {""}
        self._plain = self.plain_patterns()
        self._first = {opener: _first(opener) for opener in self.closers}
        self._behind = {closer: _behind(closer) for closer in self.closers.values()}

    def plain_patterns(self) -> tuple[Match, Match]:
        """Compile the text before and after the arguments of a well-formed item."""
        return _plain_patterns(self.keys)

    def read_now(self, scan: Scan, at: int) -> int:
        """Read a well-formed array, or after many faults an item that stops being JSON before any closing bracket."""
        text = scan.text
        opener = self._opener(text, at)
        if (first := self._first[opener](text, at)) is None:
            return UNDECIDED
        if scan.faults >= FEW and not scan.lenient and (end := self._read_dead(scan, at, first.end(), opener)) >= 0:
            return end
        return self._read_array(scan, at, first.end(), opener) if first[1] else UNDECIDED

    def _read_array(self, scan: Scan, start: int, at: int, opener: str) -> int:
        """Read the items of a well-formed array; the first one begins at `at`."""
        text, count = scan.text, len(scan.drafts)
        before, behind = self._plain
        between = self._behind[self.closers[opener]]
        while (draft := plain_call(text, start, at, before, behind)) and (after := between(text, draft.end)):
            if len(scan.drafts) == count and not self.takes(scan, opener, at, draft):
                break
            scan.drafts.append(draft)
            start = at = after.end()
            if not after[1]:
                draft.end = at
                return at
        del scan.drafts[count:]
        return UNDECIDED

    def _read_dead(self, scan: Scan, start: int, at: int, opener: str) -> int:
        if (dead := dead_at_once(scan, at)) is None:
            return -1
        text = scan.text
        found = self._boundary(text, at + 1)
        if found is not None and found[0][0] == "}":
            return -1
        draft = broken_call_at(text, start, len(text) if found is None else found.start(), dead[0])
        if not self.takes(scan, opener, at, draft):
            return -1
        closer = self.closers[opener]
        if closer and text.startswith(closer, draft.end):
            draft.end += len(closer)
        scan.drafts.append(draft)
        return draft.end

    def _opener(self, text: str, at: int) -> str:
        for mark in self.openers:
            if text.startswith(mark, at):
                return mark
        return ""

    def read(self, scan: Scan, at: int) -> Wait:
        """Read the array; an item is added once the text after it shows that it is complete."""
        start = at
        opener = self._opener(scan.text, at)
        at = yield from skip_space(scan, at + len(opener))
        is_array = scan.text.startswith("[", at)
        if is_array:
            at = yield from skip_space(scan, at + 1)
        if not scan.text.startswith("{", at):
            return -1
        draft = yield from self._read_item(scan, start, at)
        if not self.takes(scan, opener, at, draft):
            scan.resume = draft.end
            return -1
        while is_array and (at := (yield from self._following(scan, draft))) >= 0:
            is_item = scan.text.startswith("{", at)
            draft = (yield from self._read_item(scan, at, at)) if is_item else self._no_item(scan, at)
        return (yield from self._close(scan, draft, self.closers[opener], is_array=is_array))

    def takes(self, scan: Scan, opener: str, at: int, draft: Draft) -> bool:  # noqa: ARG002 - for those without a mark
        """Whether the first item, at `at`, shows that these are calls; here the mark shows that."""
        return True

    def _following(self, scan: Scan, draft: Draft) -> Wait:
        """Add an item and return where the next one begins, or -1 if it is the last."""
        at = yield from skip_space(scan, draft.end)
        comma = scan.text.startswith(",", at)
        if comma:
            at = yield from skip_space(scan, at + 1)
        if at == len(scan.text) or scan.text[at] == "]":
            if comma and at < len(scan.text):
                _note_comma(scan, draft)
            if comma:
                draft.end = at
            return -1
        if scan.text[at] == "{":
            scan.drafts.append(draft)
            return at
        return (yield from self._skip_to_item(scan, draft, at))

    def _skip_to_item(self, scan: Scan, draft: Draft, at: int) -> Wait:
        """Report text in place of an item, if another item or the closing mark follows before any other mark."""
        while not scan.final:
            yield _NEVER
        found = self._next(scan.text, at)
        if found is None:
            return -1
        if found[0] in self._closing and found.start() > at:
            scan.drafts.append(draft)
            return at
        if found.start() == at:  # a comma here belongs to the list
            draft.end = at
        if found[0][0] != "{":
            return -1
        scan.drafts += [draft, self._no_item(scan, at)]
        return found.start()

    def _no_item(self, scan: Scan, at: int) -> Draft:
        """Build the draft of the text in place of an item, up to the next item or mark."""
        found = self._next(scan.text, at)
        assert found is not None
        error = JsonError(f"expected an object, got {scan.text[at]!r}", at)
        return broken_call(at, found.start(), INVALID_JSON, error)

    def _read_item(self, scan: Scan, start: int, at: int) -> Generator[str, None, Draft]:
        draft = yield from self._read_object(scan, start, at)
        after = yield from skip_space(scan, draft.end)
        if draft.is_good and scan.text.startswith("}", after):
            return (yield from self._spoilt(scan, start, at, after))
        return draft

    def _read_object(self, scan: Scan, start: int, at: int) -> Generator[str, None, Draft]:
        if (draft := plain_call(scan.text, start, at, *self._plain)) is not None:
            return draft
        try:
            found, end = yield from read_members(scan, at)
        except JsonError as error:
            return (yield from self._recover(scan, start, at, error))
        return self.draft_of(scan.text, start, end, found)

    def draft_of(self, text: str, start: int, end: int, found: Members) -> Draft:
        """Build the draft of an item."""
        return draft_of(text, start, end, found, self.keys)

    def _close(self, scan: Scan, draft: Draft, closer: str, *, is_array: bool) -> Wait:
        """Find the end of the array and the closing mark, and add the last item."""
        end = draft.end
        if is_array:
            at = yield from skip_space(scan, end)
            if scan.text.startswith("]", at):
                end = yield from self._end_array(scan, draft, at + 1)
            else:
                draft.cut("the array is not closed")
        if closer:
            after = yield from skip_space(scan, end)
            if (yield from sees(scan, closer, after)):
                end = after + len(closer)
            else:
                draft.cut(f"the closing {closer} is missing")
        draft.end = end
        scan.drafts.append(draft)
        return end

    def _end_array(self, scan: Scan, draft: Draft, end: int) -> Wait:
        """Return where duplicate closing brackets of the array end."""
        at = yield from skip_space(scan, end)
        while scan.text.startswith("]", at):
            draft.fail(REPAIRED, "repaired: extra closing brackets")
            end = at + 1
            at = yield from skip_space(scan, end)
        return end

    def _spoilt(self, scan: Scan, start: int, body: int, at: int) -> Generator[str, None, Draft]:
        """Withdraw an item that extra closing braces follow."""
        error = JsonError("brackets follow the object", at)
        while scan.text.startswith("}", at):
            at = yield from skip_space(scan, at + 1)
        error.end = at
        return (yield from self._recover(scan, start, body, error))

    def _recover(self, scan: Scan, start: int, at: int, error: JsonError) -> Generator[str, None, Draft]:
        """Find where an unreadable item ends: where its brackets balance, or before the next mark."""
        stop, status = error.end, INVALID_JSON
        if stop < 0:
            while not scan.final:
                yield _NEVER
            found = self._boundary(scan.text, at + 1)
            stop = len(scan.text) if found is None else found.start() + (found[0][0] == "}")
            if found is None and error.is_cut:
                status = TRUNCATED
        if scan.lenient and (repaired := repaired_object(scan.text, at, stop := _item_end(scan.text, at, stop))):
            draft = self.draft_of(scan.text, start, stop, without_spans(repaired[0]))
            return draft.fail(REPAIRED, repaired[1])
        return broken_call(start, stop, status, error)

    def write_calls(self, calls: Sequence[WrittenCall]) -> str:
        """Write the array between the marks."""
        return f"{self.wire_open}{super().write_calls(calls)}{self.wire_close}"

    def write_call(self, call: WrittenCall, index: int) -> str:  # noqa: ARG002 - the base's signature
        """Write one item."""
        return f'{{"{self.keys.name[0]}": {dumps(call.name)}, "{self.keys.arguments[0]}": {call.arguments}}}'


class TaggedListParser(JsonArrayParser):
    """Lists in a format that also has other calls; created with the marks and keys of that format."""

    def __init__(self, openers: tuple[str, ...], closers: Mapping[str, str], keys: CallKeys = OPENAI_KEYS) -> None:
        vars(self).update(openers=openers, closers=closers, keys=keys)
        super().__init__()


def _item_end(text: str, at: int, stop: int) -> int:
    """Return where a repairable item ends before the array's bracket, otherwise `stop`."""
    end = repaired_end(text, at, stop)
    return end if end >= 0 and text[end:stop].lstrip().startswith("]") else stop


def _note_comma(scan: Scan, draft: Draft) -> None:
    if scan.lenient:
        draft.fail(REPAIRED, "repaired: trailing comma")
    elif draft.status is OK:
        draft.reason = "a comma follows the last call of the array"


_SPACE: Final = r"[ \t\n\r]*+"


@cache
def _plain_patterns(keys: CallKeys) -> tuple[Match, Match]:
    return re.compile(plain_head(keys)).match, re.compile(_SPACE + r"\}").match


@cache
def _first(opener: str) -> Match:
    """Compile the text before the first item; its group is the array's bracket."""
    return re.compile(rf"{re.escape(opener)}{_SPACE}(?>(\[{_SPACE}))?+(?=\{{)").match


@cache
def _behind(closer: str) -> Match:
    """Compile the text after an item: the comma before the next one (its group), or the end of the array."""
    closing = _SPACE + re.escape(closer) if closer else ""
    return re.compile(rf"{_SPACE}(?:(,){_SPACE}(?=\{{)|\](?!{_SPACE}\]){closing})").match


def _begins(keys: CallKeys) -> str:
    """Match the beginning of an item: the key of a call."""
    names = "|".join([*keys.name, *keys.arguments, *keys.id, "type", "function"])
    return rf"""\{{{_SPACE}["'](?:{names})["']"""


@cache
def _boundary(keys: CallKeys, closers: tuple[str, ...], openers: tuple[str, ...], ends: str) -> Match:
    """Compile the ends of a broken item: the next item, which begins with a call's key, or a mark."""
    marks = [re.escape(mark) for mark in (*closers, *openers) if mark]
    more = [ends] if ends else []
    return re.compile("|".join([rf"\}}{_SPACE},(?={_SPACE}{_begins(keys)})", *marks, *more])).search


@cache
def _next_item(keys: CallKeys, closers: tuple[str, ...], openers: tuple[str, ...]) -> Match:
    """Compile a pattern for the beginning of the next item, or a mark before it."""
    return re.compile("|".join([_begins(keys), *[re.escape(mark) for mark in (*closers, *openers) if mark]])).search
