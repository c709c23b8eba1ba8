"""Containers that several sandboxes share, each with a user and a directory of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from hermes_backend_docker.host import ContainerHost
from hermes_core.contracts.errors import BackendError
from hermes_core.sandbox import AgentStream, SandboxHost
from hermes_core.sandbox.client import AgentClient
from hermes_core.sandbox.slots import AgentSlot, SlotRequest

FIRST_UID: Final = 20000
_USES: Final = 16
"""How many times over a container is filled before it is replaced, with what was left in its shared directories."""


@dataclass(frozen=True, slots=True)
class Shared:
    """A container that runs, and its agent. `close` removes it."""

    host: ContainerHost
    client: AgentClient
    close: Callable[[], Awaitable[None]]


class _Entry:
    def __init__(self, start: asyncio.Task[Shared], slots: int, ttl: float) -> None:
        self.start = start
        self._old = time.monotonic() + ttl
        self.seats = 0
        self.used = 0
        self._slots = slots

    @property
    def worn(self) -> bool:
        """Whether nobody new may come in."""
        if self.start.done() and (self.start.cancelled() or self.start.exception() or self.start.result().client.lost):
            return True
        return self.used >= self._slots * _USES or time.monotonic() >= self._old

    @property
    def is_open(self) -> bool:
        return not self.worn and self.seats < self._slots


@dataclass(frozen=True, slots=True)
class Seat:
    """A place in a shared container; its number is never given to another one of the same container."""

    shared: Shared
    number: int
    leave: Callable[[], Awaitable[None]]


class Pool:
    """Shared containers by what they have in common. One that is empty is kept for the next, if it is the only one.

    Args:
        slots: Sandboxes in one container at a time.
        ttl: Seconds after which a container takes nobody new.
    """

    def __init__(self, slots: int, *, ttl: float) -> None:
        self._slots = slots
        self._ttl = ttl
        self._entries: dict[Hashable, list[_Entry]] = {}

    async def take(self, key: Hashable, start: Callable[[], Awaitable[Shared]]) -> Seat:
        """Return a seat in a container of this kind, started if all that run are full."""
        entries = self._entries.setdefault(key, [])
        entry = next((entry for entry in entries if entry.is_open), None)
        if entry is None:
            entry = _Entry(asyncio.ensure_future(start()), self._slots, self._ttl)
            entries.append(entry)
        entry.seats += 1
        entry.used += 1
        number = entry.used
        try:
            shared = await asyncio.shield(entry.start)
        except BaseException:
            await self._leave(key, entry)
            raise
        return Seat(shared, number, lambda: self._leave(key, entry))

    async def _leave(self, key: Hashable, entry: _Entry) -> None:
        entry.seats -= 1
        entries = self._entries.get(key, [])
        idle = sum(other.seats == 0 for other in entries)
        if entry.seats == 0 and entry in entries and (entry.worn or idle > 1):
            entries.remove(entry)
            await _close(entry)

    async def aclose(self) -> None:
        """Remove every container, whoever sits in it."""
        everything = [entry for entries in self._entries.values() for entry in entries]
        self._entries = {}
        results = await asyncio.gather(*map(_close, everything), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result


async def _close(entry: _Entry) -> None:
    await asyncio.wait((entry.start,))
    if not entry.start.cancelled() and entry.start.exception() is None:
        await entry.start.result().close()


class SlotHost(SandboxHost):
    """One seat of a shared container.

    Args:
        seat: Where.
        folder: The directory, inside, that holds the slots' own.
        name: The name of this one's.
        environment: Variables of the commands.
        provenance: What is recorded.
    """

    def __init__(
        self, seat: Seat, *, folder: str, name: str, environment: Mapping[str, str], provenance: Mapping[str, Any]
    ) -> None:
        self.workspace = f"{folder}/{name}"
        self.bash = seat.shared.host.bash
        self.environment = environment
        self._uid = FIRST_UID + seat.number
        self.provenance = {**provenance, "uid": self._uid, "gid": self._uid, "slot": seat.number}
        self._seat: Seat | None = seat

    def slot_fields(self) -> Mapping[str, Any]:
        """Return a user that nobody else has in this container, and a directory that only that user may enter."""
        return {"uid": self._uid, "gid": self._uid, "umask": 0o077, "own_directory": True}

    async def serve(self, request: SlotRequest, previous: AgentSlot | None) -> AgentSlot:
        """Open the slot in the shared agent; a renewed one loses its processes and its session."""
        if previous is not None:
            await previous.reset()
            return previous
        if self._seat is None:
            raise BackendError(f"the slot of {self.workspace} has been given back")
        return await request.open_in(self._seat.shared.client, self, exclusive=False)

    async def freeze(self) -> None:
        """Give the slot's directory to root, for reading and running only."""
        if self._seat is None:
            raise BackendError(f"the slot of {self.workspace} has been given back")
        await self._seat.shared.host.lock(self.workspace, (self._uid, self._uid))

    async def start_agent(self) -> AgentStream:
        """Refuse: the agent is shared and runs."""
        raise BackendError("the agent of a slot is started with its container")

    async def stop_all(self) -> None:
        """Nothing is left to do: closing the slot has ended everything of its user."""

    async def destroy(self) -> None:
        """Give the seat back."""
        seat, self._seat = self._seat, None
        if seat is not None:
            await seat.leave()
