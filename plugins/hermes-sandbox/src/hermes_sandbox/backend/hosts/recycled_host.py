"""Shared hosts that run many slots, one uid each, and are retired after a number of uses or an age."""

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
    "private_tmp": "slots of one host share /tmp, /dev/shm and System V IPC; a name is taken until its slot closes"
}


async def _nothing() -> None:
    return None


class RecycledHost(SandboxHost):
    """Mixin for a shared host. List it before the concrete host class.

    Attributes:
        release: Called after the host is removed, to remove its lease.
        retire_at: Monotonic time from which on it takes no new slots.
        uses: Slots after which it takes no new ones: what they wrote into files of other users, which no
            sweep finds, stays until the host ends.
        first_uid: One less than the user of its first slot.
    """

    release: Callable[[], Awaitable[None]] = staticmethod(_nothing)
    retire_at: float = math.inf
    uses: float = math.inf
    first_uid: int

    def accepts_more(self, number: int) -> bool:
        """Tell whether the host takes more slots after this one, counted from 1."""
        return number < self.uses and time.monotonic() < self.retire_at

    async def destroy(self) -> None:
        """Remove the host, and then its lease."""
        await self.stop_all()
        await self.release()


class UserSlot(SharedHost):
    """One sandbox's slot of a `RecycledHost`; `provenance` is its record."""

    def __init__(self, *arguments: Any, provenance: Mapping[str, Any], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.provenance = dict(provenance)

    @property
    def lacks(self) -> Mapping[str, str]:
        """Return what it shares with the slots beside it; a slot that is alone at a time finds it swept."""
        return {} if self.offer.limit == 1 else _SHARED

    @property
    def host(self) -> RecycledHost:
        """Its host.

        Raises:
            SandboxLostError: The slot was given back.
        """
        if self.seat is None:
            raise SandboxLostError("the slot was given back")
        assert isinstance(self.seat.host, RecycledHost)
        return self.seat.host

    async def serve(self, request: SlotRequest, previous: AgentSlot | None) -> AgentSlot:
        """Open a slot, or end everything in the current one; after its last slot the host takes no new ones."""
        slot = await super().serve(request, previous)
        seat = self.seat
        if seat is not None and not self.host.accepts_more(seat.number):
            seat.retire_host()
        return slot

    async def freeze(self) -> None:
        """Give the slot's directory to root, readable and executable for the slot's user.

        Raises:
            SandboxRefusedError: Commands do not have their own user here.
        """
        uid = self.slot_fields().get("uid")
        if uid is None:
            raise SandboxRefusedError(
                "slots whose commands do not have their own user cannot make a workspace read-only",
                hint="verify in a fresh sandbox instead",
            )
        await self.host.lock(self.workspace, (uid, uid))
