"""The slot pool: who gets a slot of which host, and when hosts come and go."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Final

from hermes_core.contracts.errors import BackendError
from hermes_core.sandbox.sharing import MakeHost, Seat
from hermes_core.sandbox.slots import SlotRequest
from hermes_pool.creation import Backoff, CreationRate, load_per_core
from hermes_pool.kinds import Kind, Waiter
from hermes_pool.options import PoolOptions
from hermes_pool.pooled_host import HostState, PooledHost, PoolSeat
from hermes_pool.reporting import gave_up, is_final, retold, said, too_late, too_many
from hermes_pool.slots import Slot
from hermes_pool.statistics import PoolStats, Waits
from hermes_pool.views import slots_of

_TICK: Final = 0.5
"""Seconds between two looks at all hosts, at most."""


class SlotPool:
    """Gives sandboxes their seats in shared hosts: in order, bounded, and within a time; implements `Places`.

    Who has waited longest gets the next slot of his kind; nobody waits while one is free. Hosts are started when the
    queue is longer than what is coming, ended when nobody uses them, and set apart when they are not well. A trajectory
    that has a slot already (the same `rollout_id`) does not queue for another, and may have it in a full host: it gives
    back neither before its end. All times are of the event loop's monotonic clock. Belongs to one event loop.

    Args:
        options: Bounds and times.
        name: Of the backend, for messages.
        load: Returns the load per core of the machine that starts hosts.
        chance: For the jitter of pauses.
    """

    def __init__(
        self,
        options: PoolOptions,
        *,
        name: str,
        load: Callable[[], float] = load_per_core,
        chance: random.Random | None = None,
    ) -> None:
        self.options = options
        self.name = name
        self._chance = chance
        self._rate = CreationRate(options.concurrent_starts, load=load)
        self._kinds: dict[Hashable, Kind] = {}
        self._turns = itertools.count()
        self._holders: Counter[str] = Counter()
        self._waits = Waits()
        self._counts: Counter[str] = Counter()
        self._last_failure: str | None = None
        self._left: list[str] = []
        self._latest: tuple[Kind, Waiter] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False

    async def acquire(self, key: Hashable, make_host: MakeHost, limit: int, request: SlotRequest) -> Seat:
        """Return a seat in a host of this key; when cancelled, nothing is kept, no place in the queue either.

        Raises:
            SlotUnavailableError: None was free in time, or the queue is full.
            BackendError: No host of this kind can be started.
        """
        if self._closing:
            raise self._closed()
        loop = asyncio.get_running_loop()
        waiter = self._waiter(loop, make_host, limit, request)
        kind = self._kinds.get(key) or self._kinds.setdefault(key, Kind(key, Backoff(self._chance)))
        self._latest = (kind, waiter)
        kind.enqueue(waiter)
        self._serve(kind)
        self._watch()
        if waiter.future.done():
            return waiter.future.result()
        if self.waiting > self.options.max_waiting:
            del kind.waiting[waiter]
            raise too_many(self.stats())
        self._grow()
        return await self._waited(loop, kind, waiter)

    def _waiter(self, loop: asyncio.AbstractEventLoop, make_host: MakeHost, limit: int, request: SlotRequest) -> Waiter:
        return Waiter(
            turn=next(self._turns),
            since=loop.time(),
            limit=min(limit, self.options.slots_per_host),
            make_host=make_host,
            request=request,
            further=self._holders[request.spec.rollout_id or ""] > 0,
            future=loop.create_future(),
        )

    async def _waited(self, loop: asyncio.AbstractEventLoop, kind: Kind, waiter: Waiter) -> Seat:
        alarm = loop.call_later(self.options.acquire_timeout, self._expire, kind, waiter)
        try:
            return await waiter.future
        except asyncio.CancelledError:
            future = waiter.future
            if future.done() and not future.cancelled() and future.exception() is None:
                # It came between the cancellation and this.
                await future.result().release()
            raise
        finally:
            alarm.cancel()
            kind.waiting.pop(waiter, None)

    @property
    def waiting(self) -> int:
        """How many wait for a slot."""
        return sum(len(kind.waiting) for kind in self._kinds.values())

    @property
    def free(self) -> int:
        """How many slots could be given out now, or after starting hosts."""
        hosts = self._hosts()
        return sum(host.free for host in hosts) + (self.options.max_hosts - len(hosts)) * self.options.slots_per_host

    def stats(self) -> PoolStats:
        """Return the pool's numbers at this moment."""
        hosts = self._hosts()
        free, used = sum(host.free for host in hosts), sum(len(host.seats) for host in hosts)
        return PoolStats(
            name=self.name,
            total=free + used,
            free=free,
            used=used,
            waiting=self.waiting,
            hosts={state.value: sum(host.state is state for host in hosts) for state in HostState},
            max_hosts=self.options.max_hosts,
            starts_allowed=self._rate.allowed,
            created=self._counts["created"],
            failed=self._counts["failed"],
            lost=self._counts["lost"],
            quarantined=self._counts["quarantined"],
            waits=self._waits.summary(),
            last_failure=self._last_failure,
        )

    def slots(self) -> list[Slot]:
        """Return a record of every slot, taken or free."""
        return [slot for host in self._hosts() for slot in slots_of(host)]

    async def aclose(self) -> None:
        """Refuse those who wait, end every host, used or not; safe to call twice, and the pool is new afterwards.

        Raises:
            BackendError: Hosts could not be ended, now or earlier.
        """
        self._closing = True
        try:
            for kind in self._kinds.values():
                self._refuse(kind, self._closed())
            for task in list(self._tasks):
                if task.get_name() != "end":
                    task.cancel()
            await self._settled()
            for host in self._hosts():
                self._end(host)
            await self._settled()
            self._kinds.clear()
            self._latest = None
        finally:
            self._closing = False
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        left, self._left = self._left, []
        if left:
            raise BackendError(
                f"{len(left)} hosts of pool {self.name!r} could not be ended: {'; '.join(left[:3])}",
                hint="hermes-core sandboxes gc --all removes what is left once this process has ended",
            )

    async def _settled(self) -> None:
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    def _closed(self) -> BackendError:
        return BackendError(f"pool {self.name!r} is being closed")

    def _hosts(self) -> list[PooledHost]:
        return [host for kind in self._kinds.values() for host in kind.hosts]

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

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
                waiter.future.set_result(host.seat(rollout_id, self._released))
                self._waits.add(now - waiter.since)

    def _released(self, seat: PoolSeat) -> None:
        host = seat.owner
        host.seats.pop(seat.number, None)
        if seat.rollout_id is not None:
            self._holders[seat.rollout_id] -= 1
            if not self._holders[seat.rollout_id]:
                del self._holders[seat.rollout_id]
        kind = self._kinds.get(host.key)
        if kind is None or host not in kind.hosts:
            return
        self._serve(kind)
        if not host.seats:
            host.idle_since = asyncio.get_running_loop().time()
            self._review(host, host.idle_since)
        self._grow()

    def _expire(self, kind: Kind, waiter: Waiter) -> None:
        if not waiter.future.done():
            stats = self.stats()
            kind.waiting.pop(waiter, None)
            waiter.future.set_exception(too_late(stats, self.options.acquire_timeout, kind.failure))

    def _refuse(self, kind: Kind, error: BaseException) -> None:
        waiting, kind.waiting = list(kind.waiting), type(kind.waiting)()
        for waiter in waiting:
            if not waiter.future.done():
                waiter.future.set_exception(retold(error))

    def _grow(self) -> None:
        """Start the hosts that are wanted, as many as may exist and be starting, for the longest wait first."""
        if self._closing:
            return
        now = asyncio.get_running_loop().time()
        wanting = sorted((kind for kind in self._kinds.values() if kind.waiting), key=_first_turn)
        for kind in wanting:
            for _ in range(kind.missing):
                first = kind.first
                if first is None or not self._start_one(kind, first, now):
                    break
        if self._latest is not None:
            while len(self._hosts()) < self.options.min_hosts and self._start_one(*self._latest, now):
                pass

    def _start_one(self, kind: Kind, waiter: Waiter, now: float) -> bool:
        hosts = self._hosts()
        if now < kind.backoff.until:
            return False
        if sum(host.state is HostState.STARTING for host in hosts) >= self._rate.allowed:
            return False
        if len(hosts) >= self.options.max_hosts:
            self._make_room(kind, hosts)
            return False
        host = PooledHost(kind.key, waiter.limit)
        kind.hosts.append(host)
        self._spawn(self._create(kind, host, waiter), "create")
        return True

    def _make_room(self, kind: Kind, hosts: list[PooledHost]) -> None:
        """End a host that nobody uses for somebody who waits for another kind, or in place of one that is not well.

        Where all are used, and this kind has none, one takes nobody new: no kind keeps another out for ever.
        """
        going = sum(host.state in {HostState.CLOSING, HostState.DRAINING} for host in hosts)
        if going >= kind.missing:
            return
        others = [host for host in hosts if self._can_go(host, _first_turn(kind))]
        idle = [host for host in others if not host.seats]
        if idle:
            self._end(min(idle, key=lambda host: host.idle_since))
        elif others and not kind.hosts:
            min(others, key=lambda host: len(host.seats)).spoil()

    def _can_go(self, host: PooledHost, turn: int) -> bool:
        if host.state is HostState.QUARANTINED:
            return True
        first = self._kinds[host.key].first
        return host.state is HostState.READY and (first is None or first.turn > turn)

    async def _create(self, kind: Kind, host: PooledHost, waiter: Waiter) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            await host.begin(waiter.make_host, waiter.request)
        except asyncio.CancelledError:
            kind.hosts.remove(host)
            raise
        except Exception as error:  # noqa: BLE001 - the backend's code: whatever it raises, those who wait are told
            kind.hosts.remove(host)
            self._left += [host.complaint] if host.complaint else []
            self._failed(kind, error, loop.time())
        else:
            self._counts["created"] += 1
            self._rate.succeeded(loop.time() - began)
            kind.backoff.succeeded()
            kind.failure = None
            host.idle_since = host.asked_at = loop.time()
            host.state = HostState.READY
            self._serve(kind)
        self._grow()
        self._watch()

    def _failed(self, kind: Kind, error: BaseException, now: float) -> None:
        self._counts["failed"] += 1
        self._last_failure = said(error)
        self._rate.failed()
        kind.backoff.failed(now)
        kind.failure = error
        if kind.has_ready:
            return  # the config works: who waits has a slot when one is given back
        if is_final(error):
            self._refuse(kind, error)
        elif kind.backoff.failures >= self.options.max_failures:
            self._refuse(kind, gave_up(self.name, kind.backoff.failures, error))

    def _end(self, host: PooledHost) -> None:
        if host.state is not HostState.CLOSING:
            host.state = HostState.CLOSING
            self._spawn(self._ended(host), "end")

    async def _ended(self, host: PooledHost) -> None:
        try:
            await host.end()
        except Exception as error:  # noqa: BLE001 - the backend's code; told by `aclose`
            self._left.append(said(error))
        kind = self._kinds[host.key]
        kind.hosts.remove(host)
        if not kind.hosts and not kind.waiting and kind.failure is None and not self._is_latest(kind):
            del self._kinds[host.key]
        self._grow()

    def _is_latest(self, kind: Kind) -> bool:
        return self._latest is not None and self._latest[0] is kind

    def _watch(self) -> None:
        """Look at all hosts again, as long as there are any or somebody waits."""
        if self._timer is None and not self._closing and (self.waiting or self._hosts()):
            self._timer = asyncio.get_running_loop().call_later(self._pause(), self._tick)

    def _pause(self) -> float:
        options, now = self.options, asyncio.get_running_loop().time()
        times = [_TICK, options.health_interval / 2, options.idle_timeout / 2, options.quarantine / 2]
        times += [kind.backoff.until - now for kind in self._kinds.values() if kind.waiting]
        return max(0.01, min(time for time in times if time > 0))

    def _tick(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for host in self._hosts():
            self._review(host, now)
        self._grow()
        self._watch()

    def _review(self, host: PooledHost, now: float) -> None:
        """Do with a host what its state and the time ask for."""
        if host.state in {HostState.STARTING, HostState.CLOSING}:
            return
        if host.lost is not None:
            self._counts["lost"] += 1
            self._end(host)
        elif host.state is HostState.DRAINING:
            if not host.seats:
                self._end(host)
        elif host.state is HostState.READY and not host.seats and self._is_superfluous(host, now):
            self._end(host)
        elif host.asking is None and now - host.asked_at >= self._next_look(host):
            host.asking = self._spawn(self._ask(host), "ask")

    def _is_superfluous(self, host: PooledHost, now: float) -> bool:
        ready = sum(other.state is HostState.READY for other in self._hosts())
        return now - host.idle_since >= self.options.idle_timeout and ready > self.options.min_hosts

    def _next_look(self, host: PooledHost) -> float:
        return self.options.quarantine if host.state is HostState.QUARANTINED else self.options.health_interval

    async def _ask(self, host: PooledHost) -> None:
        complaint = await host.ask(self.options.health_timeout)
        host.asking = None
        host.asked_at = asyncio.get_running_loop().time()
        self._judge(host, complaint)
        self._review(host, host.asked_at)
        self._grow()

    def _judge(self, host: PooledHost, complaint: str | None) -> None:
        if complaint is not None:
            host.complaint = complaint
        if host.lost is not None:
            return
        if host.state is HostState.READY and complaint is not None:
            self._counts["quarantined"] += 1
            host.state = HostState.QUARANTINED
        elif host.state is HostState.QUARANTINED and complaint is not None:
            host.state = HostState.DRAINING
        elif host.state is HostState.QUARANTINED:
            host.state = HostState.READY
            self._serve(self._kinds[host.key])


def _first_turn(kind: Kind) -> int:
    first = kind.first
    return -1 if first is None else first.turn
