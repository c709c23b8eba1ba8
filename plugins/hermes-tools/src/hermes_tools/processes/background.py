"""Starts a command for `terminal` with `background`, and answers at once."""

from __future__ import annotations

from typing import Any, Final

from hermes_core.contracts.errors import ProcessLimitError, UnavailableComponentError
from hermes_core.contracts.tool import ToolContext, ToolResult
from hermes_tools.command_output import process_limit_note
from hermes_tools.processes.process_actions import RolloutProcesses
from hermes_tools.results import json_result

BACKGROUND_ONLY: Final = ("pty", "check_interval", "notify_on_complete", "watch_patterns")
"""Arguments of `terminal` that have no meaning without `background`."""


async def start_in_background(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
    """Start `command` and return its `session_id`. An `exit_code` of 0 means that it has started."""
    processes: RolloutProcesses = context.processes
    wished = arguments.get("check_interval")
    try:
        session = await processes.start(
            arguments["command"],
            cwd=arguments.get("workdir"),
            pty=bool(arguments.get("pty")),
            check_interval=wished,
            notify_on_complete=bool(arguments.get("notify_on_complete")),
            watch_patterns=tuple(arguments.get("watch_patterns", ())),
        )
    except (ProcessLimitError, UnavailableComponentError) as error:
        return _not_started(str(error), process_limit_note(str(error), context.sandbox))
    except OSError as error:
        workdir = arguments.get("workdir")
        where = f"workdir {workdir!r} cannot be entered" if workdir is not None else "the process cannot be started"
        return _not_started(f"{where}: {error.strerror or error}")
    except ValueError as error:
        return _not_started(str(error))
    fields: dict[str, Any] = {
        "output": "Background process started",
        "session_id": session.id,
        "pid": session.pid,
        "exit_code": 0,
        "error": None,
    }
    if arguments.get("timeout") is not None:
        fields["timeout_note"] = "timeout does not end a background process; use the tool process with wait or kill."
    if wished is not None and session.check_interval is not None and session.check_interval > wished:
        fields["check_interval_note"] = f"Raised from {wished} to the minimum of {session.check_interval:g} seconds."
    return json_result(**fields)


def _not_started(message: str, note: str | None = None) -> ToolResult:
    text = f"{message}. Nothing was started." if not message.endswith(".") else f"{message} Nothing was started."
    if note is not None:
        text = f"{text} {note}"
    return ToolResult(content=json_result(output="", exit_code=-1, error=text).content, error=text)
