"""The tool `terminal_stateful`: runs a command in the rollout's interactive terminal."""

from __future__ import annotations

from typing import Any, Final

from hermes_core.contracts.errors import ToolFailureError
from hermes_core.contracts.tool import ToolContext, ToolResult
from hermes_tools.command_output import process_limit_note
from hermes_tools.interactive.session.prompt_command import CommandEnd
from hermes_tools.interactive.session.rollout_terminal import hold, present_terminal, start_terminal, stop_terminal
from hermes_tools.results import json_result

DEFAULT_TIMEOUT: Final = 120


class TerminalStatefulTool:
    """Runs commands at the prompt of an interactive shell. No failure makes it run a command twice."""

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run `command` and return `output`, `exit_code` and `error`."""
        command, timeout = arguments["command"], arguments.get("timeout", DEFAULT_TIMEOUT)
        if "\0" in command:
            return _refusal("A command cannot contain a NUL character. Nothing was run.")
        try:
            end = await _run(context, command, timeout)
        except ToolFailureError as error:
            return _refusal(error.message)
        note = process_limit_note(end.output, context.sandbox) if end.exit_code != 0 or end.timed_out else None
        return _result_of(end, timeout, note)


async def _run(context: ToolContext, command: str, timeout: float) -> CommandEnd:
    session = present_terminal(context)
    if session is None:
        session = await start_terminal(context)
    async with hold(context, session):
        if not await session.has_ended():
            return await session.run(command, timeout=timeout)
    await stop_terminal(context)
    session = await start_terminal(context)
    async with hold(context, session):
        return await session.run(command, timeout=timeout)


def _result_of(end: CommandEnd, timeout: float, note: str | None) -> ToolResult:
    error = None
    notes = [] if note is None else [note]
    match end.state:
        case "running":
            error = (
                f"The command still runs after {timeout} seconds and C-c. Its exit code is not known yet. "
                "Use tmux to look at it (capture) or to send it keys (send_keys)."
            )
        case "shell_ended":
            notes.append("The shell has ended with this exit code; the next call starts a new one.")
        case _ if end.exit_code is None:
            error = "The command has ended, but its exit code is lost: the terminal's status file was deleted."
        case _ if end.timed_out:
            error = f"Command timed out after {timeout} seconds and was ended with C-c"
    more = {"note": " ".join(notes)} if notes else {}
    return json_result(output=end.output, exit_code=end.exit_code, error=error, **more)


def _refusal(message: str) -> ToolResult:
    return ToolResult(content=json_result(output="", exit_code=None, error=message).content, error=message)
