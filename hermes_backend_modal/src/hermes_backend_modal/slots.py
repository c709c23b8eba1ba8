"""Sandboxes of the service that several rollouts share, each with a user and a directory of its own."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from hermes_backend_modal.host import ModalHost
from hermes_core.contracts.errors import SandboxLostError
from hermes_core.sandbox.sharing import SharedPlace
from hermes_core.sandbox.slots import AgentSlot, SlotRequest

_FIRST_UID: Final = 20000


class SharedModal(ModalHost):
    """A sandbox for many slots.

    Attributes:
        release: Called when it has been ended.
        worn_at: Monotonic time from which on it takes nobody new: the service ends it a while later.
        uses: How many slots it may have had before it takes nobody new: what they left in /tmp stays until its end.
    """

    release: Callable[[], Awaitable[None]]
    worn_at: float
    uses: int

    async def destroy(self) -> None:
        """End the sandbox, and then its lease."""
        await super().destroy()
        await self.release()


class ModalSlot(SharedPlace):
    """One rollout's slot of a shared sandbox."""

    def __init__(self, *arguments: Any, provenance: Mapping[str, Any], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.provenance = {**provenance, "uid": "of the slot", "gid": "of the slot"}

    async def serve(self, request: SlotRequest, previous: AgentSlot | None) -> AgentSlot:
        """Open a slot, or end all that runs in the present one; the last one that a sandbox takes closes its door."""
        slot = await super().serve(request, previous)
        seat, shared = self._seat, self._shared()
        if seat is not None and (seat.number >= shared.uses or time.monotonic() >= shared.worn_at):
            seat.spoil()
        return slot

    async def freeze(self) -> None:
        """Give the slot's directory to root, for the slot's user to read and run."""
        uid = self.slot_fields()["uid"]
        await self._shared().lock(self.workspace, (uid, uid))

    def _shared(self) -> SharedModal:
        if self._seat is None:
            raise SandboxLostError("the slot of a sandbox has been given back")
        assert isinstance(self._seat.host, SharedModal)
        return self._seat.host


def slot_of(folder: str, sandbox_id: str, number: int) -> dict[str, Any]:
    """Return what a slot is opened with: a user and a directory that nobody else has in its sandbox."""
    uid = _FIRST_UID + number
    return {"workspace": f"{folder}/{sandbox_id}", "uid": uid, "gid": uid, "umask": 0o077, "own_directory": True}
