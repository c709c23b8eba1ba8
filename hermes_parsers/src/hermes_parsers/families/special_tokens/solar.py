"""Upstage's Solar Open 2: a name on the call's line, then one argument per line, between marks.

The source is its serving code and tests; each mark is one special token. Values are verbatim text, and only the tool's
schema tells their type.
"""

from __future__ import annotations

import re
from typing import ClassVar

from hermes_parsers.engine.rendering import WrittenCall
from hermes_parsers.markup.dialect import Dialect
from hermes_parsers.markup.parser import MarkupParser
from hermes_parsers.markup.source import Tag

_NAME = re.compile(r"([\w.:/@$-]+)")
_BLANKS = re.compile(r"[ \t]*")
_BODY = re.compile(r"(?=[\r\n<])")
_KEY = re.compile(r"([^<>\n]+)")


class SolarOpen2Parser(MarkupParser):
    """`<|tool_call:start|>f`, then `<|tool_arg:start|>a<|tool_arg:value|>1<|tool_arg:end|>`, one per line."""

    dialects: ClassVar[tuple[Dialect, ...]] = (
        Dialect(
            Tag("<|tool_call:start|>", _NAME, _BLANKS, _BODY),
            "<|tool_call:end|>",
            Tag("<|tool_arg:start|>", _KEY, "<|tool_arg:value|>"),
            "<|tool_arg:end|>",
            own_lines=True,
        ),
    )
    openers: ClassVar[tuple[str, ...]] = dialects[0].openers
    reasoning_tags: ClassVar = ("<|think:start|>", "<|think:end|>")
    reasoning_framing: ClassVar = ("", "")
    reasoning_end: ClassVar[str] = ""
    between: ClassVar[str] = "\n"

    def write_call(self, call: WrittenCall, index: int) -> str:  # noqa: ARG002 - the base's signature
        """Write a call."""
        lines = [
            f"<|tool_arg:start|>{name}<|tool_arg:value|>{self.write_value(value)}<|tool_arg:end|>\n"
            for name, value in call.value.items()
        ]
        return f"<|tool_call:start|>{call.name}\n{''.join(lines)}<|tool_call:end|>"
