"""The process limit of a stand-in sandbox: root processes in it would otherwise have none."""

from __future__ import annotations

import asyncio
import contextlib
import resource
from pathlib import Path

from hermes_sandbox.agent.process_bound import count_processes
from hermes_sandbox.local import ControlGroups, Group

ROOM = 1200
"""Processes and threads, with those of bubblewrap and of the agent: more than one slot may have."""
_GROUPS = ControlGroups()
# A sandbox that does not get into its group is not started.
_ENTER = 'echo $$ >"$0/cgroup.procs" && exec "$@"'


def prepare() -> None:
    """Find out where control groups can be made; where nowhere, bound all that this process starts, unless it is root.

    The kernel counts all programs of a user together, so ROOM is added to what there is now.
    """
    if _GROUPS.place("pids") is None and (now := count_processes()):
        with contextlib.suppress(ValueError):  # the user is held to a lower number already
            resource.setrlimit(resource.RLIMIT_NPROC, (now + ROOM, now + ROOM))


def directories_of(sandbox_id: str) -> list[Path]:
    """Return the one directory of a sandbox's control group, or none where no group can be made."""
    return _GROUPS.paths(f"standin-{sandbox_id}", ["pids"])


class Bound:
    """The control group of one sandbox; `prefix` is what starts a program in it."""

    def __init__(self, sandbox_id: str) -> None:
        directories = directories_of(sandbox_id)
        self._group = Group(directories)
        self._group.create({directory: {"pids.max": str(ROOM)} for directory in directories})
        self.prefix = ["sh", "-c", _ENTER, *map(str, directories)] if directories else []

    def remove(self) -> asyncio.Task[None]:
        """Begin to kill what is left in it and to remove it, which may take a moment."""
        return asyncio.create_task(self._group.remove())
