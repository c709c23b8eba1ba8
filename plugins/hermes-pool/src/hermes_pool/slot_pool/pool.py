"""The slot pool: who gets a slot of which host, and when hosts come and go."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Final

from hermes_pool.options import OptionNames, PoolOptions
from hermes_pool.refusals import too_late, too_many
from hermes_pool.slot_pool.creation_rate import CreationRate, load_per_core
from hermes_pool.slot_pool.fleet import Fleet
from hermes_pool.slot_pool.host_kinds import Kind, Waiter
from hermes_pool.slot_pool.pooled_host import HostState, PoolSeat
from hermes_pool.slot_pool.slot_records import Slot, slots_of
from hermes_pool.statistics import PoolStats, Waits
from hermes_sandbox.backends import MakeHost, SlotRequest, SlotReservation

_LOOK: Final = 0.5
"""Seconds between two looks at whether a host is still being started."""


class SlotPool:
    """Gives sandboxes their seats in shared hosts: in order and bounded; implements `Places`.

    Who has waited longest gets the next slot of his kind; nobody waits while one is free, and nobody in a queue that
    has not moved for `acquire_timeout`: no slot of any kind was given out or back, and no host is being
    started. Hosts are started when the queue is
    longer than what is coming, ended when nobody uses them, and set apart when they are not well. A trajectory that has
    a slot already (the same `rollout_id`) does not queue for another, and may have it in a full host: it gives back
    neither before its end. All times are of the event loop's monotonic clock. Belongs to one event loop.

    Args:
        options: Bounds and times.
        name: Of the backend, for messages.
        load: Returns the load per core of the machine that starts hosts.
        chance: For the jitter of pauses.
        is_impatient: Whether those who wait for a host that does not start may have a slot elsewhere, and are told so
            after half of their time.
        names: What the options are called where a user sets them.
    """

    def __init__(
        self,
        options: PoolOptions,
        *,
        name: str,
        load: Callable[[], float] = load_per_core,
        chance: random.Random | None = None,
        is_impatient: bool = False,
        names: OptionNames | None = None,
    ) -> None:
        self.options = options
        self.name = name
        self._names = names or OptionNames()
        self._fleet = Fleet(
            options,
            name=name,
            rate=CreationRate(options.concurrent_starts, load=load),
            chance=chance,
            serve=self._serve,
            is_impatient=is_impatient,
            names=self._names,
        )
        self._turns = itertools.count()
        self._holders: Counter[str] = Counter()
        self._waits = Waits()
        self._moved = 0.0
        """When a slot was last given out or back."""
        self._slots_per_host: int | None = None
        self.on_learned: Callable[[], None] = lambda: None
        """Called when it becomes known how many slots a host of the backend may have."""

    async def acquire(self, key: Hashable, make_host: MakeHost, limit: int, request: SlotRequest) -> SlotReservation:
        """Return a seat in a host of this key; when cancelled, nothing is kept, no place in the queue either.

        Raises:
            SlotUnavailableError: The queue does not move any more, or is full.
            BackendError: No host of this kind can be started.
        """
        fleet = self._fleet
        if fleet.closing:
            raise fleet.closing_error()
        loop = asyncio.get_running_loop()
        slots = min(limit, self.options.slots_per_host)
        waiter = self._waiter(loop, make_host, slots, request)
        kind = fleet.kind(key)
        fleet.latest = (kind, waiter)
        kind.enqueue(waiter)
        self._serve(kind)
        fleet.watch()
        if slots != self._slots_per_host:
            self._slots_per_host = slots
            self.on_learned()
        if waiter.future.done():
            return waiter.future.result()
        if self.waiting > self.options.max_waiting:
            del kind.waiting[waiter]
            raise too_many(self.stats(), self._names)
        fleet.grow()
        return await self._await_seat(loop, kind, waiter)

    def _waiter(self, loop: asyncio.AbstractEventLoop, make_host: MakeHost, slots: int, request: SlotRequest) -> Waiter:
        return Waiter(
            turn=next(self._turns),
            since=loop.time(),
            limit=slots,
            make_host=make_host,
            request=request,
            further=self._holders[request.spec.rollout_id or ""] > 0,
            future=loop.create_future(),
        )

    async def _await_seat(self, loop: asyncio.AbstractEventLoop, kind: Kind, waiter: Waiter) -> SlotReservation:
        seconds, future = self.time_left(waiter.request), waiter.future
        try:
            while not future.done():
                left = max(waiter.since, self._moved) + seconds - loop.time()
                if left <= 0 and not self._fleet.has_coming:
                    timeout = self.options.acquire_timeout
                    raise too_late(self.stats(), timeout, kind.failure, names=self._names)
                await asyncio.wait((future,), timeout=max(left, _LOOK))
            return future.result()
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                # It came between the cancellation and this.
                await future.result().release()
            raise
        finally:
            kind.waiting.pop(waiter, None)

    @property
    def waiting(self) -> int:
        """How many wait for a slot."""
        return self._fleet.waiting

    @property
    def capacity(self) -> int | None:
        """How many slots there would be with all hosts; None before the first one was asked for."""
        return None if self._slots_per_host is None else self.options.max_hosts * self._slots_per_host

    @property
    def blocked(self) -> int:
        """How many slots nobody gets as long as others are used: those of hosts that take nobody new."""
        apart = {HostState.QUARANTINED, HostState.DRAINING}
        hosts = (host for host in self._fleet.hosts if host.seats and host.state in apart)
        return sum(max(0, host.limit - len(host.seats)) for host in hosts)

    @property
    def has_coming(self) -> bool:
        """Whether a host is being started."""
        return self._fleet.has_coming

    def time_left(self, request: SlotRequest) -> float:
        """Return how long somebody may wait in a queue that does not move."""
        del request
        return self.options.acquire_timeout

    def stats(self) -> PoolStats:
        """Return the pool's numbers at this moment."""
        hosts = self._fleet.hosts
        free, used = sum(host.free for host in hosts), sum(len(host.seats) for host in hosts)
        return PoolStats(
            name=self.name,
            total=free + used,
            free=free,
            used=used,
            waiting=self.waiting,
            hosts={state.value: sum(host.state is state for host in hosts) for state in HostState},
            max_hosts=self.options.max_hosts,
            starts_allowed=self._fleet.rate.allowed,
            created=self._fleet.counts["created"],
            failed=self._fleet.counts["failed"],
            lost=self._fleet.counts["lost"],
            quarantined=self._fleet.counts["quarantined"],
            waits=self._waits.summary(),
            last_failure=self._fleet.last_failure,
            capacity=self.capacity,
        )

    def slots(self) -> list[Slot]:
        """Return a record of every slot, taken or free."""
        return [slot for host in self._fleet.hosts for slot in slots_of(host)]

    def refuse_all(self) -> contextlib.AbstractContextManager[None]:
        """Refuse those who wait, and whoever comes within the block."""
        return self._fleet.refuse_all()

    async def aclose(self) -> None:
        """Refuse those who wait, end every host, used or not; safe to call twice, and the pool is new afterwards.

        Raises:
            BackendError: Hosts could not be ended, now or earlier.
        """
        await self._fleet.aclose()

    def _serve(self, kind: Kind) -> None:
        """Give free slots to those who have waited longest."""
        now = asyncio.get_running_loop().time()
        while (waiter := kind.first) is not None:
            host = kind.best(further=waiter.further)
            if host is None:
                return
            del kind.waiting[waiter]
            if not waiter.future.done():
                rollout_id = waiter.request.spec.rollout_id
                if rollout_id is not None:
                    self._holders[rollout_id] += 1
                self._moved = now
                waiter.future.set_result(host.seat(rollout_id, self._take_back))
                self._waits.add(now - waiter.since)

    def _take_back(self, seat: PoolSeat) -> None:
        host = seat.owner
        self._moved = asyncio.get_running_loop().time()
        host.seats.pop(seat.number, None)
        if seat.rollout_id is not None:
            self._holders[seat.rollout_id] -= 1
            if not self._holders[seat.rollout_id]:
                del self._holders[seat.rollout_id]
        kind = self._fleet.kinds.get(host.key)
        if kind is None or host not in kind.hosts:
            return
        self._serve(kind)
        if not host.seats:
            host.idle_since = self._moved
            self._fleet.review(host, self._moved)
        self._fleet.grow()
