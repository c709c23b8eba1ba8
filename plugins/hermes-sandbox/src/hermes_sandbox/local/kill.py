"""Finding and killing the processes of a sandbox of this machine, from outside."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

from hermes_core.contracts.errors import BackendError
from hermes_sandbox.agent.processes import (
    Patience,
    belongs_to,
    look_into,
    read_table,
    stop_and_kill,
    with_descendants,
)
from hermes_sandbox.protocol.fd_limits import suppress_exhausted

_KILLING = 2.0
"""Seconds without progress after which processes count as unkillable."""


async def kill_processes(sandbox_id: str, root: Path, *, known: int | None = None, shared: bool = False) -> None:
    """Kill processes that carry a sandbox's mark or, without any mark, work in its directory, and their descendants.

    For a backend on this machine, after an agent was killed. However fast they fork, they are stopped first,
    until no new one is found, and then killed. An agent that hides its environment is known by its name, which is the
    first 15 characters of the sandbox's id: no other sandbox's may begin with them.

    `known` is a child of ours: a process that was just started shows no environment yet. With `shared`, for a sandbox
    of a shared agent, processes that work in its directory are found, since they carry the agent's mark.

    Raises:
        BackendError: Something cannot be killed.
    """
    patience = Patience(_KILLING)
    clean = 0
    while True:
        # A round that could not read /proc, for lack of descriptors, counts as without progress.
        left = 1 << 30
        with suppress_exhausted():
            left = len(await asyncio.to_thread(stop_and_kill, lambda: _members(sandbox_id, root, known, shared)))
        # Twice: a process born while /proc was read is not in the list, nor is its parent, if that died meanwhile.
        clean = 0 if left else clean + 1
        if clean == 2:
            return
        if patience.is_over(left):
            raise BackendError(f"processes of sandbox {sandbox_id} cannot be killed")
        await asyncio.sleep(0.02)


def _members(sandbox_id: str, root: Path, known: int | None, shared: bool) -> set[int]:  # noqa: FBT001 - for a thread
    table = read_table()
    mine = {pid for pid in table if pid == known or _belongs(pid, sandbox_id, root, shared=shared)}
    # Never the caller, even if it works inside the sandbox's directory.
    return with_descendants(table, mine) - {os.getpid(), os.getppid()}


def _belongs(pid: int, sandbox_id: str, root: Path, *, shared: bool) -> bool:
    carries_it = None if shared else belongs_to(pid, sandbox_id)
    if carries_it is not None:
        return carries_it
    for folder in look_into(pid):
        with contextlib.suppress(OSError):
            place = Path(folder, "cwd").readlink()
            return place == root or root in place.parents
    return False
