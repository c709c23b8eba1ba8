"""The queue of all who wait for a slot, and when hosts come and go for them."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from hermes_core.contracts.errors import BackendError
from hermes_pool.options import OptionNames, PoolOptions
from hermes_pool.refusals import all_failed, all_left, gave_up, is_final, no_offer, retold, too_late, too_many
from hermes_pool.slot_pool.creation_rate import CreationRate, load_per_core
from hermes_pool.slot_pool.fleet import Fleet
from hermes_pool.slot_pool.host_kinds import Kind, Line, Rank, Waiter
from hermes_pool.slot_pool.making_room import make_room
from hermes_pool.slot_pool.pooled_host import HostState, PooledHost
from hermes_pool.slot_pool.slot_records import Slot, slots_of
from hermes_pool.statistics import PoolStats, Waits
from hermes_sandbox.backends import HostSeat, SlotOffer, SlotRequest, SlotReservation

_TICK: Final = 0.5
"""Seconds between two looks at all hosts, at most."""


class SlotQueue:
    """Gives those who wait slots of the hosts of one backend or several: in order and bounded.

    Somebody enters, is offered hosts by some backends, and takes a slot. Who has waited longest gets the next slot that
    he could have; nobody waits while one is free, and nobody in a queue that has not moved for `acquire_timeout`: no
    slot of any kind was given out or back, and no host is being started. Hosts are started where most room is, when the
    queue is longer than what is coming. A trajectory that has a slot already (the same `rollout_id`) does not queue for
    another, and may have it in a full host: it gives back neither before its end. All times are of the event loop's
    monotonic clock. Belongs to one event loop.

    Args:
        options: Bounds and times; those of hosts hold for each backend.
        name: Of the pool, for messages.
        members: The names of its backends.
        load: Returns the load per core of the machine that starts hosts.
        chance: For the jitter of pauses.
        names: What the options are called where a user sets them.
    """

    def __init__(
        self,
        options: PoolOptions,
        *,
        name: str,
        members: Sequence[str],
        load: Callable[[], float] = load_per_core,
        chance: random.Random | None = None,
        names: OptionNames | None = None,
    ) -> None:
        self.options = options
        self.name = name
        self._names = names or OptionNames()
        self.fleets = [
            Fleet(
                number,
                options,
                name=member,
                rate=CreationRate(options.concurrent_starts, load=load),
                chance=chance,
                demand=self,
                names=self._names,
            )
            for number, member in enumerate(members)
        ]
        self._turns = itertools.count()
        self._waiters: dict[Waiter, None] = {}
        self._lines: dict[tuple[Kind, ...], Line] = {}
        self._waits = Waits()
        self._moved = 0.0
        """When a slot was last given out or back."""
        self._closings = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """How many wait for a slot."""
        return len(self._waiters)

    def stats(self) -> PoolStats:
        """Return the numbers of all backends together at this moment."""
        hosts = [host for fleet in self.fleets for host in fleet.hosts]
        free, used = sum(host.free for host in hosts), sum(len(host.seats) for host in hosts)
        counts = sum((fleet.counts for fleet in self.fleets), Counter())
        capacities = [fleet.capacity for fleet in self.fleets if fleet.capacity is not None]
        return PoolStats(
            name=self.name,
            total=free + used,
            free=free,
            used=used,
            waiting=self.waiting,
            hosts={state.value: sum(host.state is state for host in hosts) for state in HostState},
            max_hosts=self.options.max_hosts * len(self.fleets),
            starts_allowed=sum(fleet.rate.allowed for fleet in self.fleets),
            waits=self._waits.summary(),
            last_failure=next((fleet.last_failure for fleet in self.fleets if fleet.last_failure), None),
            capacity=sum(capacities) if len(capacities) == len(self.fleets) else None,
            **{what: counts[what] for what in ("created", "failed", "lost", "quarantined")},
        )

    def slots(self) -> list[Slot]:
        """Return a record of every slot, taken or free."""
        return [slot for fleet in self.fleets for host in fleet.hosts for slot in slots_of(host)]

    def enter(self, request: SlotRequest, rank: Rank | None = None, member: int | None = None) -> Waiter:
        """Return a place in the queue; `take` has to follow, whatever happens between.

        Args:
            request: What the sandbox asks of its agent.
            rank: Of one whose slot was of no use to him: he takes his place again.
            member: The number of the only member that may serve him; None if every member may.

        Raises:
            BackendError: The pool is being closed.
        """
        if self._closings:
            raise self._closing_error()
        loop, rollout_id = asyncio.get_running_loop(), request.spec.rollout_id
        has_slot = rollout_id is not None and any(fleet.holders[rollout_id] for fleet in self.fleets)
        waiter = Waiter(
            rank=rank or (not has_slot, next(self._turns)),
            since=loop.time(),
            request=request,
            is_surplus=self.waiting >= self.options.max_waiting,
            future=loop.create_future(),
            member=member,
        )
        self._waiters[waiter] = None
        return waiter

    def offer(self, waiter: Waiter, offers: Mapping[Fleet, SlotOffer]) -> None:
        """Let somebody have a slot of these backends too: the one with most room, if it has one now."""
        if waiter.future.done():
            return
        kinds = [fleet.kind(offer, waiter.request) for fleet, offer in offers.items()]
        if len(kinds) > 1:
            kinds.sort(key=lambda kind: self._preference(waiter, kind), reverse=True)
        self._line_up(waiter, kinds)
        for kind in kinds:
            self.serve(kind)
        if waiter.kind is not None:
            self._spread(waiter.kind, kinds)
        elif waiter.is_surplus:
            self._leave(waiter)
            self.refuse(waiter, too_many(self.stats(), self._names))
        else:
            self.grow()

    async def take(self, waiter: Waiter) -> SlotReservation:
        """Wait for the slot; when cancelled, nothing is kept, no place in the queue either.

        Raises:
            SlotUnavailableError: The queue does not move any more, or is full.
            BackendError: No host that could be offered can be started.
        """
        future = waiter.future
        self._watch()
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                # It came between the cancellation and this.
                await future.result().release()
            raise
        finally:
            self._leave(waiter)

    def end_offers(self, waiter: Waiter) -> None:
        """Take note that no further offer is waited for; who has waited for hosts that failed may have no hope left."""
        waiter.is_expecting = False
        told = self._end_of_hope(waiter) if waiter.has_seen_failure else None
        if told is not None:
            self.refuse(waiter, told)

    def refuse(self, waiter: Waiter, error: BaseException) -> None:
        """Tell somebody that he waits in vain."""
        self._leave(waiter)
        if not waiter.future.done():
            waiter.future.set_exception(error)

    @contextlib.contextmanager
    def refuse_all(self) -> Iterator[None]:
        """Refuse those who wait, and whoever comes within the block."""
        self._closings += 1
        try:
            for waiter in list(self._waiters):
                self.refuse(waiter, self._closing_error())
            yield
        finally:
            self._closings -= 1

    async def aclose(self) -> None:
        """Refuse those who wait, end every host, used or not; safe to call twice, and the pool is new afterwards.

        Raises:
            BackendError: Hosts could not be ended, now or earlier.
        """
        with self.refuse_all():
            results = await asyncio.gather(*(fleet.aclose() for fleet in self.fleets), return_exceptions=True)
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        failures = [result for result in results if result is not None]
        if failures:
            raise all_left(failures)

    def _closing_error(self) -> BackendError:
        return BackendError(f"pool {self.name!r} is being closed")

    def _preference(self, waiter: Waiter, kind: Kind) -> tuple[int, int]:
        """Return how much a backend is to be preferred: one where the trajectory is already, then the roomiest."""
        fleet = self.fleets[kind.member]
        return fleet.holders[waiter.request.spec.rollout_id or ""], fleet.room

    def _spread(self, taken: Kind, kinds: Sequence[Kind]) -> None:
        """Start the first host of a backend with more room than the one that has just served somebody."""
        if len(kinds) == 1:
            return
        now = asyncio.get_running_loop().time()
        kind = self._roomiest(self._able(kinds, now))
        fleet = self.fleets[kind.member]
        has_more = fleet.room > self.fleets[taken.member].room + 1
        if has_more and not kind.hosts and not fleet.is_full and fleet.may_start(kind, now):
            fleet.start(kind, now)

    def _line_up(self, waiter: Waiter, kinds: Sequence[Kind]) -> None:
        offered = {kind.member: kind for kind in (*(waiter.line.kinds if waiter.line else ()), *kinds)}
        together = tuple(offered[member] for member in sorted(offered))
        self._leave_line(waiter)
        line = self._lines.get(together)
        if line is None:
            line = self._lines[together] = Line(together)
            for kind in together:
                kind.lines.append(line)
        line.add(waiter)
        waiter.line = line

    def _leave_line(self, waiter: Waiter) -> None:
        line, waiter.line = waiter.line, None
        if line is None:
            return
        line.remove(waiter)
        if not len(line):
            del self._lines[line.kinds]
            for kind in line.kinds:
                kind.lines.remove(line)

    def _leave(self, waiter: Waiter) -> None:
        self._waiters.pop(waiter, None)
        self._leave_line(waiter)

    def serve(self, kind: Kind) -> None:
        """Give free slots of a kind to those who have waited longest."""
        while (waiter := kind.first) is not None:
            host = kind.best(further=waiter.has_slot)
            if host is None:
                return
            self._grant(waiter, kind, host)

    def _grant(self, waiter: Waiter, kind: Kind, host: PooledHost) -> None:
        self._leave(waiter)
        if waiter.future.done():
            return
        fleet, rollout_id = self.fleets[kind.member], waiter.request.spec.rollout_id
        if rollout_id is not None:
            fleet.holders[rollout_id] += 1
        fleet.latest = waiter.kind = kind
        self._moved = asyncio.get_running_loop().time()
        waiter.future.set_result(host.seat(rollout_id, functools.partial(self._take_back, kind, host)))
        self._waits.add(self._moved - waiter.since)

    async def _take_back(self, kind: Kind, host: PooledHost, seat: HostSeat) -> None:
        fleet = self.fleets[kind.member]
        self._moved = asyncio.get_running_loop().time()
        if seat.rollout_id is not None:
            fleet.holders[seat.rollout_id] -= 1
            if not fleet.holders[seat.rollout_id]:
                del fleet.holders[seat.rollout_id]
        if host not in kind.hosts:
            return
        self.serve(kind)
        if not host.seats:
            host.idle_since = self._moved
            fleet.review(host, self._moved)
        self.grow()

    def grow(self) -> None:
        """Start the hosts that are wanted, as many as may exist and be starting, for the longest wait first."""
        if self._closings:
            return
        now = asyncio.get_running_loop().time()
        for line in sorted(self._lines.values(), key=lambda line: line.first.rank):
            while line.missing and self._start_for(line, now):
                pass
        for fleet in self.fleets:
            fleet.keep_minimum(now)
        self._watch()

    def _start_for(self, line: Line, now: float) -> bool:
        able = self._able(line.kinds, now)
        ready = [kind for kind in able if self.fleets[kind.member].may_start(kind, now)]
        open_ = [kind for kind in ready if not self.fleets[kind.member].is_full]
        if open_:
            kind = self._roomiest(open_)
            self.fleets[kind.member].start(kind, now)
        elif ready and all(self.fleets[kind.member].is_full for kind in able):
            make_room(line, [self.fleets[kind.member] for kind in ready], now)
        return bool(open_)

    def _able(self, kinds: Sequence[Kind], now: float) -> Sequence[Kind]:
        """Return the kinds that are not set apart; where all are, the one that is so for longest.

        They are tried all the same, in turn: what failed for one need not fail for the next.
        """
        able = [kind for kind in kinds if now >= self._apart_until(kind)]
        return able or [min(kinds, key=self._apart_until)]

    def _apart_until(self, kind: Kind) -> float:
        return max(kind.apart_until, self.fleets[kind.member].apart_until)

    def _roomiest(self, kinds: Sequence[Kind]) -> Kind:
        return max(kinds, key=lambda kind: self.fleets[kind.member].room)

    def note_failure(self, kind: Kind) -> None:
        """Refuse the waiters for a kind of which no host can be started, except those that another may serve."""
        for waiter in [waiter for line in kind.lines for waiter in line]:
            waiter.has_seen_failure = True
            told = self._end_of_hope(waiter)
            if told is not None:
                self.refuse(waiter, told)

    def _end_of_hope(self, waiter: Waiter) -> BaseException | None:
        """Return the error of a waiter if no member can start a host for it; None while one may."""
        line = waiter.line
        if line is None or waiter.is_expecting or not all(self._is_hopeless(kind) for kind in line.kinds):
            return None
        failures = self._failures(waiter)
        if len(self.fleets) > 1 and waiter.member is None:
            return all_failed(failures)
        ((name, error),), (kind,) = failures.items(), line.kinds
        return retold(error) if is_final(error) else gave_up(name, kind.backoff.failures, error)

    def _is_hopeless(self, kind: Kind) -> bool:
        """Tell whether too many starts of such a host have failed in a row, or the last one for good."""
        if kind.failure is None or kind.has_ready:
            return False
        return is_final(kind.failure) or kind.backoff.failures >= self.options.max_failures

    def _failures(self, waiter: Waiter) -> dict[str, BaseException]:
        """Return what last failed at the members that may serve a waiter, by their names."""
        fleets = self.fleets if waiter.member is None else [self.fleets[waiter.member]]
        of_kinds = {kind.member: kind.failure for kind in waiter.line.kinds} if waiter.line else {}
        failures = ((fleet.name, of_kinds.get(fleet.number) or fleet.trouble) for fleet in fleets)
        return {name: error for name, error in failures if error is not None}

    def _watch(self) -> None:
        """Look at all hosts and all who wait again, as long as there are any."""
        if self._timer is None and not self._closings and (self._waiters or any(fleet.hosts for fleet in self.fleets)):
            self._timer = asyncio.get_running_loop().call_later(self._pause(), self._tick)

    def _pause(self) -> float:
        options, now = self.options, asyncio.get_running_loop().time()
        times = [_TICK, options.health_interval / 2, options.idle_timeout / 2, options.quarantine / 2]
        times += [options.start_timeout / 2, options.acquire_timeout / 4]
        times += [kind.backoff.until - now for line in self._lines.values() for kind in line.kinds]
        return max(0.01, min(time for time in times if time > 0))

    def _tick(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for fleet in self.fleets:
            for host in fleet.hosts:
                fleet.review(host, now)
        self._refuse_late(now)
        self.grow()

    def _refuse_late(self, now: float) -> None:
        """Refuse those who have waited long enough for an offer, or in a queue that does not move."""
        options = self.options
        is_moving = now - self._moved < options.acquire_timeout or any(fleet.has_coming for fleet in self.fleets)
        # An offer may need what a start needs, such as an image; what moves the queue does not bring it nearer.
        in_line = math.inf if is_moving else options.acquire_timeout
        limits = {waiter: options.start_timeout if waiter.line is None else in_line for waiter in self._waiters}
        late = [waiter for waiter, limit in limits.items() if now - waiter.since >= limit]
        if not late:
            return
        stats = self.stats()
        for waiter in late:
            self.refuse(waiter, self._why_late(waiter, stats))

    def _why_late(self, waiter: Waiter, stats: PoolStats) -> BackendError:
        failures = self._failures(waiter)
        if waiter.line is None:
            return no_offer(stats, self.options.start_timeout, failures, names=self._names)
        return too_late(stats, self.options.acquire_timeout, failures, names=self._names)
