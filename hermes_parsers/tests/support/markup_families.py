"""The families with tagged parameters, their marks, and messages in their formats."""

from __future__ import annotations

from typing import Any

from hermes_parsers import get_parser
from hermes_parsers.markup.dialect import Dialect
from hermes_parsers.markup.parser import MarkupParser

FAMILIES = [
    "qwen3_coder",
    "qwen3_6",
    "step5",
    "mimo",
    "seed_oss",
    "glm45",
    "glm47",
    "hy_v3",
    "hy_v4",
    "minimax_m2",
    "minimax_m3",
    "muse",
    "minicpm5",
    "deepseek_v32",
    "deepseek_v4",
    "deepseek_v41",
    "gigachat35",
    "step3",
    "dots",
    "kimi_k3",
    "k2_horizon",
    "solar_open2",
]
OF_GLM = ["glm45", "glm47", "hy_v3", "hy_v4", "k2_horizon", "solar_open2"]
"""The families in which the call's opening mark is complete, and the tool's name follows it."""


def write_calls(name: str, *calls: tuple[str, dict[str, Any]], content: str = "") -> str:
    """Write calls of (name, arguments) as a family does."""
    tool_calls = [{"id": "call00000", "function": {"name": tool, "arguments": values}} for tool, values in calls]
    return get_parser(name).render({"role": "assistant", "content": content, "tool_calls": tool_calls})


def dialects_of(name: str) -> tuple[Dialect, ...]:
    """Return all dialects that a family reads."""
    parser = get_parser(name)
    assert isinstance(parser, MarkupParser)
    return parser.dialects


def dialect_of(name: str) -> Dialect:
    """Return the dialect that a family writes."""
    text = write_calls(name, ("f", {"a": "1"}))
    return next(one for one in dialects_of(name) if one.parameter_close in text)


def pairs_of(name: str) -> list[tuple[str, str]]:
    """Return the opening and closing marks of blocks and calls."""
    pairs = []
    for dialect in dialects_of(name):
        pairs += [*dialect.blocks, (dialect.call.opening, dialect.call_close)]
        if dialect.prefix:
            pairs.append((dialect.prefix, dialect.suffix))
    return pairs


def tag_of(name: str, tool: str) -> str:
    """Return the tag that opens a call of a tool."""
    call = dialect_of(name).call
    text = write_calls(name, (tool, {"a": "1"}))
    found = call.match(text, text.index(call.opening))
    assert found is not None
    return found[0]


def end_of(name: str, parameter: str) -> str:
    """Return the mark that ends a parameter's value."""
    mark = dialect_of(name).parameter_close
    return f"{mark}{parameter}>" if name == "minimax_m3" else mark
