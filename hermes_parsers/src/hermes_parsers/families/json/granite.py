"""IBM's Granite: 3.0 with `<|tool_call|>`, 3.1 to 3.3 with `<tool_call>` before an array; 20B-FunctionCalling."""

from __future__ import annotations

from typing import ClassVar

from hermes_parsers.engine.scanning.parser import ScanningParser
from hermes_parsers.engine.scanning.scan import SPACE, Scan, Wait, sees, skip_space
from hermes_parsers.families.framing.answer_marks import AnsweringParser
from hermes_parsers.families.json.json_array import JsonArrayParser
from hermes_parsers.families.json.tagged_json import TaggedJsonParser


class ClosableParser(ScanningParser):
    """Mixin that accepts an optional closing mark, which models know from other formats.

    List it before the format's base.
    """

    closing: ClassVar[str]

    def block_marks(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the openers and the mark: text between the two was meant as a call."""
        return self.openers, (self.closing,)

    def read(self, scan: Scan, at: int) -> Wait:
        """Read a call, and the mark if it is there."""
        end = yield from super().read(scan, at)
        if end < 0:
            return end
        after = yield from skip_space(scan, end)
        return after + len(self.closing) if (yield from sees(scan, self.closing, after)) else end

    def read_now(self, scan: Scan, at: int) -> int:
        """Read like `read`, without waiting."""
        end = super().read_now(scan, at)
        after = SPACE(scan.text, end).end() if end >= 0 else -1  # type: ignore[union-attr]  # it matches everywhere
        return after + len(self.closing) if after >= 0 and scan.text.startswith(self.closing, after) else end


class GraniteParser(AnsweringParser, ClosableParser, JsonArrayParser):
    """An array after a mark, without a closing one; after reasoning, 3.3 puts its answer into `<response>`."""

    stop_tokens: ClassVar[tuple[str, ...]] = ("<|end_of_text|>",)
    answer: ClassVar[tuple[str, str]] = ("<response>", "</response>")
    openers: ClassVar[tuple[str, ...]] = ("<|tool_call|>", "<tool_call>")
    closers: ClassVar = {"<|tool_call|>": "", "<tool_call>": ""}
    closing: ClassVar[str] = "</tool_call>"
    wire_open: ClassVar[str] = "<|tool_call|>["


class GraniteFunctionCallingParser(ClosableParser, TaggedJsonParser):
    """`<function_call> {"name": …, "arguments": …}`, repeated, without a closing mark (granite-20b-functioncalling)."""

    stop_tokens: ClassVar[tuple[str, ...]] = ("<|endoftext|>",)
    openers: ClassVar[tuple[str, ...]] = ("<function_call>",)
    closers: ClassVar = {"<function_call>": ""}
    closing: ClassVar[str] = "</function_call>"
    between: ClassVar[str] = "\n"
    wire_open: ClassVar[str] = "<function_call> "
