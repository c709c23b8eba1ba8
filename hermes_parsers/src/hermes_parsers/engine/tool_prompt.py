"""The text about tools for a system prompt, for chat templates that do not list tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from hermes_parsers.schemas import functions
from hermes_parsers.writing import dumps

EXAMPLE: Final[Mapping[str, Any]] = {"function": {"name": "function_name", "arguments": {"parameter_name": "value"}}}
"""The example that shows how to write calls; not a real tool, because a model could repeat the call."""


def declaration(tools: Sequence[Any], render: Callable[[Mapping[str, Any]], str]) -> str:
    """Write each tool's schema, and a call as `render` writes it.

    Raises:
        ValueError: There is no tool, or this format cannot write the example.
    """
    listed = [dumps({"type": "function", "function": dict(function)}) for function in functions(tools)]
    if not listed:
        raise ValueError('expected tools such as {"type": "function", "function": {"name": "f"}}, got none')
    example = render({"role": "assistant", "content": "", "tool_calls": [EXAMPLE]}).strip()
    lines = [
        "# Tools",
        "",
        "You may call these functions to answer the user. Each line is the JSON schema of one:",
        "<tools>",
        *listed,
        "</tools>",
        "",
        "To call a function, write its name and its arguments in this form, and nothing after it:",
        example,
    ]
    return "\n".join(lines)
