"""`exec_tool` of an `AgentEnv`: run the tool calls of its hooks in a rollout.

A hook's reads and writes go to the sandbox unchanged, while the model's calls go through its tools, with line numbers,
limits and a record.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from hermes_core.contracts.errors import HermesError
from hermes_core.rollout import RolloutContext
from hermes_tools.agent_tools import (
    ToolCall,
    ToolResult,
    clamp_timeout,
    command_result,
    parse_result,
    result_for,
    without_policy,
)

ExecTool = Callable[[ToolCall], Awaitable[ToolResult]]
"""Runs one call in a rollout's sandbox; hooks get it as `exec_tool`."""
_ALIASES: Final = {"bash": "terminal", "bash_stateful": "terminal", "terminal_stateful": "terminal"}
_NEEDED: Final = {"terminal": ("command",), "read_file": ("path",), "write_file": ("path", "content")}
_DEFAULT_TIMEOUT: Final = 120.0


class HookToolExecutor:
    """Runs a hook's calls in one rollout. Failures are in the result; a lost sandbox is raised."""

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
        return result_for(call, await self._call_tool(name, arguments, timeout_s))

    async def _call_tool(self, name: str, arguments: dict[str, Any], timeout_s: float | None) -> ToolResult:
        try:
            if name == "terminal":
                return await self._terminal(arguments, timeout_s)
            if name in {"read_file", "write_file"}:
                return await self._file(name, arguments)
            return parse_result(await self._context.call_tool(name, arguments))
        except HermesError as error:
            if not error.fatal:
                raise
            return ToolResult(success=False, error=error.message)  # for example, a tool that is not installed
        except Exception as error:  # noqa: BLE001 - the plugin boundary: a tool's failure is the hook's to judge
            return ToolResult(success=False, error=f"{type(error).__name__}: {error}")

    async def _terminal(self, arguments: Mapping[str, Any], timeout_s: float | None) -> ToolResult:
        if arguments.get("background"):
            return ToolResult(success=False, error="terminal background execution is not supported in sandbox")
        timeout = clamp_timeout(timeout_s if timeout_s is not None else arguments.get("timeout"))
        answer = await self._context.terminal(arguments["command"], timeout=timeout or _DEFAULT_TIMEOUT)
        return command_result(answer)

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
