"""InternLM2.5 and Intern-S1: a JSON object after two action marks, with `parameters`."""

from __future__ import annotations

from typing import ClassVar

from hermes_parsers.engine.values.json_calls import CallKeys
from hermes_parsers.families.json.tagged_json import TaggedJsonParser

_OPENERS = ("<|action_start|><|plugin|>", "<|action_start|> <|plugin|>")


class InternlmParser(TaggedJsonParser):
    """`<|action_start|><|plugin|>{"name": …, "parameters": …}<|action_end|>`; a space between the marks is accepted."""

    stop_tokens: ClassVar[tuple[str, ...]] = ("<|im_end|>",)
    openers: ClassVar[tuple[str, ...]] = _OPENERS
    closers: ClassVar = dict.fromkeys(_OPENERS, "<|action_end|>")
    keys: ClassVar = CallKeys(arguments=("parameters", "arguments"))
    between: ClassVar[str] = "\n"
    wire_open: ClassVar[str] = "<|action_start|><|plugin|>\n"
    wire_close: ClassVar[str] = "<|action_end|>"


class InternS1Parser(InternlmParser):
    """Intern-S1 writes the space."""

    wire_open: ClassVar[str] = "<|action_start|> <|plugin|>\n"
