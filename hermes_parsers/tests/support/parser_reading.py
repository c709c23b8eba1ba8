"""Helpers that read a text whole and in pieces, and check every invariant of the result."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from hermes_core.contracts.parsing import ParseEvent, ParseResult, ToolCallParser
from hermes_parsers import get_parser
from hermes_parsers.engine.scanning.parser import ScanningParser
from hermes_testing.suites.parser.invariants import violations

Mode = Literal["strict", "lenient"]
Schema = dict[str, Any]


def read(name: str, text: str, *tools: Schema, mode: Mode = "strict", **options: Any) -> ParseResult:
    """Parse a text; the result must satisfy the invariants and be the same when the text arrives in pieces."""
    parser = get_parser(name, **options)
    result = parser.parse(text, tools or None, mode)
    assert violations(text, result) == []
    for size in (1, 4, 11, len(text) + 1):
        in_pieces = read_stream(parser, pieces(text, size), tools, mode)[1]
        assert in_pieces == result, f"in pieces of {size}: {in_pieces}\nwhole: {result}"
    return result


def scanning_parser(name: str) -> ScanningParser:
    """Return a parser with its class's marks."""
    parser = get_parser(name)
    assert isinstance(parser, ScanningParser)
    return parser


def reasoning_tags(name: str) -> tuple[str, str]:
    """Return the marks of reasoning in a format with reasoning."""
    tags = scanning_parser(name).reasoning_tags
    assert tags is not None
    return tags


def read_stream(
    parser: ToolCallParser, deltas: Iterable[str], tools: Sequence[Schema] = (), mode: Mode = "strict"
) -> tuple[list[ParseEvent], ParseResult]:
    """Feed pieces to a stream and return all its events and its result."""
    stream = parser.stream(tools or None, mode)
    events = [event for delta in deltas for event in stream.feed(delta)]
    events += stream.finish()
    return events, stream.result()


def pieces(text: str, size: int) -> list[str]:
    """Cut a text into pieces of `size` characters."""
    return [text[at : at + size] for at in range(0, len(text), size)]


def function_tool(name: str, **properties: Any) -> Schema:
    """Build the schema of a tool with these parameters."""
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def meaning(result: ParseResult) -> list[tuple[str, Any]]:
    """Return the calls as names and argument values."""
    return [(call.name, json.loads(call.arguments)) for call in result.calls]


def statuses(result: ParseResult) -> list[str]:
    """Return the statuses of the attempts, in order."""
    return [attempt.status.value for attempt in result.attempts]


def wide(text: str) -> str:
    """Write a text's bars as DeepSeek's wide ones, which look too much like the narrow ones to be typed here."""
    return text.replace("|", "\uff5c")


def deepseek_v3(*calls: tuple[str, str]) -> str:
    """Write calls of (name, arguments) as DeepSeek-V3-0324 and R1-0528 do."""
    body = "\n".join(
        f"<|tool▁call▁begin|>function<|tool▁sep|>{name}\n```json\n{arguments}\n```<|tool▁call▁end|>"
        for name, arguments in calls
    )
    return wide(f"<|tool▁calls▁begin|>{body}<|tool▁calls▁end|>")


def deepseek_v31(*calls: tuple[str, str]) -> str:
    """Write calls of (name, arguments) as DeepSeek-V3.1 does."""
    body = "".join(f"<|tool▁call▁begin|>{name}<|tool▁sep|>{arguments}<|tool▁call▁end|>" for name, arguments in calls)
    return wide(f"<|tool▁calls▁begin|>{body}<|tool▁calls▁end|>")


def kimi(*calls: tuple[str, str]) -> str:
    """Write calls of (id, arguments) as Kimi K2 does."""
    body = "".join(
        f"<|tool_call_begin|>{call_id}<|tool_call_argument_begin|>{arguments}<|tool_call_end|>"
        for call_id, arguments in calls
    )
    return f"<|tool_calls_section_begin|>{body}<|tool_calls_section_end|>"


def hermes(*bodies: str) -> str:
    """Write JSON bodies as Hermes 2 Pro and Qwen2.5 do."""
    return "\n".join(f"<tool_call>\n{body}\n</tool_call>" for body in bodies)


def qwen3_coder(name: str, **values: str) -> str:
    """Write a call with its values as Qwen3-Coder does."""
    body = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
    return f"<tool_call>\n<function={name}>\n{body}</function>\n</tool_call>"


def glm45(name: str, **values: str) -> str:
    """Write a call with its values as GLM-4.5 does."""
    body = "".join(f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n" for key, value in values.items())
    return f"<tool_call>{name}\n{body}</tool_call>"


def minimax_m2(name: str, **values: str) -> str:
    """Write a call with its values as MiniMax-M2 does."""
    body = "".join(f'<parameter name="{key}">{value}</parameter>\n' for key, value in values.items())
    return f'<minimax:tool_call>\n<invoke name="{name}">\n{body}</invoke>\n</minimax:tool_call>'


def dsml(name: str, *parameters: tuple[str, bool, str]) -> str:
    """Write a call with parameters of (name, is a string, value) as DeepSeek-V3.2 does."""
    body = "".join(
        f'<|DSML|parameter name="{key}" string="{str(text).lower()}">{value}</|DSML|parameter>\n'
        for key, text, value in parameters
    )
    invoke = f'<|DSML|invoke name="{name}">\n{body}</|DSML|invoke>\n'
    return wide(f"<|DSML|function_calls>\n{invoke}</|DSML|function_calls>")
