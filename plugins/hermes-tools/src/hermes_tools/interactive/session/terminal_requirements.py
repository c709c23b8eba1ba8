"""Requirements of an interactive terminal: a package in this process, and a directory in the sandbox."""

from __future__ import annotations

import shlex
from importlib import util

from hermes_core.contracts.errors import ToolFailureError, UnavailableComponentError
from hermes_core.contracts.sandbox import Sandbox
from hermes_core.tooling import scratch_directory


def require_emulation() -> None:
    """Raise `UnavailableComponentError` if the package that emulates terminals is missing."""
    if util.find_spec("pyte") is None:
        raise UnavailableComponentError(
            "a terminal with a screen needs the package pyte, which is not installed",
            hint="pip install 'hermes-tools[screen]'",
        )


async def private_directory(sandbox: Sandbox) -> str:
    """Create a directory that only the rollout's user can access, and that is removed with the sandbox."""
    scratch = shlex.quote(await scratch_directory(sandbox))
    made = await sandbox.exec(
        f"command mkdir -p -- {scratch} && command mktemp -d {scratch}/hermes-terminal.XXXXXXXX", timeout=30
    )
    path = made.stdout.decode("utf-8", "surrogateescape").strip("\n")
    if made.exit_code != 0 or not path.startswith("/"):
        raise ToolFailureError(f"The terminal cannot create a directory in the sandbox: {made.output.strip()}")
    return path
