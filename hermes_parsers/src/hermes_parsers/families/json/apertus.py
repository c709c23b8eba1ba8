"""Apertus of the Swiss AI Initiative: a JSON array whose items have one key, the tool's name."""

from __future__ import annotations

import re
from typing import ClassVar, Final

from hermes_parsers.engine.rendering import WrittenCall
from hermes_parsers.engine.scanning.scan import Draft
from hermes_parsers.engine.values.json_calls import Match, set_arguments
from hermes_parsers.engine.values.json_text import Members
from hermes_parsers.families.json.json_array import JsonArrayParser
from hermes_parsers.writing import dumps

_SPACE: Final = r"[ \t\n\r]*+"
_OPENING: Final = "<|tools_prefix|>"
_CLOSING: Final = "<|tools_suffix|>"
_BEGINS: Final = rf'\{{{_SPACE}"[^"\\\n]{{1,256}}+"{_SPACE}:{_SPACE}\{{'
_MARKS: Final = f"{re.escape(_OPENING)}|{re.escape(_CLOSING)}"


class ApertusParser(JsonArrayParser):
    """`<|tools_prefix|>[{"f": {"a": 1}}, {"g": {}}]<|tools_suffix|>`."""

    stop_tokens: ClassVar[tuple[str, ...]] = ("<|assistant_end|>", "<|tools_suffix|>")
    openers: ClassVar[tuple[str, ...]] = (_OPENING,)
    closers: ClassVar = {_OPENING: _CLOSING}
    reasoning_tags: ClassVar = ("<|inner_prefix|>", "<|inner_suffix|>")
    reasons_again: ClassVar[bool] = True
    reasoning_framing: ClassVar[tuple[str, str]] = ("", "")
    reasoning_end: ClassVar[str] = ""
    wire_open: ClassVar[str] = f"{_OPENING}["
    wire_close: ClassVar[str] = f"]{_CLOSING}"

    def prepare(self) -> None:
        """Compile the patterns for reading; here any key begins an item."""
        super().prepare()
        self._boundary = re.compile(rf"\}}{_SPACE},(?={_SPACE}{_BEGINS})|{_MARKS}").search
        self._next = re.compile(f"{_BEGINS}|{_MARKS}").search

    def plain_patterns(self) -> tuple[Match, Match]:
        """Compile the text before and after the arguments of a well-formed item."""
        before = rf'\{{{_SPACE}"([\w.\-]++)"{_SPACE}:{_SPACE}(?=\{{)'
        return re.compile(before).match, re.compile(_SPACE + r"\}").match

    def draft_of(self, text: str, start: int, end: int, found: Members) -> Draft:
        """Use the only key as the name; read an item with several keys like other formats."""
        if len(found) != 1:
            return super().draft_of(text, start, end, found)
        [(name, arguments)] = found.items()
        if not name.strip() or (name in self.keys.name and isinstance(arguments[0], str)):
            return super().draft_of(text, start, end, found)
        draft = Draft(start, end, name=name)
        set_arguments(draft, text, *arguments)
        return draft

    def write_call(self, call: WrittenCall, index: int) -> str:  # noqa: ARG002 - the base's signature
        """Write one item."""
        return f"{{{dumps(call.name)}: {call.arguments}}}"
