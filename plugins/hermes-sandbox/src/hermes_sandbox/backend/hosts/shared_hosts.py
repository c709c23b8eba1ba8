"""One agent for the slots of many sandboxes: what a backend with a pool of places is made of."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final, Protocol

from hermes_core.cancellation import run_uncancelled
from hermes_core.contracts.errors import SandboxRefusedError
from hermes_sandbox.backend.hosts.host import MakeHost, SandboxHost, SlotOffer, SlotReservation
from hermes_sandbox.backend.hosts.slot_host import HostSeat, SlotHost
from hermes_sandbox.protocol.client import AgentStream
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


class _Shared(SlotHost):
    """A host of `SharedHostPool`, which ends when nobody has used it for a while."""

    def __init__(self, key: Hashable, limit: int) -> None:
        super().__init__(limit)
        self.key = key
        self.starting: asyncio.Future[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self._ending: asyncio.Future[None] | None = None

    @property
    def usable(self) -> bool:
        return not self.is_spoiled and self._ending is None and self.lost is None

    def keep(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    async def close(self) -> None:
        self.keep()
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._end_when_started())
        await asyncio.shield(self._ending)

    async def _end_when_started(self) -> None:
        if self.starting is not None:
            await asyncio.wait((self.starting,))
        await self.end()


class SharedHostPool:
    """Places of one backend, by what they have in common; each has one agent with many slots.

    A place that is lost fails its own slots only. One that has not been used for `idle` seconds is closed.
    """

    capacity: int | None = None
    """There is always a place more."""

    def __init__(self, *, idle: float = _IDLE) -> None:
        self.idle = idle
        self._starts = asyncio.Semaphore(_STARTS)
        self._hosts: list[_Shared] = []
        self._retiring: set[asyncio.Task[None]] = set()

    async def acquire(self, key: Hashable, make_host: MakeHost, limit: int, request: SlotRequest) -> SlotReservation:
        """Return a seat in a place of this key that has fewer than `limit`, in a new one if there is none.

        Those who come while a place is being made wait for it together. When cancelled, nothing is kept.
        """
        alike = (host for host in self._hosts if host.key == key and host.usable and len(host.seats) < limit)
        host = next(alike, None)
        if host is None:
            host = _Shared(key, limit)
            host.starting = asyncio.ensure_future(self._start(host, make_host, request))
            self._hosts.append(host)
        host.keep()
        seat = host.seat(request.spec.rollout_id, functools.partial(self._leave, host))
        assert host.starting is not None
        try:
            await asyncio.shield(host.starting)
        except BaseException:
            await run_uncancelled(seat.release())
            raise
        return seat

    async def _start(self, host: _Shared, make_host: MakeHost, request: SlotRequest) -> None:
        try:
            async with self._starts:
                await host.begin(make_host, request)
        except BaseException:
            host.spoil()
            raise

    async def _leave(self, host: _Shared, _seat: HostSeat) -> None:
        if host.seats:
            return
        if host.usable and self.idle > 0:
            host.timer = asyncio.get_running_loop().call_later(self.idle, self._retire, host)
        else:
            await self._close(host)

    async def _close(self, host: _Shared) -> None:
        if host in self._hosts:
            self._hosts.remove(host)
        await host.close()

    def _retire(self, host: _Shared) -> None:
        task = asyncio.ensure_future(self._close(host))
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    def refuse_all(self) -> contextlib.AbstractContextManager[None]:
        """Do nothing: nobody waits for a seat that another gives back."""
        return contextlib.nullcontext()

    @property
    def places(self) -> int:
        """How many places there are."""
        return len(self._hosts)

    async def aclose(self) -> None:
        """Close every place, used or not."""
        closing = [self._close(host) for host in list(self._hosts)]
        results = await asyncio.gather(*closing, *self._retiring, return_exceptions=True)
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
        self.seat: SlotReservation | None = None
        """Its slot, from `admit` to `destroy`."""
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
        self.seat = seat

    async def admit(self, request: SlotRequest) -> None:
        """Wait for a seat, where it has none yet."""
        if self.seat is None:
            self.seat = await self._agents.acquire(*self._offer, request)

    async def serve(self, request: SlotRequest, previous: AgentSlot | None) -> AgentSlot:
        """Open a slot of a shared agent, or end all that runs in the present one."""
        if previous is not None:
            await previous.reset(state_dir=self.state_dir)
            return previous
        if self.seat is None:
            await self.admit(request)
        seat = self.seat
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
            if self.seat is not None:
                self.seat.spoil()
            raise
        if slot.left is not None and self.seat is not None:
            # What the next one would find; the place ends when the last of those who are in it has left.
            self.seat.spoil()
            _log.warning("a shared place takes nobody new, since slots have left something there: %s", slot.left)

    async def destroy(self) -> None:
        """Give the seat back."""
        seat, self.seat = self.seat, None
        if seat is not None:
            await seat.release()
