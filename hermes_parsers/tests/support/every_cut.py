"""Read a text with one cut at every place, which finds decisions that were made too early."""

from __future__ import annotations

from parser_reading import Mode, Schema, read, read_stream

from hermes_core.contracts.parsing import ParseResult
from hermes_parsers import get_parser


def read_at_every_cut(name: str, text: str, *tools: Schema, mode: Mode = "strict") -> ParseResult:
    """Parse a text; cut in two at any place, it must give the same result."""
    result = read(name, text, *tools, mode=mode)
    parser = get_parser(name)
    for place in range(1, len(text)):
        in_two = read_stream(parser, [text[:place], text[place:]], tools, mode)[1]
        assert in_two == result, f"cut behind {text[:place]!r}: {in_two}\nwhole: {result}"
    return result
