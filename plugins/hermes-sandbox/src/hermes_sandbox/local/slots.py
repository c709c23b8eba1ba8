"""Sandboxes of isolation `none` that share an agent, each with directories of its own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from hermes_core.cancellation import run_uncancelled
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_sandbox.backend.hosts.host import MakeHost, SandboxHost
from hermes_sandbox.backend.hosts.shared_hosts import HostPool, SharedHost
from hermes_sandbox.backend.options import ENVIRONMENT
from hermes_sandbox.local.cgroups import Group
from hermes_sandbox.local.files import delete_tree, restore_directories
from hermes_sandbox.local.hosts import LocalPlainHost
from hermes_sandbox.local.kill import kill_processes
from hermes_sandbox.protocol.slots import AgentSlot, SlotRequest


class SharedAgent(LocalPlainHost):
    """An agent for many slots; `release` is called after its end."""

    release: Callable[[], Awaitable[None]]

    async def destroy(self) -> None:
        """Delete its directory, and then its lease."""
        await super().destroy()
        await self.release()


class LocalSlot(SharedHost):
    """One sandbox's slot of a shared agent; the backend makes and deletes its directories.

    `make` makes the directories once there is a seat: waiting for one costs nothing. `group` is the control
    group that the agent makes for its processes; None if none can be made.
    """

    def __init__(
        self,
        pool: HostPool,
        make_host: MakeHost,
        *,
        spec: SandboxSpec,
        limit: int,
        root: Path,
        sandbox_id: str,
        make: Callable[[], Coroutine[Any, Any, object]],
        group: Group | None,
    ) -> None:
        # Limits of file sizes apply to the whole agent, so sandboxes that share one must agree on them.
        super().__init__(pool, spec.file_size_mb, make_host, limit=limit, describe=self._fields_of)
        self.workspace = str(root / "workspace")
        self._spec = spec
        self._root = root
        self._id = sandbox_id
        self._make = make
        self._group = group

    def _fields_of(self, host: SandboxHost, _number: int) -> Mapping[str, Any]:
        own = {"HOME": str(self._root / "home"), "TMPDIR": str(self._root / "tmp")}
        variables = {**ENVIRONMENT, **host.environment, **own, **self._spec.env}
        return {"workspace": self.workspace, "env": variables, "may_group": self._group is not None}

    async def admit(self, request: SlotRequest) -> None:
        """Wait for a seat, then make the directories."""
        await super().admit(request)
        await run_uncancelled(self._make())

    async def serve(self, request: SlotRequest, previous: AgentSlot | None) -> AgentSlot:
        """Open the slot, or end everything in the current one and repair its directories."""
        if previous is not None:
            await asyncio.to_thread(restore_directories, self._root)
        # Deleted with the other directories if a killed agent cannot; a new one for every session: files that a
        # command put into the old one cannot pass for saved state.
        self.state_dir = str(self._root / f"state-{os.urandom(8).hex()}")
        return await super().serve(request, previous)

    async def destroy(self) -> None:
        """Give the seat back, kill what a killed agent left running, and delete the directories."""
        lost = self.seat is not None and self.seat.client.lost is not None
        try:
            await super().destroy()
        finally:
            if lost:
                if self._group is not None:
                    await self._group.remove()
                await kill_processes(self._id, self._root, shared=True)
            await delete_tree(self._root)
