"""The tool `terminal`: runs a bash command in the rollout's session, or in the background."""

from __future__ import annotations

import re
import shlex
from typing import Any, Final

from hermes_core.contracts.sandbox import ExecResult
from hermes_core.contracts.tool import FOREGROUND_MAX_TIMEOUT, ToolContext, ToolResult
from hermes_tools.command_output import process_limit_note, shorten_output
from hermes_tools.processes.background import BACKGROUND_ONLY, start_in_background
from hermes_tools.results import json_result

_NO_MATCH: Final = "no lines matched (not an error)"
_FALSE: Final = "the condition is false (not an error)"
_DIFFERENT: Final = "the inputs differ (not an error)"
_MEANINGS_OF_ONE: Final = {
    "grep": _NO_MATCH, "egrep": _NO_MATCH, "fgrep": _NO_MATCH, "rg": _NO_MATCH, "ag": _NO_MATCH,
    "diff": _DIFFERENT, "cmp": _DIFFERENT, "test": _FALSE, "[": _FALSE, "[[": _FALSE,
    "find": "some directories could not be read", "pgrep": "no process matched (not an error)",
    "which": "not found on PATH (not an error)", "expr": "the result is empty or zero (not an error)",
}  # fmt: skip
_LONGEST_LOOKED_AT: Final = 4096
_MEANINGS: Final = {
    126: "found, but it could not be executed",
    127: "command not found",
    137: "killed by SIGKILL, possibly for lack of memory",
    139: "killed by SIGSEGV, a crash of the program",
}


class TerminalTool:
    """Runs commands. No failure makes it run a command twice."""

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run `command` and return `output`, `exit_code` and `error`."""
        if arguments.get("background"):
            return await start_in_background(arguments, context)
        if ignored := [name for name in BACKGROUND_ONLY if arguments.get(name)]:
            return _refusal(f"{ignored[0]} only works together with background. Nothing was run.")
        command, timeout, workdir = arguments["command"], arguments.get("timeout"), arguments.get("workdir")
        if timeout is not None and timeout > FOREGROUND_MAX_TIMEOUT:
            return _refusal(
                f"timeout {timeout} is above the maximum of {FOREGROUND_MAX_TIMEOUT} seconds for a command in the "
                "foreground. Nothing was run. Use a smaller timeout, or start long work with background "
                "and check on it with the tool process."
            )
        if "\0" in command or "\0" in (workdir or ""):
            return _refusal("A command cannot contain a NUL character. Nothing was run.")
        result = await context.sandbox.exec(command, timeout=timeout, cwd=workdir, merge_stderr=True)
        error = await _error(result, timeout, workdir, context)
        fields: dict[str, Any] = {
            "output": shorten_output(result),
            "exit_code": 124 if result.timed_out else result.exit_code,
            "error": error,
        }
        if error is None and (meaning := exit_code_meaning(command, result.exit_code)):
            fields["exit_code_meaning"] = meaning
        if fields["exit_code"] != 0 and (note := process_limit_note(result.output, context.sandbox)):
            fields["note"] = note
        return json_result(**fields)


def _refusal(message: str) -> ToolResult:
    return ToolResult(content=json_result(output="", exit_code=-1, error=message).content, error=message)


async def _error(result: ExecResult, timeout: float | None, workdir: str | None, context: ToolContext) -> str | None:
    if result.timed_out:
        seconds = result.seconds if timeout is None else timeout
        return f"Command timed out after {seconds:.0f} seconds"
    if workdir is None or result.exit_code != 126:
        return None
    # A program can also exit with 126; this reports only a workdir that cannot be entered.
    try:
        entry = await context.sandbox.stat(workdir)
    except OSError as error:
        return f"workdir {workdir!r} cannot be entered: {error.strerror or error}. Nothing was run."
    return None if entry.kind == "directory" else f"workdir {workdir!r} is not a directory. Nothing was run."


def exit_code_meaning(command: str, exit_code: int) -> str | None:
    """Return what a non-zero exit code means, if it is certain which program of the command it came from."""
    if exit_code == 1:
        program = _only_program(command)
        return _MEANINGS_OF_ONE.get(program.rpartition("/")[2]) if program else None
    return _MEANINGS.get(exit_code)


def _only_program(command: str) -> str | None:
    """Return the program that caused a command's exit code of 1, or None if the shell's options could change it.

    With `pipefail` the code can come from any program of a pipeline, and with `set -e` from any command. Only the last
    command after `||` is certain.
    """
    if "\n" in command.strip() or len(command) > _LONGEST_LOOKED_AT:
        return None
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.commenters = ""
    try:
        tokens = list(lexer)
    except ValueError:
        return None
    last: list[str] = []
    for word in tokens:
        if word == "||":
            last = []
        elif word and set(word) <= set("();|&"):
            return None
        else:
            last.append(word)
    words = [one for one in last if not re.match(r"[A-Za-z_]\w*=", one)]
    return words[0] if words else None
