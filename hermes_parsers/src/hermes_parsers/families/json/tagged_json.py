r"""Calls as JSON objects between an opening and a closing mark, one or more in a block.

`<tool_call>\\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>` and many similar formats.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from functools import cache, cached_property
from typing import TYPE_CHECKING, ClassVar, Final

from hermes_parsers.engine.scanning.closed_blocks import pairs_of
from hermes_parsers.engine.scanning.parser import ScanningParser
from hermes_parsers.engine.scanning.scan import (
    REPAIRED,
    UNCLOSED,
    UNDECIDED,
    Draft,
    Scan,
    Wait,
    cut,
    sees,
    skip_space,
)
from hermes_parsers.engine.values.error_recovery import Ends, broken_call, broken_call_at
from hermes_parsers.engine.values.json_calls import (
    OPENAI_KEYS,
    CallKeys,
    Match,
    draft_of,
    plain_call,
    plain_head,
    repaired_object,
    set_arguments,
    without_spans,
)
from hermes_parsers.engine.values.json_text import FEW, JsonError, dead_at_once, read_members, read_value
from hermes_parsers.families.framing.brackets import take_extra
from hermes_parsers.writing import dumps

if TYPE_CHECKING:
    from hermes_parsers.engine.rendering import WrittenCall

_SPACE: Final = r"[ \t\n\r]*+"


class TaggedJsonParser(ScanningParser):
    """The base of these formats; a subclass names its marks."""

    closers: ClassVar[Mapping[str, str]] = {}
    """The closing mark of each opening one; "" for a format without one."""
    keys: ClassVar[CallKeys] = OPENAI_KEYS
    takes_named: ClassVar[bool] = False
    """Whether `name{…}` is a call as well, as GLM and llama.cpp's generic grammar write it."""
    wire_open: ClassVar[str] = ""
    wire_close: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # Models double the opening mark. Only one duplicate is accepted, so that a run of marks stays linear.
        again = "|".join([re.escape(mark) for mark in cls.openers])
        cut_again = "|".join([cut(mark) for mark in cls.openers])
        named = rf"|[\w.\-]++{_SPACE}(?:\{{{_SPACE}(?:[\"'}}]|\Z)|\Z)" if cls.takes_named else ""
        cls.body = rf"{_SPACE}(?>(?:{again}){_SPACE})?+(?:\{{|\[{_SPACE}(?:\{{|\Z)|\Z|{cut_again}{named})"

    def block_marks(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the marks around objects."""
        return pairs_of(self.closers)

    def prepare(self) -> None:
        """Compile the patterns for reading."""
        closing = tuple({mark: None for mark in self.closers.values() if mark})
        self._ends = Ends(closing, self.openers)
        self._plain = {opener: _plain_patterns(self.keys, opener, closer) for opener, closer in self.closers.items()}

    def read(self, scan: Scan, at: int) -> Wait:
        """Read the block; several objects in one block and a doubled opening mark are accepted."""
        start, opener = at, self._opener(scan, at)
        if not scan.final and (end := self._read_plain(scan, start, opener)) >= 0:
            return end
        at = yield from skip_space(scan, at + len(opener))
        begin = start
        if scan.text.startswith(opener, at):
            begin = at
            at = yield from skip_space(scan, at + len(opener))
        if scan.text.startswith("[", at):
            return (yield from self._list.read(scan, begin))
        if not scan.text.startswith("{", at):
            return (yield from self._read_named(scan, start, at, self.closers[opener]))
        end = yield from self._read_object(scan, start, at, self.closers[opener])
        while end >= 0 and scan.drafts[-1].end == end and (yield from self._continues(scan, end)):
            at = yield from self._after_comma(scan, end)
            end = yield from self._read_object(scan, end, at, self.closers[opener])
        return end

    @cached_property
    def _list(self) -> ScanningParser:
        from hermes_parsers.families.json.json_array import TaggedListParser

        return TaggedListParser(self.openers, self.closers, self.keys)

    def read_now(self, scan: Scan, at: int) -> int:
        """Read a well-formed block, or after many faults one that stops being JSON before it closes any bracket."""
        opener = self._opener(scan, at)
        if scan.faults >= FEW and not scan.lenient and (end := self._read_dead(scan, at, opener)) >= 0:
            return end
        end = self._read_plain(scan, at, opener)
        return end if end >= 0 else UNDECIDED

    def _read_plain(self, scan: Scan, start: int, opener: str) -> int:
        """Read a well-formed block written like the template's, as most are; -1 leaves any other to the slow path."""
        before, behind, _ = self._plain[opener]
        draft = plain_call(scan.text, start, start + len(opener), before, behind)
        if draft is None:
            return -1
        scan.drafts.append(draft)
        return draft.end

    def _read_dead(self, scan: Scan, start: int, opener: str) -> int:
        body = self._plain[opener][2](scan.text, start)
        if body is None or (dead := dead_at_once(scan, body.end())) is None:
            return -1
        end = self._ends.at_mark(scan.text, body.end())[1]
        scan.drafts.append(broken_call_at(scan.text, start, end, dead[0]))
        return end

    def _opener(self, scan: Scan, at: int) -> str:
        if len(self.openers) == 1:
            return self.openers[0]
        return next(mark for mark in self.openers if scan.text.startswith(mark, at))

    def _continues(self, scan: Scan, end: int) -> Generator[str, None, bool]:
        """Whether another object follows in the same block, which an unclosed call before it shows."""
        if scan.drafts[-1].status is not UNCLOSED:
            return False
        at = yield from self._after_comma(scan, end)
        return scan.text.startswith("{", at)

    def _after_comma(self, scan: Scan, end: int) -> Wait:
        at = yield from skip_space(scan, end)
        return (yield from skip_space(scan, at + 1)) if scan.text.startswith(",", at) else at

    def _read_object(self, scan: Scan, start: int, at: int, closer: str) -> Wait:
        """Read one object and the closing mark after it; return where its call ends."""
        try:
            found, end = yield from read_members(scan, at)
        except JsonError as error:
            return (yield from self._read_broken(scan, start, at, error))
        draft = draft_of(scan.text, start, end, found, self.keys)
        return (yield from self._close(scan, draft, at, closer))

    def _close(self, scan: Scan, draft: Draft, at: int, closer: str) -> Wait:
        """Find the closing mark after a complete body that begins at `at`, and add the draft."""
        after = (yield from skip_space(scan, draft.end)) if closer else draft.end
        while closer and after == len(scan.text) and not scan.final:
            yield ""
        if not closer:
            yield from take_extra(scan, draft)
        elif scan.text.startswith(("}", "]"), after):
            error = JsonError("brackets follow the object", after)
            error.end = after
            return (yield from self._read_broken(scan, draft.start, at, error))
        if closer and (yield from sees(scan, closer, after)):
            draft.end = after + len(closer)
        elif closer:
            draft.cut(f"the closing {closer} is missing")
        scan.drafts.append(draft)
        return draft.end

    def _read_broken(self, scan: Scan, start: int, at: int, error: JsonError) -> Wait:
        stop, end, status = yield from self._ends.recover(scan, at, error)
        draft = None
        if scan.lenient and (repaired := repaired_object(scan.text, at, stop)):
            draft = draft_of(scan.text, start, end, without_spans(repaired[0]), self.keys)
            draft.fail(REPAIRED, repaired[1])
        scan.drafts.append(draft or broken_call(start, end, status, error))
        return end

    def _read_named(self, scan: Scan, start: int, at: int, closer: str) -> Wait:
        """Read `name{…}`."""
        name_end = at
        while (name_end := _name_end(scan.text, name_end)) == len(scan.text) and not scan.final:
            yield ""
        brace = yield from skip_space(scan, name_end)
        if name_end == at or not scan.text.startswith("{", brace):
            return -1
        try:
            value, end = yield from read_value(scan, brace)
        except JsonError as error:
            return (yield from self._read_broken(scan, start, brace, error))
        draft = Draft(start, end, name=scan.text[at:name_end])
        set_arguments(draft, scan.text, value, brace, end)
        return (yield from self._close(scan, draft, brace, closer))

    def write_call(self, call: WrittenCall, index: int) -> str:  # noqa: ARG002 - the base's signature
        """Write the object between the marks."""
        return f"{self.wire_open}{self.write_object(call)}{self.wire_close}"

    def write_object(self, call: WrittenCall) -> str:
        """Write the JSON object of a call."""
        return f'{{"{self.keys.name[0]}": {dumps(call.name)}, "{self.keys.arguments[0]}": {call.arguments}}}'


@cache
def _plain_patterns(keys: CallKeys, opener: str, closer: str) -> tuple[Match, Match, Match]:
    """Compile the text before and after the arguments of a well-formed call, and the text before any object."""
    # Without a closing mark the next character says whether a surplus bracket breaks the object.
    tail = rf"{_SPACE}\}}{_SPACE}{re.escape(closer)}" if closer else rf"{_SPACE}\}}(?={_SPACE}[^}}\] \t\n\r])"
    mark = re.escape(opener)
    body = rf"{mark}{_SPACE}(?>{mark}{_SPACE})?+(?=\{{)"
    return re.compile(_SPACE + plain_head(keys)).match, re.compile(tail).match, re.compile(body).match


def _name_end(text: str, at: int) -> int:
    size = len(text)
    while at < size and (text[at].isalnum() or text[at] in "_-."):
        at += 1
    return at
