"""Preferred Networks' PLaMo 3: marks around the calls, each call, its name and its arguments.

The source is the documentation of vLLM and of the vendor. `<|plamo:constrain|>json` before the arguments may be
missing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar, Final

from hermes_parsers.engine.rendering import WrittenCall
from hermes_parsers.engine.scanning.scan import cut
from hermes_parsers.families.special_tokens.named_json import SPACES, NamedJsonParser


def _mark(name: str) -> str:
    return f"<|plamo:{name}:plamo|>"


_SECTION: Final = (_mark("begin_tool_requests"), _mark("end_tool_requests"))
_CALL: Final = (_mark("begin_tool_request"), _mark("end_tool_request"))
_NAME: Final = (_mark("begin_tool_name"), _mark("end_tool_name"))
_ARGUMENTS: Final = (_mark("begin_tool_arguments"), _mark("end_tool_arguments"))
_CONSTRAINT: Final = "<|plamo:constrain|>json"
_BODY: Final = "<|plamo:msg|>"

_CALL_MARK: Final = rf"(?>{re.escape(_CALL[0])}{SPACES})?+"
_BEFORE: Final = rf"(?>{re.escape(_SECTION[0])}{SPACES})?+"
_WORD: Final = r"[^\s<>]{1,256}+"
_PIECES: Final = (
    (_CALL_MARK, cut(_CALL[0])),
    (re.escape(_NAME[0]), cut(_NAME[0])),
    (f"({_WORD})", rf"(?>{_WORD})?+\Z"),
    (re.escape(_NAME[1]), cut(_NAME[1])),
    (re.escape(_ARGUMENTS[0]), cut(_ARGUMENTS[0])),
    (f"(?>{re.escape(_CONSTRAINT)})?+", cut(_CONSTRAINT)),
    (f"(?>{re.escape(_BODY)})?+", cut(_BODY)),
)
"""The pieces of a head, and the beginnings of each piece at the end of the text."""


def _cut_head() -> str:
    pattern = r"\Z"
    for whole, interrupted in reversed(_PIECES):
        pattern = f"(?:{interrupted}|{whole.replace('(' + _WORD, '(?:' + _WORD)}{SPACES}{pattern})"
    return f"{_BEFORE}({pattern})"


class Plamo3Parser(NamedJsonParser):
    """`begin_tool_request`, the name, the arguments as JSON, `end_tool_request`; with a section around all calls."""

    openers: ClassVar[tuple[str, ...]] = (_SECTION[0], _CALL[0])
    body: ClassVar[str] = rf"{SPACES}{_CALL_MARK}(?:{cut(_CALL[0])}|{re.escape(_NAME[0])}|{cut(_NAME[0])})"
    head: ClassVar[str] = f"{_BEFORE}({''.join([f'{whole}{SPACES}' for whole, _ in _PIECES])})"
    cut_head: ClassVar[str] = _cut_head()
    opener: ClassVar[str] = _CALL[0]
    closers: ClassVar[tuple[str, ...]] = (_ARGUMENTS[1],)
    breaks: ClassVar[tuple[str, ...]] = (_SECTION[0], *_CALL, _SECTION[1])
    section_closers: ClassVar[tuple[str, ...]] = (_SECTION[1],)
    part_closers: ClassVar[tuple[str, ...]] = (_ARGUMENTS[1],)
    reasoning_tags: ClassVar = (_mark("begin_think"), _mark("end_think"))
    reasons_again: ClassVar[bool] = True
    reasoning_framing: ClassVar[tuple[str, str]] = ("", "")
    reasoning_end: ClassVar[str] = ""

    def block_marks(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the marks around calls and sections; names and arguments have their own."""
        return self.openers, (_ARGUMENTS[1], _CALL[1], _SECTION[1])

    def prepare(self) -> None:
        """Compile the patterns for reading; an optional second mark closes a call."""
        super().prepare()
        end, closed = re.escape(_SECTION[1]), f"{re.escape(_CALL[1])}{SPACES}"
        self._next = re.compile(
            f"{SPACES}(?:(?>{closed})?+(?={re.escape(_CALL[0])})|((?>{closed})?+{end}|{re.escape(_CALL[1])}))"
        ).match
        interrupted = f"(?>{closed})?+(?:{cut(_SECTION[1])}|{cut(_CALL[0])})"
        self._cut_next = re.compile(f"{SPACES}(?:{cut(_CALL[1])}|{interrupted})").match

    def write_calls(self, calls: Sequence[WrittenCall]) -> str:
        """Write the section."""
        return f"{_SECTION[0]}{super().write_calls(calls)}{_SECTION[1]}"

    def write_call(self, call: WrittenCall, index: int) -> str:  # noqa: ARG002 - the base's signature
        """Write a call."""
        head = f"{_CALL[0]}{_NAME[0]}{call.name}{_NAME[1]}{_ARGUMENTS[0]}{_CONSTRAINT}{_BODY}"
        return f"{head}{call.arguments}{_ARGUMENTS[1]}{_CALL[1]}"
