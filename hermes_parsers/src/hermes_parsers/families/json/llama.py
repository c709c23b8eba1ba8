r"""Llama 3.1 to 4: bare JSON objects, `{"name": "f", "parameters": {"a": 1}}`, several joined by `; `, or in a list.

No mark tells a call from an answer in JSON. An object is a call if it has a string under `name` and any value under
`parameters` or `arguments`; after `<|python_tag|>` the name is enough. Everything else is text.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from hermes_parsers.engine.scanning.parser import ScanningParser
from hermes_parsers.engine.scanning.scan import (
    INVALID_JSON,
    REPAIRED,
    TRUNCATED,
    UNDECIDED,
    Draft,
    Scan,
    Wait,
    cut,
    sees,
    skip_space,
)
from hermes_parsers.engine.values.error_recovery import broken_call
from hermes_parsers.engine.values.json_calls import (
    CallKeys,
    Match,
    draft_of,
    plain_call,
    plain_head,
    repaired_object,
    without_spans,
)
from hermes_parsers.engine.values.json_text import (
    FEW,
    WINDOW,
    JsonError,
    dead_at_once,
    out_of_place,
    read_members,
    read_value,
)
from hermes_parsers.families.framing.code_fences import CUT_FENCE_LINE, FENCE, FENCE_LINE, fence_line, read_fenced
from hermes_parsers.families.json.tool_schemas import is_declaration
from hermes_parsers.writing import dumps

if TYPE_CHECKING:
    from hermes_parsers.engine.rendering import WrittenCall

_SPACE: Final = r"[ \t\n\r]*+"
_NEVER: Final = "\0\0"
_TAG: Final = "<|python_tag|>"
_ENDS: Final = ("<|eom_id|>", "<|eot_id|>")


def _sequence(*parts: str) -> str:
    """Match the parts with space between them, or the end of the text inside; each part is a literal."""
    pattern = ""
    for part in reversed(parts):
        pattern = rf"{_SPACE}(?:{re.escape(part)}{pattern}|{cut(part)})"
    return pattern


_BEGINNINGS: Final = (
    ('"name"', ":", '"'),
    ('"type"', ":", '"function"'),
    ('"id"', ":", '"'),
    ('"function"', ":", "{"),
    ('"parameters"', ":", "{"),
    ('"arguments"', ":", "{"),
)
_QUOTED: Final = ('"parameters"', '"arguments"')
_OBJECT: Final = rf"\{{(?={'|'.join(_sequence(*parts) for parts in _BEGINNINGS)})"
_LIST: Final = rf"(?>\[{_SPACE}){{1,16}}+"
"""The beginning of a list; models also write lists of lists."""
_IS_CALL: Final = re.compile(
    rf'\{{{_SPACE}"name"{_SPACE}:{_SPACE}"[^"\\]*+"{_SPACE},{_SPACE}"(?:parameters|arguments)"{_SPACE}:'
).match
_CUT_CALL: Final = re.compile(
    rf'\{{{_SPACE}"name"{_SPACE}:{_SPACE}"[^"\\]*+"{_SPACE},{_SPACE}(?:{cut(_QUOTED[0])}|{cut(_QUOTED[1])})'
).match
_KEYS: Final = CallKeys(arguments=("parameters", "arguments"))
_HEAD: Final = re.compile(plain_head(_KEYS)).match
_TAIL: Final = re.compile(rf"{_SPACE}\}}(?!{_SPACE}(?:\}}|\Z))").match
_LAST_TAIL: Final = re.compile(rf"{_SPACE}\}}(?!{_SPACE}\}})").match
_OTHER_BEGINS: Final = rf"(?:{re.escape(_TAG)}{_SPACE}(?>{_LIST})?+(?:\{{|\Z)|{cut(_TAG)}|{_LIST}(?:{_OBJECT}|\Z))"
_BEFORE_OTHER: Final = rf"{_SPACE}[;,]{_SPACE}(?={_OTHER_BEGINS})".replace(r"\Z", "(?!)")
"""The text between a call and one in another list, or after another tag."""
_JOINS_OTHER: Final = re.compile(_BEFORE_OTHER).match
_CUT_JOINS_OTHER: Final = re.compile(rf"{_SPACE}(?:\Z|[;,]{_SPACE}(?:\Z|{_OTHER_BEGINS}))").match
_SEPARATED: Final = re.compile(
    rf"; (?=\{{)|{_SPACE};{_SPACE}(?=\{{|\Z)|{_BEFORE_OTHER}|{_SPACE}(?:{'|'.join(map(re.escape, _ENDS))}|"
    rf"{re.escape(_TAG)}{_SPACE}\Z)"
).match
"""The text that `_separator` skips in complete text."""
_BEGIN: Final = re.compile(rf"(?>({re.escape(_TAG)}){_SPACE}){{0,2}}+(?>({_LIST}))?+").match
_CUT_BEGIN: Final = re.compile(
    rf"{CUT_FENCE_LINE}|(?>{FENCE_LINE})?+(?>{_LIST})?+\Z|"
    rf"(?>{re.escape(_TAG)}{_SPACE}){{0,2}}+(?>{_LIST})?+\Z|{re.escape(_TAG)}{_SPACE}{cut(_TAG)}"
).match


def _between(separator: str) -> tuple[Match, Match]:
    """Compile the text between a call and the next one, and the end of the text inside that."""
    pattern = f"{_SPACE}{separator}{_SPACE}"
    return (
        re.compile(f"{pattern}(?={_OBJECT})".replace(r"\Z", "(?!)")).match,
        re.compile(rf"{_SPACE}\Z|{pattern}(?:\Z|{_OBJECT})").match,
    )


_COMMA, _CUT_COMMA = _between(",")
_FENCED: Final = re.compile(rf"{_SPACE}[,;]?+{_SPACE}(?={_OTHER_BEGINS}|{_OBJECT})".replace(r"\Z", "(?!)")).match
_CUT_FENCED: Final = re.compile(rf"{_SPACE}(?:\Z|[,;]?+{_SPACE}(?:\Z|{_OTHER_BEGINS}|{_OBJECT}))").match
_CUT_EMPTY: Final = re.compile(rf"\[{_SPACE}\Z").match
_EMPTY_LIST: Final = re.compile(rf"\[{_SPACE}\]").match
_IN_LIST: Final = re.compile(rf"{_SPACE}(?>(?!\[{_SPACE}\])[\[\],;]{_SPACE})*+").match
"""The text between two items of nested lists, up to an empty list."""
_IS_OBJECT: Final = re.compile(_OBJECT.replace(r"\Z", "(?!)")).match
_CUT_OBJECT: Final = re.compile(rf"\Z|{_OBJECT}").match
_SCALAR: Final = re.compile(rf'(?:null|true|false|-?+[0-9][0-9.eE+\-]*+|"(?>[^"\\]++|\\.)*+")(?={_SPACE}[,\]])').match
_CUT_SCALAR: Final = re.compile(rf'(?:[a-z]++|-?+[0-9.eE+\-]*+|"(?>[^"\\]++|\\.)*+"?+){_SPACE}\Z').match
_NEXT: Final = re.compile(rf"{_OBJECT}|{re.escape(_TAG)}".replace(r"\Z", "(?!)")).search


class LlamaParser(ScanningParser):
    """Bare JSON objects, with or without `<|python_tag|>` before them."""

    stop_tokens: ClassVar[tuple[str, ...]] = ("<|eot_id|>", "<|eom_id|>", "<|eot|>", "<|eom|>")
    openers: ClassVar[tuple[str, ...]] = (_TAG,)
    body: ClassVar[str] = rf"{_SPACE}(?>{re.escape(_TAG)}{_SPACE})?+(?:(?>{_LIST})?+(?:\{{|\Z)|{cut(_TAG)})"
    pattern: ClassVar[str] = (
        rf"{_LIST}(?:{_OBJECT}|\Z)|{_OBJECT}|{FENCE_LINE}(?>{_LIST})?+(?:{_OBJECT}|\Z)|{CUT_FENCE_LINE}"
    )
    keys: ClassVar[CallKeys] = _KEYS
    between: ClassVar[str] = "; "

    def block_marks(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the tag and the end-of-turn marks: text between them was meant for a tool."""
        return self.openers, _ENDS

    def read_now(self, scan: Scan, at: int) -> int:
        """Read a well-formed object, or after many faults one that stops being JSON before it closes any bracket."""
        start = at
        at, is_tagged, depth = self._begin(scan.text, at)
        if depth or scan.text.startswith(FENCE, start):
            return UNDECIDED
        draft = None
        if scan.faults >= FEW and not scan.lenient and (dead := dead_at_once(scan, at)):
            error = out_of_place(scan.text, at, *dead)
            draft = self._judge(scan, start, at, error, is_tagged=is_tagged)
        elif (draft := self._read_plain(scan, start, at)) is None or _COMMA(scan.text, draft.end):
            return UNDECIDED
        if draft is None or (not is_tagged and _is_declaration(scan, at, draft)):
            return -1
        scan.drafts.append(draft)
        behind = _SEPARATED(scan.text, draft.end)
        return behind.end() if behind else draft.end

    def read(self, scan: Scan, at: int) -> Wait:
        """Read an object, those that commas join to it, and the framing around them."""
        while not scan.final and _CUT_BEGIN(scan.text, at):
            yield ""
        if fence := fence_line(scan.text, at):
            read = partial(self._read_run, scan)
            end = yield from read_fenced(scan, at, fence.end(), read, (_FENCED, _CUT_FENCED))
        else:
            end = yield from self._read_run(scan, at, scan.drafts)
        return (yield from self._separator(scan, end)) if end >= 0 else -1

    def _read_run(self, scan: Scan, at: int, drafts: list[Draft]) -> Wait:
        """Add the calls of an object or a list, with those that commas join to it; return their end, or -1."""
        start = at
        at, is_tagged, depth = self._begin(scan.text, at)
        if (draft := (yield from self._read_object(scan, start, at, is_tagged=is_tagged))) is None:
            return -1
        while (following := (yield from self._read_next(scan, draft.end, depth, is_tagged=is_tagged))) is not None:
            drafts.append(draft)
            draft, depth = following
        if depth:
            yield from self._end_list(scan, draft, depth)
        drafts.append(draft)
        return draft.end

    def _read_next(
        self, scan: Scan, end: int, depth: int, *, is_tagged: bool
    ) -> Generator[str, None, tuple[Draft, int] | None]:
        """Read the object that follows a call (in a list, anything); also return the number of open lists."""
        at, depth = yield from self._following(scan, end, depth)
        if at < 0:
            return None
        draft = None
        if _IS_OBJECT(scan.text, at):
            draft = yield from self._read_object(scan, at, at, is_tagged=is_tagged)
        if draft is None and depth and "," in scan.text[end:at]:
            draft = yield from self._read_item(scan, at)
        return None if draft is None else (draft, depth)

    def _read_item(self, scan: Scan, at: int) -> Generator[str, None, Draft | None]:
        """Read text in a list of calls that is not a call."""
        if empty := _EMPTY_LIST(scan.text, at):
            return Draft(at, empty.end(), INVALID_JSON, reason="expected a call, got an empty list")
        if scan.text.startswith("{", at):
            try:
                value, after = yield from read_value(scan, at)
            except JsonError as error:
                if error.is_cut and scan.final:
                    return Draft(at, len(scan.text), TRUNCATED, reason="the text ends inside the list")
                return broken_call(at, error.end, INVALID_JSON, error) if error.end >= 0 else None
            return draft_of(scan.text, at, after, without_spans(value), self.keys).fail(
                INVALID_JSON, "it is not a call"
            )
        while not scan.final and _CUT_SCALAR(scan.text, at):
            yield ""
        found = _SCALAR(scan.text, at)
        reason = f"expected a call, got {found[0]!r:.80}" if found else ""
        return Draft(at, found.end(), INVALID_JSON, reason=reason) if found else None

    def _begin(self, text: str, at: int) -> tuple[int, bool, int]:
        """Return where the first object begins, whether a tag precedes it, and the number of brackets before it."""
        found = _BEGIN(text, at)
        assert found is not None
        return found.end(), found[1] is not None, (found[2] or "").count("[")

    def _following(self, scan: Scan, end: int, depth: int) -> Generator[str, None, tuple[int, int]]:
        """Return where other text begins after a comma (in a list, even without) or -1, and the number of lists."""
        if depth:
            return (yield from self._in_list(scan, end, depth))
        while not (found := _COMMA(scan.text, end)) and not scan.final and _CUT_COMMA(scan.text, end):
            yield ""
        return (-1 if found is None else found.end()), 0

    def _in_list(self, scan: Scan, end: int, depth: int) -> Generator[str, None, tuple[int, int]]:
        """Return where the next item begins, in this list or another one, or -1; and the number of open lists."""
        while True:
            at = _IN_LIST(scan.text, end).end()  # type: ignore[union-attr]  # the pattern matches everywhere
            if not (inside := _lists_open(scan.text[end:at], depth)):
                return -1, 0
            if scan.final or not (_CUT_OBJECT(scan.text, at) or _CUT_EMPTY(scan.text, at)):
                return (at if at < len(scan.text) else -1), inside
            yield ""

    def _end_list(self, scan: Scan, draft: Draft, depth: int) -> Generator[str, None, None]:
        """Treat the brackets after the last object as its framing."""
        count, at = 0, (yield from skip_space(scan, draft.end))
        while True:
            if count < depth and scan.text.startswith(",", at):
                at = yield from skip_space(scan, at + 1)
            if not scan.text.startswith("]", at):
                break
            count, draft.end = count + 1, at + 1
            at = yield from skip_space(scan, draft.end)
        if count < depth:
            draft.cut("the list is not closed")
        elif count > depth:
            draft.fail(REPAIRED, "repaired: extra closing brackets")

    def _read_object(self, scan: Scan, start: int, at: int, *, is_tagged: bool) -> Generator[str, None, Draft | None]:
        if (draft := self._read_plain(scan, start, at)) is not None:
            return draft if is_tagged or not _is_declaration(scan, at, draft) else None
        return (yield from self._read_any(scan, start, at, is_tagged=is_tagged))

    def _read_plain(self, scan: Scan, start: int, at: int) -> Draft | None:
        """Read an object written like the template's, as most are; None leaves any other to the slow path."""
        is_whole = scan.final and len(scan.text) <= WINDOW
        return plain_call(scan.text, start, at, _HEAD, _LAST_TAIL if is_whole else _TAIL)

    def _read_any(self, scan: Scan, start: int, at: int, *, is_tagged: bool) -> Generator[str, None, Draft | None]:
        try:
            found, end = yield from read_members(scan, at)
        except JsonError as error:
            return (yield from self._read_broken(scan, start, at, error, is_tagged=is_tagged))
        draft = draft_of(scan.text, start, end, found, self.keys)
        has_arguments = any(key in found for key in (*self.keys.arguments, "function"))
        if not is_tagged and (draft.name is None or not has_arguments):
            return None
        if not is_tagged and _is_declaration(scan, at, draft):
            return None
        after = yield from skip_space(scan, end)
        if scan.text.startswith("}", after):
            spoilt = JsonError("brackets follow the object", after)
            while scan.text.startswith("}", after):
                end = after + 1
                after = yield from skip_space(scan, end)
            spoilt.end = end
            return (yield from self._read_broken(scan, start, at, spoilt, is_tagged=is_tagged))
        return draft

    def _read_broken(
        self, scan: Scan, start: int, at: int, error: JsonError, *, is_tagged: bool
    ) -> Generator[str, None, Draft | None]:
        while error.end < 0 and not scan.final:
            yield _NEVER
        return self._judge(scan, start, at, error, is_tagged=is_tagged)

    def _judge(self, scan: Scan, start: int, at: int, error: JsonError, *, is_tagged: bool) -> Draft | None:
        """Find where an unreadable object ends: where its brackets balance, or before the next call."""
        stop, status = error.end, INVALID_JSON
        if stop < 0:
            found = _NEXT(scan.text, max(at + 1, error.string_in(scan.text)))
            stop = len(scan.text) if found is None else found.start()
            if found is None and error.is_cut:
                status = TRUNCATED
            else:
                stop = at + len(scan.text[at:stop].rstrip("; \t\r\n"))
        is_call = _IS_CALL(scan.text, at) or (error.is_cut and _CUT_CALL(scan.text, at))
        if not is_tagged and not is_call:
            scan.resume = stop if error.end >= 0 else max(at + 1, error.string_in(scan.text))
            return None
        if scan.lenient and (repaired := repaired_object(scan.text, at, stop)):
            draft = draft_of(scan.text, start, stop, without_spans(repaired[0]), self.keys)
            return draft.fail(REPAIRED, repaired[1])
        return broken_call(start, stop, status, error)

    def _separator(self, scan: Scan, end: int) -> Wait:
        """Return where the framing after a call ends: `;` before another call, an end-of-turn mark, a last tag."""
        if scan.text.startswith("; {", end):
            return end + 2
        while not (joined := _JOINS_OTHER(scan.text, end)) and not scan.final and _CUT_JOINS_OTHER(scan.text, end):
            yield ""
        if joined:
            return joined.end()
        at = yield from skip_space(scan, end)
        if scan.text.startswith(";", at):
            after = yield from skip_space(scan, at + 1)
            return after if scan.text.startswith("{", after) or after == len(scan.text) else end
        for mark in _ENDS:
            if (yield from sees(scan, mark, at)):
                return at + len(mark)
        if (yield from sees(scan, _TAG, at)):
            after = yield from skip_space(scan, at + len(_TAG))
            return after if after == len(scan.text) else end
        return end

    def write_call(self, call: WrittenCall, index: int) -> str:  # noqa: ARG002 - the base's signature
        """Write the object as the template does."""
        return f'{{"name": {dumps(call.name)}, "parameters": {call.arguments}}}'


def _is_declaration(scan: Scan, at: int, draft: Draft) -> bool:
    """Whether an object describes a tool, as answers do; then no call begins in it."""
    if not is_declaration(scan.tools, scan.text, at, draft):
        return False
    scan.resume = draft.end
    return True


def _lists_open(between: str, depth: int) -> int:
    """Return the number of open lists after the text between two items; 0 if the outermost was closed."""
    for character in between:
        depth += (character == "[") - (character == "]")
        if not depth:
            break
    return depth
