r"""Llama 3.1 to 4: bare JSON objects, `{"name": "f", "parameters": {"a": 1}}`, several joined by `; `.

No mark tells a call from an answer in JSON. An object is one if a text stands under `name` and something under
`parameters` or `arguments`; behind `<|python_tag|>` the name is enough. Everything else is text.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import TYPE_CHECKING, ClassVar, Final

from hermes_parsers.engine.json_calls import CallKeys, draft_of, plain_call, plain_head, repaired_object, unspanned
from hermes_parsers.engine.json_text import FEW, WINDOW, JsonError, dead_at_once, out_of_place, read_members
from hermes_parsers.engine.parser import ScanningParser
from hermes_parsers.engine.recovery import broken
from hermes_parsers.engine.scan import (
    INVALID_JSON,
    REPAIRED,
    SPACE,
    TRUNCATED,
    UNDECIDED,
    Draft,
    Scan,
    Wait,
    cut,
    sees,
    skip_space,
)
from hermes_parsers.writing import dumps

if TYPE_CHECKING:
    from hermes_parsers.engine.rendering import WrittenCall

_SPACE: Final = r"[ \t\n\r]*+"
_NEVER: Final = "\0\0"
_TAG: Final = "<|python_tag|>"
_ENDS: Final = ("<|eom_id|>", "<|eot_id|>")


def _sequence(*parts: str) -> str:
    """Match the parts with space between them, or the text's end inside; each part is a literal."""
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
_SEPARATED: Final = re.compile(
    rf"; (?=\{{)|{_SPACE};{_SPACE}(?=\{{|\Z)|{_SPACE}(?:{'|'.join(map(re.escape, _ENDS))})"
).match
"""What `_separator` skips where no more text comes."""
_NEXT: Final = re.compile(rf"{_OBJECT}|{re.escape(_TAG)}".replace(r"\Z", "(?!)")).search


class LlamaParser(ScanningParser):
    """Bare JSON objects, with or without `<|python_tag|>` before them."""

    stop_tokens: ClassVar[tuple[str, ...]] = ("<|eot_id|>", "<|eom_id|>", "<|eot|>", "<|eom|>")
    openers: ClassVar[tuple[str, ...]] = (_TAG,)
    body: ClassVar[str] = rf"{_SPACE}(?:\{{|\Z)"
    pattern: ClassVar[str] = _OBJECT
    keys: ClassVar[CallKeys] = _KEYS
    between: ClassVar[str] = "; "

    def read_now(self, scan: Scan, at: int) -> int:
        """Read a well-formed object, or behind many faults one that stops to be JSON before it closes any bracket."""
        start, is_tagged = at, scan.text.startswith(_TAG, at)
        if is_tagged:
            at = SPACE(scan.text, at + len(_TAG)).end()  # type: ignore[union-attr]  # the pattern matches everywhere
        draft = None
        if scan.faults >= FEW and not scan.lenient and (dead := dead_at_once(scan, at)):
            error = out_of_place(scan.text, at, *dead)
            draft = self._judge(scan, start, at, error, is_tagged=is_tagged)
        elif (draft := self._read_plain(scan, start, at)) is None:
            return UNDECIDED
        if draft is None:
            return -1
        scan.drafts.append(draft)
        behind = _SEPARATED(scan.text, draft.end)
        return behind.end() if behind else draft.end

    def read(self, scan: Scan, at: int) -> Wait:
        """Read one object and the separator, or the end-of-turn mark, behind it."""
        start, is_tagged = at, scan.text.startswith(_TAG, at)
        if is_tagged:
            at = yield from skip_space(scan, at + len(_TAG))
        if (draft := self._read_plain(scan, start, at)) is None:
            draft = yield from self._read_any(scan, start, at, is_tagged=is_tagged)
        if draft is None:
            return -1
        scan.drafts.append(draft)
        return (yield from self._separator(scan, draft.end))

    def _read_plain(self, scan: Scan, start: int, at: int) -> Draft | None:
        """Read an object as the template shows it, which most are; None leaves all others to the long way."""
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
        """Find where an object that cannot be read ends: where its brackets balance, or before the next call."""
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
            draft = draft_of(scan.text, start, stop, unspanned(repaired[0]), self.keys)
            return draft.fail(REPAIRED, repaired[1])
        return broken(start, stop, status, error)

    def _separator(self, scan: Scan, end: int) -> Wait:
        """Return where the framing behind a call ends: `;` before a further one, or a mark of the turn's end."""
        if scan.text.startswith("; {", end):
            return end + 2
        at = yield from skip_space(scan, end)
        if scan.text.startswith(";", at):
            after = yield from skip_space(scan, at + 1)
            return after if scan.text.startswith("{", after) or after == len(scan.text) else end
        for mark in _ENDS:
            if (yield from sees(scan, mark, at)):
                return at + len(mark)
        return end

    def write_call(self, call: WrittenCall, index: int) -> str:  # noqa: ARG002 - the base's signature
        """Write the object as the template does."""
        return f'{{"name": {dumps(call.name)}, "parameters": {call.arguments}}}'
