"""Jamba 1.5 and Hunyuan-A13B: an array in `<tool_calls>`."""

from __future__ import annotations

from typing import ClassVar

from hermes_parsers.families.framing.answer_marks import AnsweringParser
from hermes_parsers.families.json.json_array import JsonArrayParser


class JambaParser(JsonArrayParser):
    """`<tool_calls>[…]</tool_calls>` as the template of Jamba 1.5 writes it."""

    stop_tokens: ClassVar[tuple[str, ...]] = ("<|eom|>",)
    openers: ClassVar[tuple[str, ...]] = ("<tool_calls>",)
    closers: ClassVar = {"<tool_calls>": "</tool_calls>"}
    between: ClassVar[str] = ",\n"
    wire_open: ClassVar[str] = "<tool_calls>[\n"
    wire_close: ClassVar[str] = "\n]</tool_calls>"


class HunyuanParser(AnsweringParser, JambaParser):
    """The same on one line, as Hunyuan-A13B writes it, with an answer in `<answer>`."""

    stop_tokens: ClassVar[tuple[str, ...]] = ("<|eos|>",)
    answer: ClassVar[tuple[str, str]] = ("<answer>", "</answer>")
    between: ClassVar[str] = ", "
    wire_open: ClassVar[str] = "<tool_calls>["
    wire_close: ClassVar[str] = "]</tool_calls>"
