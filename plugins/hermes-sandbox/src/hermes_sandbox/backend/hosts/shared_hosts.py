"""One agent for the slots of many sandboxes: what a backend with a pool of places is made of."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final, Protocol

from hermes_core.cancellation import run_uncancelled
from hermes_core.contracts.errors import SandboxRefusedError
from hermes_sandbox.backend.hosts.host import MakeHost, SandboxHost, SlotOffer, SlotReservation
from hermes_sandbox.protocol.client import AgentClient, AgentStream
from hermes_sandbox.protocol.slots import AgentSlot, SlotRequest

Describe = Callable[[SandboxHost, int], Mapping[str, Any]]
"""Returns the fields of `open` for the n-th slot of a place, counted from 1 and never twice: workspace, uid, gid, …"""
_log = logging.getLogger(__name__)
_IDLE: Final = 30.0
_STARTS: Final = 16


class Places(Protocol):
    """Who gives the sandboxes of a backend their seats in shared places, and makes and ends the places for that.

    `SharedHostPool` makes one whenever it has no free seat. A slot pool bounds them, queues, scales and watches.
    """

    async def acquire(self, key: Hashable, make_host: MakeHost, limit: int, request: SlotRequest) -> SlotReservation:
        """Return a seat in a place of this key that has fewer than `limit`; when cancelled, nothing is kept.

        Raises:
            BackendError: There is none, and none is to be had in time.
        """
        ...

    @property
    def capacity(self) -> int | None:
        """How many seats there may be at a time; None where that is not bounded, or not known yet."""
        ...

    def refuse_all(self) -> contextlib.AbstractContextManager[None]:
        """Refuse those who wait for a seat, and whoever comes within the block."""
        ...

    async def aclose(self) -> None:
        """Close every place, used or not."""
        ...


class SharedHostReservation:
    """A seat in a place of `SharedHostPool`."""

    def __init__(self, shared: _Shared, number: int) -> None:
        self._shared = shared
        self.number = number

    @property
    def host(self) -> SandboxHost:
        """The place that it is in."""
        return self._shared.place

    @property
    def client(self) -> AgentClient:
        """The agent of that place."""
        return self._shared.agent

    def spoil(self) -> None:
        """Give nobody else a slot in this place: something is left in it that cannot be ended."""
        self._shared.spoiled = True

    async def release(self) -> None:
        """Give it back; a place that nobody needs ends after a while."""
        await self._shared.leave()


class _Shared:
    """A place with an agent, how many use it now, and how many have."""

    def __init__(self, owner: SharedHostPool, key: Hashable) -> None:
        self.seats = 0
        self.spoiled = False
        self._owner = owner
        self._key = key
        self._given = 0
        self._host: SandboxHost | None = None
        self._client: AgentClient | None = None
        self._end: asyncio.TimerHandle | None = None
        self._starting: asyncio.Future[None] | None = None
        self._closing: asyncio.Future[None] | None = None

    @property
    def usable(self) -> bool:
        return not self.spoiled and self._closing is None and (self._client is None or self._client.lost is None)

    @property
    def place(self) -> SandboxHost:
        assert self._host is not None
        return self._host

    @property
    def agent(self) -> AgentClient:
        assert self._client is not None
        return self._client

    async def take(self, make_host: MakeHost, request: SlotRequest) -> SharedHostReservation:
        self.seats += 1
        self._given += 1
        number = self._given
        if self._end is not None:
            self._end.cancel()
            self._end = None
        if self._starting is None:
            self._starting = asyncio.ensure_future(self._start(make_host, request))
        try:
            await asyncio.shield(self._starting)
        except BaseException:
            await run_uncancelled(self.leave())
            raise
        return SharedHostReservation(self, number)

    async def _start(self, make_host: MakeHost, request: SlotRequest) -> None:
        try:
            async with self._owner.starting:
                self._host = await make_host()
                stream = await self._host.start_agent()
                self._client = await request.greet(stream, marker=self._host.mark or uuid.uuid4().hex[:16])
        except BaseException:
            self.spoiled = True
            raise

    async def leave(self) -> None:
        self.seats -= 1
        if self.seats:
            return
        if self.usable and self._owner.idle > 0:
            loop = asyncio.get_running_loop()
            self._end = loop.call_later(self._owner.idle, lambda: self._owner.retire(self._key, self))
        else:
            await self.close()
            self._owner.drop(self._key, self)

    async def close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self._end is not None:
            self._end.cancel()
        if self._starting is not None:
            await asyncio.wait((self._starting,))
        if self._client is not None:
            await self._client.aclose()
        if self._host is not None:
            try:
                await self._host.stop_all()
            finally:
                await self._host.destroy()


class SharedHostPool:
    """Places of one backend, by what they have in common; each has one agent with many slots.

    A place that is lost fails its own slots only. One that has not been used for `idle` seconds is closed.
    """

    capacity: int | None = None
    """There is always a place more."""

    def __init__(self, *, idle: float = _IDLE) -> None:
        self.idle = idle
        self.starting = asyncio.Semaphore(_STARTS)
        self._places: dict[Hashable, list[_Shared]] = {}
        self._retiring: set[asyncio.Task[None]] = set()

    async def acquire(self, key: Hashable, make_host: MakeHost, limit: int, request: SlotRequest) -> SlotReservation:
        """Return a seat in a place of this key that has fewer than `limit`, in a new one if there is none.

        Those who come while a place is being made wait for it together. When cancelled, nothing is kept.
        """
        places = self._places.setdefault(key, [])
        found = next((shared for shared in places if shared.usable and shared.seats < limit), None)
        if found is None:
            found = _Shared(self, key)
            places.append(found)
        return await found.take(make_host, request)

    def retire(self, key: Hashable, shared: _Shared) -> None:
        """Close a place that nobody uses."""
        if shared.seats == 0:
            self.drop(key, shared)
            task = asyncio.ensure_future(shared.close())
            self._retiring.add(task)
            task.add_done_callback(self._retiring.discard)

    def drop(self, key: Hashable, shared: _Shared) -> None:
        """Forget a place."""
        places = self._places.get(key, [])
        if shared in places:
            places.remove(shared)
        if not places:
            self._places.pop(key, None)

    def refuse_all(self) -> contextlib.AbstractContextManager[None]:
        """Do nothing: nobody waits for a seat that another gives back."""
        return contextlib.nullcontext()

    @property
    def places(self) -> int:
        """How many places there are."""
        return sum(len(places) for places in self._places.values())

    async def aclose(self) -> None:
        """Close every place, used or not."""
        shared = [place for places in self._places.values() for place in places]
        self._places = {}
        results = await asyncio.gather(*(place.close() for place in shared), *self._retiring, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result


class SharedHost(SandboxHost):
    """One sandbox's share of a place; return it from `AgentBackend.create`.

    Args:
        agents: The backend's places, `AgentBackend.places`.
        key: What sandboxes in one place must have in common: image, limits, network, ….
        make_host: Makes such a place.
        limit: How many slots it may have at a time.
        describe: Returns the fields of a slot; `workspace` must be among them.
    """

    def __init__(self, agents: Places, key: Hashable, make_host: MakeHost, *, limit: int, describe: Describe) -> None:
        self._agents = agents
        self._offer = SlotOffer(key, make_host, limit)
        self._describe = describe
        self._fields: Mapping[str, Any] = {}
        self._seat: SlotReservation | None = None
        self._slot: AgentSlot | None = None

    def slot_fields(self) -> Mapping[str, Any]:
        """Return what `describe` has said."""
        return self._fields

    @property
    def offer(self) -> SlotOffer:
        """Return what was said when it was made."""
        return self._offer

    def occupy(self, seat: SlotReservation) -> None:
        """Take a seat that a pool has found."""
        self._seat = seat

    async def admit(self, request: SlotRequest) -> None:
        """Wait for a seat, where it has none yet."""
        if self._seat is None:
            self._seat = await self._agents.acquire(*self._offer, request)

    async def serve(self, request: SlotRequest, previous: AgentSlot | None) -> AgentSlot:
        """Open a slot of a shared agent, or end all that runs in the present one."""
        if previous is not None:
            await previous.reset(state_dir=self.state_dir)
            return previous
        if self._seat is None:
            await self.admit(request)
        seat = self._seat
        assert seat is not None
        self._fields = self._describe(seat.host, seat.number)
        self.workspace = self._fields["workspace"]
        self.environment, self.bash = seat.host.environment, seat.host.bash
        self._slot = await request.open_in(seat.client, self, exclusive=False)
        return self._slot

    async def start_agent(self) -> AgentStream:
        """Refuse: the agent is shared, and started with its place."""
        raise SandboxRefusedError("a shared agent is not started for one sandbox", hint="call serve")

    async def stop_all(self) -> None:
        """Close the slot, which ends its processes."""
        slot, self._slot = self._slot, None
        if slot is None:
            return
        try:
            await slot.aclose()
        except BaseException:
            if self._seat is not None:
                self._seat.spoil()
            raise
        if slot.left is not None and self._seat is not None:
            # What the next one would find; the place ends when the last of those who are in it has left.
            self._seat.spoil()
            _log.warning("a shared place takes nobody new, since slots have left something there: %s", slot.left)

    async def destroy(self) -> None:
        """Give the seat back."""
        seat, self._seat = self._seat, None
        if seat is not None:
            await seat.release()
