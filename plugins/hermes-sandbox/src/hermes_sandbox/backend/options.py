"""The options of all backends that start agents in hosts of their own, and the types of such options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def _numeric_user(value: str) -> str:
    parts = value.split(":")
    if value != "root" and not (len(parts) <= 2 and all(part.isdecimal() for part in parts)):
        raise ValueError(f"user: expected a numeric UID or UID:GID, or root, got {value!r}")
    return "root" if int(parts[0] if value != "root" else 0) == 0 else value


def _absolute(value: str) -> str:
    if not value.startswith("/") or not value.rstrip("/"):
        raise ValueError(f"workspace: expected an absolute path inside, and not / itself, got {value!r}")
    return value


ENVIRONMENT: Final[Mapping[str, str]] = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "SHELL": "/bin/bash",
    # Nothing may wait for input of a person: no prompt, no pager, no editor.
    "TERM": "dumb",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": "true",
    "DEBIAN_FRONTEND": "noninteractive",
    "PIP_NO_INPUT": "1",
}
"""The environment variables of every command, whatever the backend."""
ROOT: Final = ("root", "0", "0:0", "root:root")
"""Names of root as a user."""
PROCESSES: Final = 1024
"""Default limit of processes and threads of a sandbox: `make -j`, a JVM and a
browser have room, and this many shells can be killed in a fraction of a second."""
UNBOUNDED: Final = "none: "
"""Prefix of a sandbox's text about the bound of its processes if there is none; the reason follows."""
Processes = Annotated[int, Field(gt=8)]
Seconds = Annotated[float, Field(gt=0)]
CommandUser = Annotated[str, AfterValidator(_numeric_user)]
"""A numeric uid[:gid], or `root`."""
InsidePath = Annotated[str, AfterValidator(_absolute)]
"""An absolute path inside that is not the root."""


class AgentOptions(BaseModel):
    """Options of every backend that starts an agent in hosts of its own; a backend adds those of its engine."""

    model_config = ConfigDict(extra="forbid")

    python: str = "python3"
    """Python 3.8 or newer inside the image, for the agent."""
    bash: str = "/bin/bash"
    """Bash 4.4 or newer inside the image."""
    setup_timeout: Seconds = 30.0
    """Seconds in which a started agent must answer."""
    patience: Seconds = 20.0
    """Seconds of silence during a request after which an agent counts as lost."""
    concurrent_starts: int = Field(default=16, ge=1)
    """Hosts that may be starting at once."""
    pids: Processes = PROCESSES
    """Limit of processes and threads of a sandbox or slot whose task names none."""


def parse_identity(user: str) -> tuple[int, int]:
    """Return the uid and gid of a `CommandUser`."""
    if user == "root":
        return 0, 0
    uid, _, gid = user.partition(":")
    return int(uid), int(gid or uid)
