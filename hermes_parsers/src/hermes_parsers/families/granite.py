"""IBM's Granite: 3.0 with `<|tool_call|>`, 3.1 to 3.3 with `<tool_call>` before an array; 20B-FunctionCalling."""

from __future__ import annotations

from typing import ClassVar

from hermes_parsers.families.answers import AnsweringParser
from hermes_parsers.families.json_array import JsonArrayParser
from hermes_parsers.families.tagged_json import TaggedJsonParser


class GraniteParser(AnsweringParser, JsonArrayParser):
    """An array behind a mark and nothing after it; behind reasoning, 3.3 puts its answer into `<response>`."""

    stop_tokens: ClassVar[tuple[str, ...]] = ("<|end_of_text|>",)
    answer: ClassVar[tuple[str, str]] = ("<response>", "</response>")
    openers: ClassVar[tuple[str, ...]] = ("<|tool_call|>", "<tool_call>")
    closers: ClassVar = {"<|tool_call|>": "", "<tool_call>": ""}
    wire_open: ClassVar[str] = "<|tool_call|>["


class GraniteFunctionCallingParser(TaggedJsonParser):
    """`<function_call> {"name": …, "arguments": …}`, repeated, without a closing mark (granite-20b-functioncalling)."""

    stop_tokens: ClassVar[tuple[str, ...]] = ("<|endoftext|>",)
    openers: ClassVar[tuple[str, ...]] = ("<function_call>",)
    closers: ClassVar = {"<function_call>": ""}
    between: ClassVar[str] = "\n"
    wire_open: ClassVar[str] = "<function_call> "
