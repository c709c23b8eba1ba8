"""Time limits that a busy machine may not turn into a verdict: what has to have been done by then is looked at."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hermes_core.contracts.errors import SandboxLostError
from hermes_core.contracts.sandbox import ExecResult, Sandbox
from hermes_testing.watching import TooSoon, exists, with_more_time


async def runs_out_of_time(sandbox: Sandbox, command: str) -> ExecResult:
    """Run a command until a time limit ends it that has let it come to its `touch $BEGUN`.

    Where it does not say that, the file is made first. The command runs in the session's own directory.
    """
    named = command if "touch $BEGUN" in command else f"touch $BEGUN; {command}"
    text = named.replace("$BEGUN", shlex.quote(f"{sandbox.workspace}/begun"))

    async def attempt(limit: float) -> ExecResult:
        if await exists(sandbox, "begun"):
            await sandbox.remove("begun")
        result = await sandbox.exec(text, timeout=limit)
        TooSoon.unless(await exists(sandbox, "begun"), f"the command had not come to its file: {command}")
        return result

    return await with_more_time(attempt)


@contextmanager
def may_have_been_idle(lifetime: float, begun: Path | None = None) -> Iterator[None]:
    """Say `TooSoon` where a sandbox was lost because a busy machine let its lifetime pass before it was first used.

    That is measured: so much time has really passed since this was entered, which is before the sandbox is opened, and
    `begun`, a file that is made by what is asked first, is not there. Any other loss is a verdict.
    """
    entered = time.monotonic()
    try:
        yield
    except SandboxLostError:
        in_use = begun is not None and begun.exists()
        TooSoon.unless(in_use or time.monotonic() - entered < lifetime, "nothing had been asked of the sandbox")
        raise
