"""Places for many slots with users of their own, which are replaced before too much is left in them."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from hermes_core.contracts.errors import SandboxLostError, SandboxRefusedError
from hermes_sandbox.backend.hosts.host import SandboxHost
from hermes_sandbox.backend.hosts.shared_hosts import SharedHost
from hermes_sandbox.protocol.slots import AgentSlot, SlotRequest

_SHARED: Final = {
    "private_tmp": "slots of one place share /tmp, /dev/shm and System V IPC; a name is taken until its slot closes"
}


async def _nothing() -> None:
    return None


class RecycledHost(SandboxHost):
    """A place for many slots; a class before another host in its bases.

    Attributes:
        release: Called when the place has been removed, to strike its lease out.
        retire_at: Monotonic time from which on it takes nobody new.
        uses: How many slots it may have had before it takes nobody new: what they wrote into files of others, which no
            sweep finds, stays until its end.
        first_uid: One less than the user of its first slot.
    """

    release: Callable[[], Awaitable[None]] = staticmethod(_nothing)
    retire_at: float = math.inf
    uses: float = math.inf
    first_uid: int

    def accepts_more(self, number: int) -> bool:
        """Tell whether slots may come after the n-th."""
        return number < self.uses and time.monotonic() < self.retire_at

    async def destroy(self) -> None:
        """Remove the place, and then its lease."""
        await self.stop_all()
        await self.release()


class UserSlot(SharedHost):
    """One sandbox's slot of a `RecycledHost`; `provenance` is what is recorded."""

    def __init__(self, *arguments: Any, provenance: Mapping[str, Any], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.provenance = dict(provenance)

    @property
    def lacks(self) -> Mapping[str, str]:
        """Return what it shares with the slots beside it; one that is alone at a time finds it swept."""
        return {} if self.offer.limit == 1 else _SHARED

    @property
    def place(self) -> RecycledHost:
        """Where it is.

        Raises:
            SandboxLostError: It has been given back.
        """
        if self.seat is None:
            raise SandboxLostError("the slot has been given back")
        assert isinstance(self.seat.host, RecycledHost)
        return self.seat.host

    async def serve(self, request: SlotRequest, previous: AgentSlot | None) -> AgentSlot:
        """Open a slot, or end all that runs in the present one; the last one that a place takes closes its door."""
        slot = await super().serve(request, previous)
        seat = self.seat
        if seat is not None and not self.place.accepts_more(seat.number):
            seat.spoil()
        return slot

    async def freeze(self) -> None:
        """Give the slot's directory to root, for the slot's user to read and run.

        Raises:
            SandboxRefusedError: Commands have no user of their own here.
        """
        uid = self.slot_fields().get("uid")
        if uid is None:
            raise SandboxRefusedError(
                "slots whose commands have no user of their own cannot make a workspace read-only",
                hint="verify in a fresh sandbox instead",
            )
        await self.place.lock(self.workspace, (uid, uid))
