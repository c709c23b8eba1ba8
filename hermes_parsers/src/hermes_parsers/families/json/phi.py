"""Phi-4-mini: `functools` before an array."""

from __future__ import annotations

from typing import ClassVar

from hermes_parsers.families.json.json_array import JsonArrayParser


class PhiParser(JsonArrayParser):
    """`functools[{"name": …, "arguments": …}]`."""

    stop_tokens: ClassVar[tuple[str, ...]] = ("<|end|>",)
    openers: ClassVar[tuple[str, ...]] = ("functools",)
    # The mark is also a word of prose, so the text after it must begin like calls.
    body: ClassVar[str] = r"[ \t\n\r]*+(?:\[[ \t\n\r]*+(?:\{|\Z)|\{[ \t\n\r]*+(?:[\"'}]|\Z)|\Z)"
    ends_reasoning: ClassVar[tuple[str, ...]] = ()
    closers: ClassVar = {"functools": ""}
    wire_open: ClassVar[str] = "functools["
