"""Many sandboxes in one host: slots, which a slot pool or the backend `pool` can give out."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from acme_hermes.niced_host import NicedHost
from hermes_sandbox.backends import HostPool, MakeHost, RecycledHost, SharedHost, SlotRequest
from hermes_sandbox.local import kill_processes


class SharedNicedHost(RecycledHost, NicedHost):
    """One agent for many slots."""

    async def destroy(self) -> None:
        """Remove the directory, and then the lease."""
        await NicedHost.destroy(self)
        await super().destroy()


class NicedSlot(SharedHost):
    """A directory, and a slot of a shared agent; nothing is there before a slot was free."""

    def __init__(self, pool: HostPool, make_host: MakeHost, *, limit: int, root: Path, sandbox_id: str) -> None:
        workspace = str(root / "workspace")
        super().__init__(pool, "niced", make_host, limit=limit, describe=lambda _host, _n: {"workspace": workspace})
        self.workspace = workspace
        self.state_dir = str(root / "state")
        self._root = root
        self._id = sandbox_id

    async def admit(self, request: SlotRequest) -> None:
        """Wait for a slot, then make the directory."""
        await super().admit(request)
        await asyncio.to_thread(Path(self.workspace).mkdir, mode=0o700, parents=True)

    async def destroy(self) -> None:
        """Give the slot back and remove the directory, with what a killed agent has left running there."""
        is_lost = self.seat is not None and self.seat.client.lost is not None
        await super().destroy()
        if is_lost:
            await kill_processes(self._id, self._root, shared=True)
        await asyncio.to_thread(shutil.rmtree, self._root, ignore_errors=True)
