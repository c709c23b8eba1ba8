"""Sample response templates, and helpers that read a text with them."""

from __future__ import annotations

import copy
import json
from typing import Any

from hermes_core.contracts.parsing import ParseResult
from hermes_parsers import from_response_template
from hermes_testing.suites.parser.invariants import violations

CALL = {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}
PLAIN: dict[str, Any] = {
    "start_anchor": "<|model|>",
    "fields": {
        "thinking": {"open": "<think>", "close": "</think>"},
        "tool_calls": {
            "open": "<call>",
            "close": "</call>",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close": "<|end|>"},
    },
}
MARKUP: dict[str, Any] = {
    "start_anchor": "<|model|>",
    "fields": {
        "tool_calls": {
            "open_pattern": r"<fn=(?P<name>[^>]+)>",
            "close": "</fn>",
            "content": "xml-inline",
            "content_args": {"tag_pattern": r"<(?P<key>\w+)>\s*(?P<value>.*?)\s*</arg>"},
            "transform": CALL,
        },
        "content": {},
    },
}
CHANNELS: dict[str, Any] = {
    "start_anchor": "<|turn|>model",
    "fields": {
        "thinking": {"open": "<|to|>self<|text|>", "close": "<|done|>"},
        "content": {"open": "<|to|>user<|text|>", "close": "<|done|>"},
        "tool_calls": {
            "open_pattern": r"<\|to\|>tool\.(?P<name>\w+).*?<\|text\|>",
            "close": "<|call|>",
            "content": "json",
            "transform": CALL,
        },
    },
}


def alter(template: dict[str, Any], field: str, **values: Any) -> dict[str, Any]:
    """Copy a template with other keys in one field; a key with the value None is left out."""
    copied = copy.deepcopy(template)
    copied["fields"].setdefault(field, {}).update(values)
    copied["fields"][field] = {key: value for key, value in copied["fields"][field].items() if value is not None}
    return copied


def markup(**arguments: Any) -> dict[str, Any]:
    """Copy the markup template with other content arguments."""
    return alter(MARKUP, "tool_calls", content_args={**MARKUP["fields"]["tool_calls"]["content_args"], **arguments})


def read(
    template: dict[str, Any], text: str, *tools: dict[str, Any], mode: Any = "strict", **options: Any
) -> ParseResult:
    """Parse a text; the result must satisfy the invariants and be the same in pieces of any size."""
    parser = from_response_template(template, **options)
    result = parser.parse(text, tools or None, mode)
    assert violations(text, result) == []
    assert parser.render(result) == text
    for size in (1, 2, 3, 7, 20):
        stream = parser.stream(tools or None, mode)
        for at in range(0, len(text), size):
            stream.feed(text[at : at + size])
        stream.finish()
        assert stream.result() == result
    return result


def calls(result: ParseResult) -> list[tuple[str, Any]]:
    """Return names and argument values."""
    return [(call.name, json.loads(call.arguments)) for call in result.calls]


def tool(name: str, **types: str) -> dict[str, Any]:
    """Describe a tool by the types of its parameters."""
    properties = {key: {"type": kind} for key, kind in types.items()}
    return {"type": "function", "function": {"name": name, "parameters": {"properties": properties}}}
