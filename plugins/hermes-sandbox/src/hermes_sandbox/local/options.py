"""Options of backend `local`."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from hermes_sandbox.backend.options import ENVIRONMENT, PROCESSES, Processes

_NOBODY: Final = 65534


class LocalOptions(BaseModel):
    """Options of backend `local`."""

    model_config = ConfigDict(extra="forbid")

    root_dir: Path | None = None
    """Where the sandboxes' directories are made; the system's temporary directory if not given."""
    python: str | None = None
    """Python 3.8 or newer for the agent; the caller's own without isolation, the system's inside bubblewrap."""
    bash: str = "/bin/bash"
    path: str = ENVIRONMENT["PATH"]
    """PATH of the commands."""
    setup_timeout: float = 30.0
    patience: float = 20.0
    """Seconds of silence after which an agent counts as lost."""
    uid: int = _NOBODY
    """User inside bubblewrap when the caller is root; 0 to stay root (of an unprivileged namespace)."""
    cgroup: Path | None = None
    """Control group (version 2) below which the sandboxes' groups are made; found by trying if not given."""
    slots_per_agent: int = Field(default=1, ge=1)
    """Sandboxes of isolation `none` that share an agent, each with directories of its own; 1 shares none."""
    pids: Processes = PROCESSES
    """Processes and threads of a sandbox where its task names no number."""
    memory_limit: Literal["per_sandbox", "per_process"] = "per_sandbox"
    """`per_process` accepts, if no control group can be used, that `memory_mb` applies to each process separately."""
