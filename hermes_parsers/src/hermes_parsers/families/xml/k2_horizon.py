"""MBZUAI's K2 Horizon: IFM tags, with arguments as pairs of tags that may say a type, or as a JSON object.

An argument of the template chooses one of three forms: `xml` (the default), `xml_typed`, `json`. The text shows which
form it has, so all are read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar, Final

from hermes_parsers.engine.rendering import WrittenCall
from hermes_parsers.engine.scanning.parser import ScanningParser
from hermes_parsers.engine.scanning.reasoning_marks import THINK, Thinking
from hermes_parsers.engine.scanning.scan import UNDECIDED, Scan, Wait, sees, skip_space
from hermes_parsers.families.json.tagged_json import TaggedJsonParser
from hermes_parsers.families.xml.json_blocks import pass_closers, read_leftovers
from hermes_parsers.markup.dialect import Dialect
from hermes_parsers.markup.parser import MarkupParser
from hermes_parsers.markup.source import KeyTag, Source, Tag

_NAME: Final = re.compile(r"([\w.:/@$-]+)")
_BLANKS: Final = re.compile(r"[ \t]*")
_BODY: Final = re.compile(r"(?=[\r\n<])")
_BLOCK: Final = ("<ifm|tool_calls>", "</ifm|tool_calls>")
_CALL: Final = ("<ifm|tool_call>", "</ifm|tool_call>")
_JSON_BEGINS: Final = re.compile(rf"(?:{re.escape(_BLOCK[0])}\s*)?{re.escape(_CALL[0])}\s*\{{").match


class _JsonCalls(TaggedJsonParser):
    """The form `json`."""

    openers: ClassVar[tuple[str, ...]] = (_CALL[0],)
    closers: ClassVar = {_CALL[0]: _CALL[1]}


class K2HorizonParser(MarkupParser):
    """`<ifm|tool_call>f` with pairs of `<ifm|arg_key>` and `<ifm|arg_value>`, one per line, in one block."""

    dialects: ClassVar[tuple[Dialect, ...]] = (
        Dialect(
            Tag(_CALL[0], _NAME, _BLANKS, _BODY),
            _CALL[1],
            KeyTag("<ifm|arg_key>", "</ifm|arg_key>", "<ifm|arg_value>", ("<ifm|arg_type>", "</ifm|arg_type>")),
            "</ifm|arg_value>",
            blocks=(_BLOCK,),
            own_lines=True,
        ),
    )
    openers: ClassVar[tuple[str, ...]] = dialects[0].openers
    declared: ClassVar = {
        **{f"<ifm|arg_type>{kind}</ifm|arg_type>": "text" for kind in ("string", "str", "any")},
        "<ifm|arg_type>": "json",
    }
    reasoning_tags: ClassVar = ("<ifm|think>", "</ifm|think>")
    other_thinking: ClassVar[tuple[Thinking, ...]] = (
        Thinking("<ifm|think_fast>", "</ifm|think_fast>", "\n", "", ""),
        Thinking("<ifm|think_faster>", "</ifm|think_faster>", "\n", "", ""),
        THINK,
    )
    reasoning_framing: ClassVar = ("\n", "")
    reasoning_end: ClassVar[str] = ""
    between: ClassVar[str] = "\n"

    def read(self, scan: Scan, at: int) -> Wait:
        """Read a block of calls, or a call, of any of the three forms."""
        begin = yield from self._json_at(scan, at)
        end = -1 if begin < 0 else (yield from self._read_json(scan, begin, is_in_block=begin > at))
        return end if end >= 0 else (yield from super().read(scan, at))

    def read_now(self, scan: Scan, at: int) -> int:
        """Leave JSON to `read`."""
        return UNDECIDED if _JSON_BEGINS(scan.text, at) else super().read_now(scan, at)

    def reads_otherwise(self, source: Source, at: int) -> bool:
        """Whether the call contains JSON, which `read` handles; a block may contain calls of several forms."""
        return source.sees(_CALL[0], at) and source.sees("{", source.space(at + len(_CALL[0])))

    def _json_at(self, scan: Scan, at: int) -> Wait:
        """Return the place of a call's mark with JSON after it, or -1."""
        if scan.text.startswith(_BLOCK[0], at):
            at = yield from skip_space(scan, at + len(_BLOCK[0]))
        if not (yield from sees(scan, _CALL[0], at)):
            return -1
        body = yield from skip_space(scan, at + len(_CALL[0]))
        return at if scan.text.startswith("{", body) else -1

    def _read_json(self, scan: Scan, at: int, *, is_in_block: bool) -> Wait:
        end = -1
        while (after := (yield from self._json.read(scan, at))) >= 0:
            end = yield from pass_closers(scan, after, _CALL[1:])
            at = yield from skip_space(scan, end)
            # Text without JSON belongs to the other forms; how much of it has arrived must not matter.
            at = yield from self._json_at(scan, at)
            if at < 0:
                break
        if end < 0 or not (is_in_block or not scan.text.endswith(_CALL[1], 0, end)):
            return (yield from pass_closers(scan, end, (_BLOCK[1], _CALL[1]))) if end >= 0 else end
        return (yield from read_leftovers(scan, end, self.openers, (_BLOCK[1], _CALL[1])))

    @cached_property
    def _json(self) -> ScanningParser:
        return _JsonCalls()

    def write_calls(self, calls: Sequence[WrittenCall]) -> str:
        """Write the calls in one block."""
        return f"{_BLOCK[0]}\n{super().write_calls(calls)}\n{_BLOCK[1]}"

    def write_call(self, call: WrittenCall, index: int) -> str:  # noqa: ARG002 - the base's signature
        """Write one call of a block."""
        pairs = [
            f"<ifm|arg_key>{name}</ifm|arg_key>\n<ifm|arg_value>{self.write_value(value)}</ifm|arg_value>\n"
            for name, value in call.value.items()
        ]
        return f"{_CALL[0]}{call.name}\n{''.join(pairs)}{_CALL[1]}"
