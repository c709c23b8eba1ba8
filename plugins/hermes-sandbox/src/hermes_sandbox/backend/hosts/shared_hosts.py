"""Hosts with one agent for the slots of many sandboxes."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final, Protocol

from hermes_core.cancellation import run_uncancelled
from hermes_core.contracts.errors import BackendError, SandboxRefusedError
from hermes_sandbox.backend.hosts.host import MakeHost, SandboxHost, SlotOffer, SlotReservation
from hermes_sandbox.backend.hosts.slot_host import HostSeat, SlotHost
from hermes_sandbox.protocol.slots import AgentSlot, SlotRequest
from hermes_sandbox.protocol.streams import AgentStream

Describe = Callable[[SandboxHost, int], Mapping[str, Any]]
"""Returns the fields of the n-th slot of a host, counted from 1 and never reused: workspace, uid, gid, …"""
_log = logging.getLogger(__name__)
_IDLE: Final = 30.0
_STARTS: Final = 16


class HostPool(Protocol):
    """Gives the sandboxes of a backend their seats in shared hosts, and makes and ends these hosts.

    `SharedHostPool` makes a host whenever it has no free seat. A slot pool bounds, queues, scales and watches.
    """

    async def acquire(self, key: Hashable, make_host: MakeHost, limit: int, request: SlotRequest) -> SlotReservation:
        """Return a seat in a host of this key with fewer than `limit` seats taken; when cancelled, keep nothing.

        Raises:
            BackendError: There is none, and none became free in time.
        """
        ...

    @property
    def capacity(self) -> int | None:
        """The number of seats at a time; None if that is not bounded, or not known yet."""
        ...

    def refuse_all(self) -> contextlib.AbstractContextManager[None]:
        """Refuse those who wait for a seat, and new ones within the block."""
        ...

    async def aclose(self) -> None:
        """Close every host, used or not."""
        ...


class _Shared(SlotHost):
    """A host of `SharedHostPool`, which ends when it was idle for a while."""

    def __init__(self, key: Hashable, limit: int) -> None:
        super().__init__(limit)
        self.key = key
        self.starting: asyncio.Future[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self._ending: asyncio.Future[None] | None = None

    @property
    def usable(self) -> bool:
        return not self.is_retired and self._ending is None and self.lost is None

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
    """The shared hosts of one backend, by their keys; each has one agent with many slots.

    A lost host fails only its own slots. A host that was idle for `idle` seconds is closed.
    """

    capacity: int | None = None
    """Not bounded."""

    def __init__(self, *, idle: float = _IDLE) -> None:
        self.idle = idle
        self._starts = asyncio.Semaphore(_STARTS)
        self._hosts: list[_Shared] = []
        self._closing: set[asyncio.Task[None]] = set()
        self._left: list[str] = []
        """Why hosts that did not start could not be removed."""

    async def acquire(self, key: Hashable, make_host: MakeHost, limit: int, request: SlotRequest) -> SlotReservation:
        """Return a seat in a host of this key with fewer than `limit` seats taken, in a new host if there is none.

        Callers that come while a host is being made wait for it together. When cancelled, keep nothing.
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
            host.retire()
            if host.complaint:
                _log.warning("a shared host is left over: %s", host.complaint)
                self._left.append(host.complaint)
            raise

    async def _leave(self, host: _Shared, _seat: HostSeat) -> None:
        if host.seats:
            return
        if host.usable and self.idle > 0:
            host.timer = asyncio.get_running_loop().call_later(self.idle, self._close_later, host)
        else:
            await self._close(host)

    async def _close(self, host: _Shared) -> None:
        if host in self._hosts:
            self._hosts.remove(host)
        await host.close()

    def _close_later(self, host: _Shared) -> None:
        task = asyncio.ensure_future(self._close(host))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def refuse_all(self) -> contextlib.AbstractContextManager[None]:
        """Do nothing: no caller waits for a seat that another gives back."""
        return contextlib.nullcontext()

    async def aclose(self) -> None:
        """Close every host, used or not.

        Raises:
            BackendError: Hosts whose start failed could not be removed, now or earlier.
        """
        closing = [self._close(host) for host in list(self._hosts)]
        results = await asyncio.gather(*closing, *self._closing, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        left, self._left = self._left, []
        if left:
            raise BackendError(
                f"{len(left)} shared hosts could not be removed: {'; '.join(left[:3])}",
                hint="hermes-core sandboxes gc --all removes what is left once this process has ended",
            )


class SharedHost(SandboxHost):
    """One sandbox's share of a host; return it from `AgentBackend.create`.

    Args:
        pool: The backend's `host_pool`.
        key: What sandboxes of one host must have in common: image, limits, network, ….
        make_host: Makes such a host.
        limit: The number of slots that it may have at a time.
        describe: Returns the fields of a slot; `workspace` must be among them.
    """

    def __init__(self, pool: HostPool, key: Hashable, make_host: MakeHost, *, limit: int, describe: Describe) -> None:
        self._pool = pool
        self._offer = SlotOffer(key, make_host, limit)
        self._describe = describe
        self._fields: Mapping[str, Any] = {}
        self.seat: SlotReservation | None = None
        """Its slot, from `admit` to `destroy`."""
        self._slot: AgentSlot | None = None

    def slot_fields(self) -> Mapping[str, Any]:
        """Return the fields from `describe`."""
        return self._fields

    @property
    def offer(self) -> SlotOffer:
        """The offer of its arguments."""
        return self._offer

    def occupy(self, seat: SlotReservation) -> None:
        """Use a seat that a pool has found."""
        self.seat = seat

    async def admit(self, request: SlotRequest) -> None:
        """Wait for a seat, if it has none yet."""
        if self.seat is None:
            self.seat = await self._pool.acquire(*self._offer, request)

    async def serve(self, request: SlotRequest, previous: AgentSlot | None) -> AgentSlot:
        """Open a slot of a shared agent, or end everything in the current one."""
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
        """Refuse: the agent is shared, and started with its host."""
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
                self.seat.retire_host()
            raise
        if slot.left is not None and self.seat is not None:
            # The next slot would find it; the host ends after its last current slot is closed.
            self.seat.retire_host()
            _log.warning("a shared host takes no new slots, because slots have left something there: %s", slot.left)

    async def destroy(self) -> None:
        """Give the seat back."""
        seat, self.seat = self.seat, None
        if seat is not None:
            await seat.release()
