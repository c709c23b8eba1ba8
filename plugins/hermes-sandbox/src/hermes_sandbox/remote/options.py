"""The options of all backends on other machines."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from hermes_sandbox.backend.options import PROCESSES, Processes

RemotePath = Annotated[str, StringConstraints(pattern=r"^/[^\x00\n]*$")]


class MachineOptions(BaseModel):
    """Options of every backend on other machines; a backend adds those of its connection."""

    model_config = ConfigDict(extra="forbid")

    slots_per_agent: int = Field(default=64, ge=1, le=4096)
    """Sandboxes of isolation `none` that share an agent and the link to it; if that is lost, all of them are.
    1 gives each sandbox its own, as isolation `bwrap` always does."""
    root_dir: RemotePath = "/tmp"  # noqa: S108 - on the other machine; each sandbox makes a private directory in it
    """Directory of the machine in which the sandboxes' directories are made."""
    python: str | None = None
    """Python 3.8 or newer of the machine; searched for if not given."""
    bash: str = "/bin/bash"
    """Bash 4.4 or newer of the machine."""
    setup_timeout: float = Field(default=60.0, gt=0)
    """Seconds until a started agent must have answered, and for each preparation on the machine."""
    patience: float = Field(default=30.0, gt=0)
    """Seconds of silence after which an agent that was asked something counts as lost."""
    pids: Processes = PROCESSES
    """Processes and threads of a sandbox where its task names no number."""
