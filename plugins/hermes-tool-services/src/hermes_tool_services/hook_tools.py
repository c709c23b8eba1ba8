"""`exec_tool` of an `AgentEnv`: the calls that its hooks make in a rollout, and how answers become `ToolResult`s.

What a hook reads and writes goes to the sandbox as it is; what the model calls goes through its tools, with line
numbers, limits and a record.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from hermes_core.contracts.errors import HermesError
from hermes_core.rollout.context import RolloutContext
from hermes_tool_services.agent_tools import ToolCall, ToolResult

POLICY: Final = frozenset({"allow_network", "require_sandbox", "require_stateful_sandbox"})
"""Arguments that are the environment's to decide, never a caller's."""
ExecTool = Callable[[ToolCall], Awaitable[ToolResult]]
"""Makes one call in a rollout's sandbox; what the hooks get as `exec_tool`."""
_ALIASES: Final = {"bash": "terminal", "bash_stateful": "terminal", "terminal_stateful": "terminal"}
_NEEDED: Final = {"terminal": ("command",), "read_file": ("path",), "write_file": ("path", "content")}
_LONGEST: Final = 600.0
_DEFAULT_TIMEOUT: Final = 120.0


class Workbench:
    """Makes a hook's calls in one rollout. Whatever goes wrong is in the result; a lost sandbox is raised."""

    def __init__(self, context: RolloutContext) -> None:
        self._context = context

    async def execute(self, call: ToolCall, timeout_s: float | None = None) -> ToolResult:
        """Call any installed tool or one of the environment's own; `terminal` and files without the model's limits."""
        arguments = without_policy(call.arguments)
        name = _ALIASES.get(call.name, call.name)
        missing = [needed for needed in _NEEDED.get(name, ()) if needed not in arguments]
        if missing:
            problem = f"{call.name}: argument {missing[0]!r} is missing"
            return ToolResult(success=False, error=problem, uniq_id=call.uniq_id)
        return answering(call, await self._guarded(name, arguments, timeout_s))

    async def _guarded(self, name: str, arguments: dict[str, Any], timeout_s: float | None) -> ToolResult:
        try:
            if name == "terminal":
                return await self._terminal(arguments, timeout_s)
            if name in {"read_file", "write_file"}:
                return await self._file(name, arguments)
            return as_result(await self._context.call_tool(name, arguments))
        except HermesError as error:
            if not error.fatal:
                raise
            return ToolResult(success=False, error=error.message)  # a tool that is not installed, say
        except Exception as error:  # noqa: BLE001 - the plugin boundary: a tool's failure is the hook's to judge
            return ToolResult(success=False, error=f"{type(error).__name__}: {error}")

    async def _terminal(self, arguments: Mapping[str, Any], timeout_s: float | None) -> ToolResult:
        if arguments.get("background"):
            return ToolResult(success=False, error="terminal background execution is not supported in sandbox")
        timeout = clamped(timeout_s if timeout_s is not None else arguments.get("timeout"))
        answer = await self._context.terminal(arguments["command"], timeout=timeout or _DEFAULT_TIMEOUT)
        return _of_command(answer)

    async def _file(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        path = str(arguments["path"])
        try:
            if name == "read_file":
                return ToolResult(success=True, output=await self._context.read_text(path), metadata={"path": path})
            data = str(arguments["content"]).encode()
            await self._context.write_bytes(path, data)
        except OSError as error:
            return ToolResult(success=False, error=f"{path}: {error.strerror or error}")
        return ToolResult(success=True, output=f"{len(data)} bytes written", metadata={"path": path, "size": len(data)})


def without_policy(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what is the environment's to decide."""
    return {name: value for name, value in arguments.items() if name not in POLICY}


def clamped(timeout: Any) -> float | None:
    """Bring a timeout into 1 … 600 seconds; None and what is no number mean the default."""
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or timeout != timeout:  # noqa: PLR0124 - NaN
        return None
    return min(_LONGEST, max(1.0, float(timeout)))


def answering(call: ToolCall, result: ToolResult) -> ToolResult:
    """Return a result under its call's id."""
    return ToolResult(result.success, result.output, result.error, result.metadata, call.uniq_id)


def as_result(content: str) -> ToolResult:
    """Read what a tool answered: the keys of its JSON become the result's; another text is its output."""
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        return ToolResult(success=True, output=content)
    # It may be anybody's JSON that the tool passes on.
    if not isinstance(answer, dict) or not isinstance(metadata := answer.get("metadata") or {}, dict):
        return ToolResult(success=True, output=content)
    if isinstance(answer.get("success"), bool) and "output" in answer:
        error = answer.get("error")
        return ToolResult(success=answer["success"], output=str(answer["output"]), error=error, metadata=metadata)
    if "exit_code" in answer:
        return _of_command(answer)
    if answer.get("error"):
        rest = {name: value for name, value in answer.items() if name != "error"}
        return ToolResult(success=False, output=json.dumps(rest) if rest else "", error=str(answer["error"]))
    return ToolResult(success=True, output=answer["content"] if set(answer) == {"content"} else content)


def _of_command(answer: Mapping[str, Any]) -> ToolResult:
    code = answer["exit_code"]
    rest = {name: value for name, value in answer.items() if name not in {"output", "error"}}
    error = answer.get("error") or (f"Exit code: {code}" if code != 0 else None)
    return ToolResult(success=error is None, output=str(answer.get("output") or ""), error=error, metadata=rest)
