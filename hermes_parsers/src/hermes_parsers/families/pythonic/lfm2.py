"""LFM2 and LFM2.5: a list of Python calls between marks, or a JSON list if the system prompt asks for it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, Final

from hermes_parsers.engine.rendering import WrittenCall
from hermes_parsers.engine.scanning.parser import ScanningParser
from hermes_parsers.engine.scanning.scan import Scan, Wait
from hermes_parsers.engine.scanning.stream import ScanStream
from hermes_parsers.families.pythonic.call_syntax import NAME
from hermes_parsers.families.pythonic.parser import MARKED, PythonicParser
from hermes_parsers.writing import dumps

_START: Final = "<|tool_call_start|>"
_END: Final = "<|tool_call_end|>"


class Lfm2Parser(PythonicParser):
    """`<|tool_call_start|>[f(a='x')]<|tool_call_end|>`, as the chat template of LFM2.5 writes it.

    llama.cpp's template for LFM2 writes `[{"name": "f", "arguments": {"a": "x"}}]` between the same marks.
    """

    stop_tokens: ClassVar[tuple[str, ...]] = ("<|im_end|>",)
    stream_type: ClassVar[type[ScanStream]] = ScanStream
    openers: ClassVar[tuple[str, ...]] = (_START,)
    pattern: ClassVar[str] = ""
    body: ClassVar[str] = rf"{MARKED}(?:{NAME}(?:\(|\Z)|\{{|\Z)"
    head: ClassVar[re.Pattern[str]] = re.compile(rf"{re.escape(_START)}{MARKED}(?={NAME}\()")
    separator: ClassVar[str] = ",?+"
    closer: ClassVar[str] = _END
    needs_closer: ClassVar[bool] = True
    reasoning_framing: ClassVar[tuple[str, str]] = ("", "")
    reasoning_end: ClassVar[str] = ""

    def read(self, scan: Scan, at: int) -> Wait:
        """Read a list of either kind."""
        return super().read(scan, at) if self.head.match(scan.text, at) else self._json.read(scan, at)

    def read_now(self, scan: Scan, at: int) -> int:
        """Read a list of either kind, without waiting."""
        end = super().read_now(scan, at)
        return self._json.read_now(scan, at) if end == -1 else end

    @cached_property
    def _json(self) -> ScanningParser:
        from hermes_parsers.families.json.json_array import TaggedListParser

        return TaggedListParser((_START,), {_START: _END})

    def write_calls(self, calls: Sequence[WrittenCall]) -> str:
        """Write the list between its marks."""
        return f"{_START}{super().write_calls(calls)}{_END}"

    def write_value(self, value: Any) -> str:
        """Write a literal; the template writes mappings as JSON."""
        return dumps(value) if isinstance(value, dict) else repr(value)
