"""The queue of waiters for slots, and the starts of hosts for them."""

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
from hermes_pool.refusals import (
    acquire_timeout_error,
    copy_error,
    hosts_left_error,
    is_final,
    no_member_error,
    no_offer_error,
    queue_full_error,
    repeated_failure_error,
)
from hermes_pool.slot_pool.creation_rate import CreationRate, load_per_core
from hermes_pool.slot_pool.fleet import Fleet
from hermes_pool.slot_pool.host_kinds import Kind, Line, Rank, Waiter
from hermes_pool.slot_pool.making_room import make_room
from hermes_pool.slot_pool.pooled_host import HostState, PooledHost
from hermes_pool.slot_pool.slot_records import Slot, slots_of
from hermes_pool.statistics import PoolStats, Waits
from hermes_sandbox.backends import HostSeat, SlotOffer, SlotRequest, SlotReservation

_TICK: Final = 0.5
"""Maximum seconds between two checks of all hosts and waiters."""


class SlotQueue:
    """Gives slots in the hosts of one or several backends, the members, to waiters: in order and within bounds.

    A waiter calls `enter`, gets offers of hosts from some members by `offer`, and calls `take`.

    Of the waiters that a free slot can serve, the one that has waited longest gets it at once. Waiters are refused in a
    queue that has not moved for `acquire_timeout`: no slot of any kind was given out or back, and no host is being
    started. While the waiters outnumber the slots in starting hosts, more hosts are started, on the member with the
    most room. A trajectory that has a slot already (the same `rollout_id`) is served first with its second one, also in
    a full host: it gives back neither before its end. All times are of the event loop's monotonic clock. A queue
    belongs to one event loop.

    Args:
        options: Bounds and times; those of hosts apply to each member.
        name: Name of the pool in messages.
        members: The names of the members.
        load: Returns the load per core of the machine that starts hosts.
        chance: Source of the jitter of pauses.
        names: Names of the options in messages, as the user sets them.
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
        """The number of waiters."""
        return len(self._waiters)

    def stats(self) -> PoolStats:
        """Return the current statistics of all members together."""
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
        """Return a record of every slot, in use or free."""
        return [slot for fleet in self.fleets for host in fleet.hosts for slot in slots_of(host)]

    def enter(self, request: SlotRequest, rank: Rank | None = None, member: int | None = None) -> Waiter:
        """Add a waiter to the queue and return it. The caller must call `take` afterwards, whatever happens in between.

        Args:
            request: What the sandbox requires of its agent.
            rank: The rank of an earlier waiter for the same sandbox, whose slot was of no use, to keep its position.
            member: The number of the only member that may serve it; None if every member may.

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
        """Let these members serve a waiter too, at once if one has a free slot: the one with the most room."""
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
            self.refuse(waiter, queue_full_error(self.stats(), self._names))
        else:
            self.grow()

    async def take(self, waiter: Waiter) -> SlotReservation:
        """Wait for the slot. A cancelled call keeps neither slot nor queue position.

        Raises:
            SlotUnavailableError: The queue has not moved for `acquire_timeout`, or is full.
            BackendError: No member can start a host.
        """
        future = waiter.future
        self._watch()
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                # The slot was granted after the cancellation, before this task ran again.
                await future.result().release()
            raise
        finally:
            self._leave(waiter)

    def end_offers(self, waiter: Waiter) -> None:
        """Expect no further offers to a waiter, and refuse it if the hosts of all those it got cannot be started."""
        waiter.is_expecting = False
        error = self._final_error(waiter) if waiter.has_seen_failure else None
        if error is not None:
            self.refuse(waiter, error)

    def refuse(self, waiter: Waiter, error: BaseException) -> None:
        """Remove a waiter, and raise an error from its `take`."""
        self._leave(waiter)
        if not waiter.future.done():
            waiter.future.set_exception(error)

    @contextlib.contextmanager
    def refuse_all(self) -> Iterator[None]:
        """Refuse all waiters, and new ones within the block."""
        self._closings += 1
        try:
            for waiter in list(self._waiters):
                self.refuse(waiter, self._closing_error())
            yield
        finally:
            self._closings -= 1

    async def aclose(self) -> None:
        """Refuse all waiters and end every host, in use or not. Safe to call twice; the queue is usable again then.

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
            raise hosts_left_error(failures)

    def _closing_error(self) -> BackendError:
        return BackendError(f"pool {self.name!r} is being closed")

    def _preference(self, waiter: Waiter, kind: Kind) -> tuple[int, int]:
        """Return the sort key of a member: first those with slots of the trajectory, then those with the most room."""
        fleet = self.fleets[kind.member]
        return fleet.holders[waiter.request.spec.rollout_id or ""], fleet.room

    def _spread(self, taken: Kind, kinds: Sequence[Kind]) -> None:
        """Start the first host of a member with more room than the one that has just served a waiter."""
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
        """Give the free slots of a kind to its waiters, in order."""
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
        """Start the hosts that the waiters need, within the bounds, for the longest waiters first."""
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
        """Return the kinds that are not set apart after a failure; if all are, the one whose time ends first.

        So at least one is tried at any time: a start that failed for one waiter may work for the next.
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
            error = self._final_error(waiter)
            if error is not None:
                self.refuse(waiter, error)

    def _final_error(self, waiter: Waiter) -> BaseException | None:
        """Return the error for a waiter that no member can serve; None while one may."""
        line = waiter.line
        if line is None or waiter.is_expecting or not all(self._is_hopeless(kind) for kind in line.kinds):
            return None
        failures = self._failures(waiter)
        if len(self.fleets) > 1 and waiter.member is None:
            return no_member_error(failures)
        ((name, error),), (kind,) = failures.items(), line.kinds
        return copy_error(error) if is_final(error) else repeated_failure_error(name, kind.backoff.failures, error)

    def _is_hopeless(self, kind: Kind) -> bool:
        """Tell whether no host of a kind is ready, and its last start failed for good or too many in a row failed."""
        if kind.failure is None or kind.has_ready:
            return False
        return is_final(kind.failure) or kind.backoff.failures >= self.options.max_failures

    def _failures(self, waiter: Waiter) -> dict[str, BaseException]:
        """Return the last failure of each member that may serve a waiter, by their names."""
        fleets = self.fleets if waiter.member is None else [self.fleets[waiter.member]]
        of_kinds = {kind.member: kind.failure for kind in waiter.line.kinds} if waiter.line else {}
        failures = (
            (fleet.name, of_kinds.get(fleet.number) or waiter.failures.get(fleet.name) or fleet.trouble)
            for fleet in fleets
        )
        return {name: error for name, error in failures if error is not None}

    def _watch(self) -> None:
        """Schedule the next check of all hosts and waiters, if there are any."""
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
        """Refuse the waiters that got no offer within `start_timeout`, or wait in a queue that does not move."""
        options = self.options
        is_moving = now - self._moved < options.acquire_timeout or any(fleet.has_coming for fleet in self.fleets)
        # A member may need as long for its offer as for a start, as to pull an image, and the queue may move meanwhile.
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
            return no_offer_error(stats, self.options.start_timeout, failures, names=self._names)
        return acquire_timeout_error(stats, self.options.acquire_timeout, failures, names=self._names)
