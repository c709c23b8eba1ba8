"""What an interactive terminal needs before it can be started: a package here, and a directory in the sandbox."""

from __future__ import annotations

import shlex
from importlib import util

from hermes_core.contracts.errors import ToolFailureError, UnavailableComponentError
from hermes_core.contracts.sandbox import Sandbox
from hermes_core.tooling import scratch_directory


def require_emulation() -> None:
    """Raise `UnavailableComponentError` where the package that emulates terminals is missing."""
    if util.find_spec("pyte") is None:
        raise UnavailableComponentError(
            "a terminal with a screen needs the package pyte, which is not installed",
            hint="pip install 'hermes-tools[screen]'",
        )


async def private_directory(sandbox: Sandbox) -> str:
    """Make a directory that belongs to the rollout's user alone and goes with the sandbox."""
    scratch = shlex.quote(await scratch_directory(sandbox))
    made = await sandbox.exec(
        f"command mkdir -p -- {scratch} && command mktemp -d {scratch}/hermes-terminal.XXXXXXXX", timeout=30
    )
    path = made.stdout.decode("utf-8", "surrogateescape").strip("\n")
    if made.exit_code != 0 or not path.startswith("/"):
        raise ToolFailureError(f"no directory for the terminal could be made in the sandbox: {made.output.strip()}")
    return path
