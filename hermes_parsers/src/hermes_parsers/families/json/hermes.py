"""Hermes 2 Pro, Hermes 3 and the models that adopted the format: Qwen2.5, QwQ, Qwen3, LongCat, Granite 4 and others.

The newlines are those of the models' chat templates.
"""

from __future__ import annotations

from typing import ClassVar

from hermes_parsers.engine.values.json_calls import CallKeys
from hermes_parsers.families.framing.answer_marks import AnsweringParser
from hermes_parsers.families.json.tagged_json import TaggedJsonParser


class HermesParser(TaggedJsonParser):
    """`<tool_call>` with a JSON object."""

    stop_tokens: ClassVar[tuple[str, ...]] = ("<|im_end|>", "<|end_of_text|>")
    openers: ClassVar[tuple[str, ...]] = ("<tool_call>",)
    closers: ClassVar = {"<tool_call>": "</tool_call>"}
    keys: ClassVar = CallKeys(id=("id", "uniq_id"))
    takes_named: ClassVar[bool] = True
    framing: ClassVar[str] = "\n"
    between: ClassVar[str] = "\n"
    wire_open: ClassVar[str] = "<tool_call>\n"
    wire_close: ClassVar[str] = "\n</tool_call>"


class Ernie45Parser(AnsweringParser, HermesParser):
    """The same, with ERNIE 4.5's answer in `<response>` after its reasoning."""

    stop_tokens: ClassVar[tuple[str, ...]] = ()
    answer: ClassVar[tuple[str, str]] = ("<response>", "</response>")


class LongcatParser(HermesParser):
    """The same with LongCat-Flash's tags."""

    stop_tokens: ClassVar[tuple[str, ...]] = ("</longcat_s>",)
    openers: ClassVar[tuple[str, ...]] = ("<longcat_tool_call>",)
    closers: ClassVar = {"<longcat_tool_call>": "</longcat_tool_call>"}
    wire_open: ClassVar[str] = "<longcat_tool_call>\n"
    wire_close: ClassVar[str] = "\n</longcat_tool_call>"
    reasoning_tags: ClassVar = ("<longcat_think>", "</longcat_think>")
