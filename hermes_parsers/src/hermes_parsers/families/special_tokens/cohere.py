"""Cohere's Command A and R7B (`cohere_command3`), and Command A+ and North (`cohere_command4`).

Every part of a turn has its own marks: reasoning, the answer, and the calls as a JSON array. The source is Cohere's
published templates. Both parsers read both formats; they differ in the marks that they write around an answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar, Final

from hermes_parsers.declarative.regions import RegionReader, Regions
from hermes_parsers.declarative.stream import TemplateStream
from hermes_parsers.declarative.template import TextField
from hermes_parsers.engine.rendering import WrittenCall
from hermes_parsers.engine.scanning.scan import Marks, Scan, Wait, cut
from hermes_parsers.engine.scanning.stream import ScanStream
from hermes_parsers.engine.values.json_calls import CallKeys
from hermes_parsers.families.json.json_array import JsonArrayParser
from hermes_parsers.writing import dumps

_CALLS: Final = ("<|START_ACTION|>", "<|END_ACTION|>")
_RESPONSE: Final = ("<|START_RESPONSE|>", "<|END_RESPONSE|>")
_TEXT: Final = ("<|START_TEXT|>", "<|END_TEXT|>")
_TURN_END: Final = ("<|END_OF_TURN_TOKEN|>",)
_ANSWERS: Final = tuple(TextField((marks[0],), (marks[1],), strips=False) for marks in (_RESPONSE, _TEXT))


class CohereCommand3Parser(RegionReader, JsonArrayParser):
    """`<|START_ACTION|>[{"tool_call_id": "0", "tool_name": …, "parameters": …}]<|END_ACTION|>`."""

    stop_tokens: ClassVar[tuple[str, ...]] = ("<|END_OF_TURN_TOKEN|>",)
    stream_type: ClassVar[type[ScanStream]] = TemplateStream
    regions = Regions(
        fields=tuple((answer, True) for answer in _ANSWERS),
        ends={answer: Marks(answer.closings) for answer in _ANSWERS},
        silent=_TURN_END,
        alone=_TURN_END,
        leading=(),
    )
    openers: ClassVar[tuple[str, ...]] = (_CALLS[0],)
    # No JSON follows these, so they cannot be openers.
    pattern: ClassVar[str] = "|".join(
        f"{re.escape(mark)}|{re.escape(mark[0])}{cut(mark[1:])}" for mark in (_RESPONSE[0], _TEXT[0], *_TURN_END)
    )
    closers: ClassVar = {_CALLS[0]: _CALLS[1]}
    keys: ClassVar = CallKeys(("tool_name", "name"), ("parameters", "arguments"), ("tool_call_id", "id"))
    reasoning_tags: ClassVar = ("<|START_THINKING|>", "<|END_THINKING|>")
    reasons_again: ClassVar[bool] = True
    reasoning_framing: ClassVar[tuple[str, str]] = ("", "")
    reasoning_end: ClassVar[str] = ""
    between: ClassVar[str] = ",\n    "
    wire_open: ClassVar[str] = f"{_CALLS[0]}[\n    "
    wire_close: ClassVar[str] = f"\n]{_CALLS[1]}"
    answer: ClassVar[tuple[str, str]] = _RESPONSE

    def read(self, scan: Scan, at: int) -> Wait:
        """Read the array; another mark does not begin one."""
        return (yield from super().read(scan, at)) if scan.text.startswith(self.openers, at) else -1

    def read_now(self, scan: Scan, at: int) -> int:
        """Read like `read`, without waiting."""
        return super().read_now(scan, at) if scan.text.startswith(self.openers, at) else -1

    def write(self, content: str, calls: Sequence[WrittenCall]) -> str:
        """Write the answer between its marks, then the calls."""
        opening, closing = self.answer
        text = f"{opening}{content}{closing}" if content else ""
        return f"{text}{self.write_calls(calls)}" if calls else text

    def write_call(self, call: WrittenCall, index: int) -> str:
        """Write one item; the model numbers its calls."""
        written = call.id if call.id.isdecimal() and call.id.isascii() else str(index)
        return f'{{"tool_call_id": "{written}", "tool_name": {dumps(call.name)}, "parameters": {call.arguments}}}'


class CohereCommand4Parser(CohereCommand3Parser):
    """The same, with the answer in `<|START_TEXT|>`."""

    answer: ClassVar[tuple[str, str]] = _TEXT
