"""Helpers for writing a message: read it, and refuse one that would not read back the same."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isinf
from typing import Any

from hermes_core.contracts.parsing import ParseResult
from hermes_parsers.writing import dumps


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenCall:
    """A call to write. `arguments` is the JSON text, unchanged if the caller gave text; `value` is its value.

    `id` is the message's `wire_id` (the id as the model wrote it) if it has one, else its `id`, which may be "".
    """

    name: str
    arguments: str
    value: dict[str, Any]
    id: str = ""


def read_message(message: Mapping[str, Any]) -> tuple[str, str, list[WrittenCall]]:
    """Return reasoning, content and calls of an OpenAI assistant message.

    Raises:
        ValueError: A part of it does not belong in such a message.
    """
    if not isinstance(message, Mapping):
        raise ValueError(f"expected a message as a mapping or a parse result, got {type(message).__name__}")  # noqa: TRY004 - the contract names ValueError
    reasoning = message.get("reasoning_content") or message.get("reasoning") or ""
    content = message.get("content")
    content = "" if content is None else content
    if isinstance(content, list):
        content = "".join([_part(part) for part in content])
    if not isinstance(content, str) or not isinstance(reasoning, str):
        kinds = f"{type(content).__name__} and {type(reasoning).__name__}"
        raise ValueError(f"expected content and reasoning as str, got {kinds}")  # noqa: TRY004 - the contract names ValueError
    calls = message.get("tool_calls") or ()
    if not isinstance(calls, Sequence) or isinstance(calls, str):
        raise ValueError(f"expected tool_calls as a list, got {type(calls).__name__}")  # noqa: TRY004 - as above
    return reasoning, content, [_call(call) for call in calls]


def _part(part: Any) -> str:
    if isinstance(part, Mapping) and part.get("type") == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    raise ValueError(f"expected content parts of type text in an assistant message, got {part!r:.200}")


def _call(call: Any) -> WrittenCall:
    function = call.get("function", call) if isinstance(call, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(name, str) or not name.strip():
        raise ValueError(f'expected a tool call like {{"function": {{"name": …, "arguments": …}}}}, got {call!r:.200}')
    text, value = _arguments(name, function.get("arguments"))
    written = call.get("wire_id") or call.get("id") or ""
    return WrittenCall(name=name, arguments=text, value=value, id=str(written))


def _arguments(name: str, arguments: Any) -> tuple[str, dict[str, Any]]:
    if arguments is None or arguments == "":
        return "{}", {}
    try:
        if isinstance(arguments, str):
            value, text = json.loads(arguments, parse_constant=_refuse, parse_float=_finite), arguments.strip()
        else:
            value, text = arguments, dumps(arguments)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"the arguments of {name!r} are not valid JSON: {error}") from error
    if not isinstance(value, Mapping):
        raise ValueError(f"expected a JSON object as the arguments of {name!r}, got {type(value).__name__}")  # noqa: TRY004 - the contract names ValueError
    return text, dict(value)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _finite(number: str) -> float:
    value = float(number)
    if isinf(value):
        raise ValueError(f"{number:.40} is out of range for a number")
    return value


def refuse_unless_same(result: ParseResult, reasoning: str, content: str, calls: Sequence[WrittenCall]) -> None:
    """Raise ValueError unless the written text reads back as the same calls."""
    found = [(call.name, json.loads(call.arguments)) for call in result.calls]
    wanted = [(call.name, call.value) for call in calls]
    if len(found) != len(wanted):
        raise ValueError(
            f"the message cannot be written in this format: it has {len(wanted)} tool calls and would be read back "
            f"with {len(found)}; remove the format's marks from its content and arguments"
        )
    for had, has in zip(wanted, found, strict=True):
        if had != has:
            raise ValueError(
                f"the call of {had[0]!r} cannot be written in this format: it would be read as {has!r:.300}"
            )
    refuse_other_text(result, reasoning, content)


def refuse_other_text(result: ParseResult, reasoning: str, content: str) -> None:
    """Raise ValueError unless content and reasoning read back the same."""
    if (result.content or "").strip() != content.strip() or (result.reasoning or "").strip() != reasoning.strip():
        raise ValueError(
            "the content or the reasoning cannot be written in this format: it contains a mark of the format, and "
            "would be read as content {result.content!r:.200} and reasoning {result.reasoning!r:.200}"
        )
