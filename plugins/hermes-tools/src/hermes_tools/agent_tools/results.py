"""Filters the arguments of an agent's tool call and converts answers to `ToolResult`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from hermes_tools.agent_tools.tool import ToolCall, ToolResult

POLICY_WORDS: Final = frozenset({"allow_network", "require_sandbox", "require_stateful_sandbox"})
"""Arguments that only the environment decides, never a caller."""
_LONGEST: Final = 600.0


def without_policy(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments without those that only the environment decides."""
    return {name: value for name, value in arguments.items() if name not in POLICY_WORDS}


def clamp_timeout(timeout: Any) -> float | None:
    """Clamp a timeout to 1 … 600 seconds. Return None, which means the default, if it is not a number."""
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or timeout != timeout:  # noqa: PLR0124 - NaN
        return None
    return min(_LONGEST, max(1.0, float(timeout)))


def result_for(call: ToolCall, result: ToolResult) -> ToolResult:
    """Return a copy of the result with the call's id."""
    return ToolResult(result.success, result.output, result.error, result.metadata, call.uniq_id)


def parse_result(content: str) -> ToolResult:
    """Parse a tool's answer: a JSON object sets the fields of the result, and any other text becomes its output."""
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        return ToolResult(success=True, output=content)
    # The tool may pass on JSON that it did not write, so the keys can have any type.
    if not isinstance(answer, dict) or not isinstance(metadata := answer.get("metadata") or {}, dict):
        return ToolResult(success=True, output=content)
    if isinstance(answer.get("success"), bool) and "output" in answer:
        error = answer.get("error")
        return ToolResult(success=answer["success"], output=str(answer["output"]), error=error, metadata=metadata)
    if "exit_code" in answer:
        return command_result(answer)
    if answer.get("error"):
        rest = {name: value for name, value in answer.items() if name != "error"}
        return ToolResult(success=False, output=json.dumps(rest) if rest else "", error=str(answer["error"]))
    return ToolResult(success=True, output=answer["content"] if set(answer) == {"content"} else content)


def command_result(answer: Mapping[str, Any]) -> ToolResult:
    """Convert the answer of a command. The result is a failure if it has an error or an exit code other than 0."""
    code = answer["exit_code"]
    rest = {name: value for name, value in answer.items() if name not in {"output", "error"}}
    error = answer.get("error") or (f"Exit code: {code}" if code != 0 else None)
    return ToolResult(success=error is None, output=str(answer.get("output") or ""), error=error, metadata=rest)
