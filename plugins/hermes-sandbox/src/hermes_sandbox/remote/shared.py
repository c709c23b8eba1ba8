"""One sandbox's share of a link: a slot for its commands, and one for its home."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from hermes_core.contracts.sandbox import SandboxSpec
from hermes_sandbox.backend.hosts.host import MakeHost, SandboxHost
from hermes_sandbox.backend.hosts.shared_hosts import HostPool, SharedHost
from hermes_sandbox.backend.options import ENVIRONMENT
from hermes_sandbox.protocol.slots import AgentSlot, SlotRequest


class SharedSlot(SharedHost):
    """A directory on the machine, and a slot of a shared agent.

    Its home is a directory beside the workspace, with a slot of its own, so that the agent makes and deletes both
    without another process. `locate` is called with the host's provenance before the directories exist;
    `remove` deletes them after the agent was lost.
    """

    def __init__(
        self,
        pool: HostPool,
        make_host: MakeHost,
        *,
        spec: SandboxSpec,
        limit: int,
        root: str,
        provenance: Mapping[str, Any],
        remove: Callable[[], Awaitable[None]],
        locate: Callable[[Mapping[str, Any]], Awaitable[None]] | None = None,
    ) -> None:
        # Limits of file sizes apply to the whole agent, so sandboxes that share one must agree on them.
        key = spec.file_size_mb
        super().__init__(pool, key, make_host, limit=limit, describe=self._fields_of)
        self.workspace = root
        self.provenance = provenance
        self._spec = spec
        self._locate = locate
        self._remove = remove
        self._home: AgentSlot | None = None
        self._lost = False

    def _fields_of(self, _host: SandboxHost, _number: int) -> Mapping[str, Any]:
        home = f"{self.workspace}.home"
        own = {"HOME": home, "TMPDIR": f"{home}/tmp"}  # noqa: S108 - its own
        return {"workspace": self.workspace, "own_directory": True, "env": {**ENVIRONMENT, **own, **self._spec.env}}

    async def admit(self, request: SlotRequest) -> None:
        """Wait for a seat, and call `locate` with where it is."""
        await super().admit(request)
        if self.seat is not None and self._locate is not None:
            await self._locate(self.seat.host.provenance)

    async def serve(self, request: SlotRequest, previous: AgentSlot | None) -> AgentSlot:
        """Open both slots, or end everything in the current one."""
        # `remove` finds it by its name if a killed agent cannot delete it. The name is unknown before the directory
        # exists: other users may write to the parent of the workspaces.
        self.state_dir = f"{self.workspace}.state-{os.urandom(8).hex()}"
        slot = await super().serve(request, previous)
        if previous is None:
            if self.seat is not None:
                self.provenance = {**self.provenance, **self.seat.host.provenance}
            home = f"{self.workspace}.home"
            fields = {**slot.fields, "workspace": home, "cwd": "tmp", "lifetime": None, "processes": 0}
            self._home = await AgentSlot.open(slot.client, fields, exclusive=False, deadline=request.setup_timeout)
        return slot

    async def stop_all(self) -> None:
        """Close the slots, which ends the processes and deletes the directories."""
        home, self._home = self._home, None
        try:
            await super().stop_all()
        finally:
            if home is not None:
                await home.aclose()
            # Also if it was lost before it answered: what it had made by then exists.
            self._lost = self.seat is not None and self.seat.client.lost is not None

    async def destroy(self) -> None:
        """Give the seat back; what a lost agent has left is removed by another link."""
        try:
            await super().destroy()
        finally:
            if self._lost:
                await self._remove()
