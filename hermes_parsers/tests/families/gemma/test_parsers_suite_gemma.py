"""The parser suite on the formats of Gemma. `wire` is written from the templates."""

from __future__ import annotations

import json

from hermes_testing import ParserSuite

_GEMMA = {
    "json_arguments": "the strings stand between marks",
    "repairs": "the arguments are no JSON",
    "own_marks": "a string has no escapes",
}


class TestGemma4(ParserSuite):
    plugin = "hermes_parsers.plugin"
    component = "gemma4"
    reasoning_tags = ("<|channel>thought", "<channel|>")
    quote = '<|"|>'
    opening, closing = "<|tool_call>", "<tool_call|>"
    block_marks = ((opening, closing),)
    lacks = _GEMMA

    def wire(self, calls, content=""):
        return content + "".join(
            f"{self.opening}call:{name}{self.written(value)}{self.closing}" for name, value in calls
        )

    def written(self, value):
        if isinstance(value, str):
            return f"{self.quote}{value}{self.quote}"
        if isinstance(value, list):
            return f"[{','.join(map(self.written, value))}]"
        if isinstance(value, dict):
            return f"{{{','.join(f'{self.key(key)}:{self.written(item)}' for key, item in value.items())}}}"
        return json.dumps(value)

    def key(self, key):
        """Write a key as in the template's declarations, if it is not a bare word."""
        return key if key.isidentifier() else f"{self.quote}{key}{self.quote}"


class TestFunctionGemma(TestGemma4):
    component = "functiongemma"
    reasoning_tags = ("<think>", "</think>")
    quote = "<escape>"
    opening, closing = "<start_function_call>", "<end_function_call>"
    block_marks = ((opening, closing),)
