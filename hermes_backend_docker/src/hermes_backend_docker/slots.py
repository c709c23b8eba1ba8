"""Containers that several sandboxes share, each with a user and a directory of its own."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from hermes_backend_docker.host import ContainerHost
from hermes_core.contracts.errors import SandboxLostError
from hermes_core.sandbox.sharing import SharedPlace
from hermes_core.sandbox.slots import AgentSlot, SlotRequest

_FEW_UIDS: Final = 20000
_FIRST_UID: Final = 1 << 20
_UIDS: Final = 1 << 15
"""Users of one container."""
_CONTAINERS: Final = 65000
"""How many containers there can be until the numbers begin anew."""


class SharedContainer(ContainerHost):
    """A container for many slots.

    Attributes:
        release: Called when the container has been removed.
        worn_at: Monotonic time from which on it takes nobody new.
        uses: How many slots it may have had before it takes nobody new: what they left in /tmp stays until its end.
        first_uid: One less than the user of its first slot.
    """

    release: Callable[[], Awaitable[None]]
    worn_at: float
    uses: int
    first_uid: int

    async def destroy(self) -> None:
        """Remove the container, and then its lease."""
        await super().destroy()
        await self.release()


class ContainerSlot(SharedPlace):
    """One sandbox's slot of a shared container."""

    def __init__(self, *arguments: Any, provenance: Mapping[str, Any], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.provenance = {**provenance, "uid": "of the slot", "gid": "of the slot"}

    async def serve(self, request: SlotRequest, previous: AgentSlot | None) -> AgentSlot:
        """Open a slot, or end all that runs in the present one; the last one that a container takes closes its door."""
        slot = await super().serve(request, previous)
        seat, container = self._seat, self._container()
        if seat is not None and (seat.number >= container.uses or time.monotonic() >= container.worn_at):
            seat.spoil()
        return slot

    async def freeze(self) -> None:
        """Give the slot's directory to root, for the slot's user to read and run."""
        uid = self.slot_fields()["uid"]
        await self._container().lock(self.workspace, (uid, uid))

    def _container(self) -> SharedContainer:
        if self._seat is None:
            raise SandboxLostError("the slot of a container has been given back")
        assert isinstance(self._seat.host, SharedContainer)
        return self._seat.host


def first_uid(container_id: str, *, few: bool) -> int:
    """Return one less than the first user of a container's slots.

    The kernel counts the processes of a user over all containers, so each container has users of its own, but for the
    `few` of an engine whose containers see only 65,536.
    """
    return _FEW_UIDS if few else _FIRST_UID + int(container_id, 16) % _CONTAINERS * _UIDS


def slot_of(folder: str, sandbox_id: str, uid: int, processes: int | None) -> dict[str, Any]:
    """Return what a slot is opened with: a user and a directory that nobody else has in its container."""
    fields = {"workspace": f"{folder}/{sandbox_id}", "uid": uid, "gid": uid, "umask": 0o077, "own_directory": True}
    return {**fields, "processes": processes}
