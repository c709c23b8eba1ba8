"""The tool `process`: manages the background processes that `terminal` has started."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from hermes_core.contracts.tool import ToolContext, ToolResult
from hermes_tools.command_output import process_limit_note
from hermes_tools.processes.process_actions import RolloutProcesses
from hermes_tools.processes.process_session import ProcessSession
from hermes_tools.results import json_result


class ProcessTool:
    """Polls, waits for, writes to and kills processes. Every answer reports what was observed."""

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Apply `action` to the process `session_id` of this rollout."""
        processes: RolloutProcesses = context.processes
        action, session_id = arguments["action"], arguments.get("session_id")
        if action == "list":
            return json_result(**await processes.list())
        if not session_id:
            return _refusal("error", f"session_id is required for {action}")
        session = processes.find(session_id)
        if session is None:
            return _refusal("not_found", f"No process with ID {session_id}")
        answer = await _act(processes, session, arguments)
        output = answer.get("output") or answer.get("output_preview")
        if output and session.exited and session.exit_code != 0:
            answer |= _note_field(process_limit_note(output, context.sandbox))
        error = answer.get("error") if answer.get("status") == "error" else None
        return ToolResult(content=json_result(**answer).content, error=error)


def _note_field(note: str | None) -> dict[str, Any]:
    return {} if note is None else {"note": note}


def _refusal(status: str, message: str) -> ToolResult:
    return ToolResult(content=json_result(status=status, error=message).content, error=message)


async def _act(processes: RolloutProcesses, session: ProcessSession, arguments: dict[str, Any]) -> dict[str, Any]:
    data = arguments.get("data", "")
    actions: dict[str, Callable[[], Awaitable[dict[str, Any]]]] = {
        "poll": lambda: processes.poll(session),
        "log": lambda: processes.log(session, **_pick(arguments, "offset", "limit", "from_start")),
        "wait": lambda: processes.wait(session, **_pick(arguments, "timeout")),
        "kill": lambda: processes.kill(session),
        "write": lambda: processes.write(session, data),
        "submit": lambda: processes.submit(session, data),
        "close": lambda: processes.close(session),
    }
    return await actions[arguments["action"]]()


def _pick(arguments: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: arguments[name] for name in names if name in arguments}
