"""The hosts of a pool: when they are started, looked at, set apart and ended."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Final

from hermes_core.contracts.errors import BackendError
from hermes_pool.creation import Backoff, CreationRate
from hermes_pool.kinds import Kind, Waiter
from hermes_pool.options import PoolOptions
from hermes_pool.pooled_host import HostState, PooledHost
from hermes_pool.reporting import gave_up, is_final, retold, said

_TICK: Final = 0.5
"""Seconds between two looks at all hosts, at most."""


class Fleet:
    """Starts hosts for those who wait, and ends those that nobody needs or that are not well.

    Args:
        options: Bounds and times.
        name: Of the pool.
        rate: How many may be starting at a time.
        chance: For the jitter of pauses.
        serve: Called with a kind of which there may be free slots.
    """

    def __init__(
        self,
        options: PoolOptions,
        *,
        name: str,
        rate: CreationRate,
        chance: random.Random | None,
        serve: Callable[[Kind], None],
    ) -> None:
        self.options = options
        self.name = name
        self.rate = rate
        self.kinds: dict[Hashable, Kind] = {}
        self.counts: Counter[str] = Counter()
        self.last_failure: str | None = None
        self.latest: tuple[Kind, Waiter] | None = None
        """Whose hosts are the ones that are kept or made for `min_hosts`."""
        self.closing = False
        self._chance = chance
        self._serve = serve
        self._left: list[str] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def hosts(self) -> list[PooledHost]:
        """All hosts, in whatever state."""
        return [host for kind in self.kinds.values() for host in kind.hosts]

    @property
    def waiting(self) -> int:
        """How many wait for a slot, of any kind."""
        return sum(len(kind.waiting) for kind in self.kinds.values())

    def kind(self, key: Hashable) -> Kind:
        """Return what a key stands for."""
        if key not in self.kinds:
            self.kinds[key] = Kind(key, Backoff(self._chance))
        return self.kinds[key]

    async def aclose(self) -> None:
        """Refuse those who wait and end every host, used or not.

        Raises:
            BackendError: Hosts could not be ended, now or earlier.
        """
        self.closing = True
        try:
            for kind in self.kinds.values():
                self.refuse(kind, self.closed())
            for task in list(self._tasks):
                if task.get_name() != "end":
                    task.cancel()
            await self._settled()
            for host in self.hosts:
                self._end(host)
            await self._settled()
            self.kinds.clear()
            self.latest = None
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        finally:
            # Cancelled, it keeps what it has not ended: for the next call, or for those who still have slots.
            self.closing = False
        left, self._left = self._left, []
        if left:
            raise BackendError(
                f"{len(left)} hosts of pool {self.name!r} could not be ended: {'; '.join(left[:3])}",
                hint="hermes-core sandboxes gc --all removes what is left once this process has ended",
            )

    async def _settled(self) -> None:
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    def closed(self) -> BackendError:
        """Return what those are told who come too late."""
        return BackendError(f"pool {self.name!r} is being closed")

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def refuse(self, kind: Kind, error: BaseException) -> None:
        """Tell all who wait for a kind why they wait in vain."""
        waiting, kind.waiting = list(kind.waiting), type(kind.waiting)()
        for waiter in waiting:
            if not waiter.future.done():
                waiter.future.set_exception(retold(error))

    def grow(self) -> None:
        """Start the hosts that are wanted, as many as may exist and be starting, for the longest wait first."""
        if self.closing:
            return
        now = asyncio.get_running_loop().time()
        wanting = sorted((kind for kind in self.kinds.values() if kind.waiting), key=_first_turn)
        for kind in wanting:
            for _ in range(kind.missing):
                first = kind.first
                if first is None or not self._start_one(kind, first, now):
                    break
        if self.latest is not None:
            while len(self.hosts) < self.options.min_hosts and self._start_one(*self.latest, now):
                pass

    def _start_one(self, kind: Kind, waiter: Waiter, now: float) -> bool:
        hosts = self.hosts
        if now < kind.backoff.until:
            return False
        if sum(host.state is HostState.STARTING for host in hosts) >= self.rate.allowed:
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
        closing = sum(host.state is HostState.CLOSING for host in hosts)
        if closing >= kind.missing:
            return
        others = [host for host in hosts if self._can_go(host, _first_turn(kind))]
        idle = [host for host in others if not host.seats]
        if idle:
            self._end(min(idle, key=lambda host: host.idle_since))
        # Those that take nobody new already go with their last users.
        elif others and not kind.hosts and closing + _draining(hosts) < kind.missing:
            min(others, key=lambda host: len(host.seats)).spoil()

    def _can_go(self, host: PooledHost, turn: int) -> bool:
        if host.state is HostState.QUARANTINED:
            return True
        first = self.kinds[host.key].first
        return host.state is HostState.READY and (first is None or first.turn > turn)

    async def _create(self, kind: Kind, host: PooledHost, waiter: Waiter) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            await host.begin(waiter.make_host, waiter.request)
        except asyncio.CancelledError:
            kind.hosts.remove(host)
            self._left += [host.complaint] if host.complaint else []
            raise
        except Exception as error:  # noqa: BLE001 - the backend's code: whatever it raises, those who wait are told
            kind.hosts.remove(host)
            self._left += [host.complaint] if host.complaint else []
            self._failed(kind, error, loop.time())
        else:
            self.counts["created"] += 1
            self.rate.succeeded(loop.time() - began)
            kind.backoff.succeeded()
            kind.failure = None
            host.idle_since = host.asked_at = loop.time()
            host.state = HostState.READY
            self._serve(kind)
        self.grow()
        self.watch()

    def _failed(self, kind: Kind, error: BaseException, now: float) -> None:
        self.counts["failed"] += 1
        self.last_failure = said(error)
        self.rate.failed()
        kind.backoff.failed(now)
        kind.failure = error
        if kind.has_ready:
            return  # the config works: who waits has a slot when one is given back
        if is_final(error):
            self.refuse(kind, error)
        elif kind.backoff.failures >= self.options.max_failures:
            self.refuse(kind, gave_up(self.name, kind.backoff.failures, error))

    def _end(self, host: PooledHost) -> None:
        if host.state is not HostState.CLOSING:
            host.state = HostState.CLOSING
            self._spawn(self._ended(host), "end")

    async def _ended(self, host: PooledHost) -> None:
        try:
            await host.end()
        except Exception as error:  # noqa: BLE001 - the backend's code; told by `aclose`
            self._left.append(said(error))
        kind = self.kinds[host.key]
        kind.hosts.remove(host)
        if not kind.hosts and not kind.waiting and kind.failure is None and not self._is_latest(kind):
            del self.kinds[host.key]
        self.grow()

    def _is_latest(self, kind: Kind) -> bool:
        return self.latest is not None and self.latest[0] is kind

    def watch(self) -> None:
        """Look at all hosts again, as long as there are any or somebody waits."""
        if self._timer is None and not self.closing and (self.waiting or self.hosts):
            self._timer = asyncio.get_running_loop().call_later(self._pause(), self._tick)

    def _pause(self) -> float:
        options, now = self.options, asyncio.get_running_loop().time()
        times = [_TICK, options.health_interval / 2, options.idle_timeout / 2, options.quarantine / 2]
        times += [kind.backoff.until - now for kind in self.kinds.values() if kind.waiting]
        return max(0.01, min(time for time in times if time > 0))

    def _tick(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for host in self.hosts:
            self.review(host, now)
        self.grow()
        self.watch()

    def review(self, host: PooledHost, now: float) -> None:
        """Do with a host what its state and the time ask for."""
        if host.state in {HostState.STARTING, HostState.CLOSING}:
            return
        if host.lost is not None:
            self.counts["lost"] += 1
            self._end(host)
        elif host.state is HostState.DRAINING:
            if not host.seats:
                self._end(host)
        elif host.state is HostState.READY and not host.seats and self._is_superfluous(host, now):
            self._end(host)
        elif host.asking is None and now - host.asked_at >= self._next_look(host):
            host.asking = self._spawn(self._ask(host), "ask")

    def _is_superfluous(self, host: PooledHost, now: float) -> bool:
        ready = sum(other.state is HostState.READY for other in self.hosts)
        return now - host.idle_since >= self.options.idle_timeout and ready > self.options.min_hosts

    def _next_look(self, host: PooledHost) -> float:
        return self.options.quarantine if host.state is HostState.QUARANTINED else self.options.health_interval

    async def _ask(self, host: PooledHost) -> None:
        complaint = await host.ask(self.options.health_timeout)
        host.asking = None
        host.asked_at = asyncio.get_running_loop().time()
        self._judge(host, complaint)
        self.review(host, host.asked_at)
        self.grow()

    def _judge(self, host: PooledHost, complaint: str | None) -> None:
        if complaint is not None:
            host.complaint = complaint
        if host.lost is not None:
            return
        if host.state is HostState.READY and complaint is not None:
            self.counts["quarantined"] += 1
            host.state = HostState.QUARANTINED
        elif host.state is HostState.QUARANTINED and complaint is not None:
            host.state = HostState.DRAINING
        elif host.state is HostState.QUARANTINED:
            host.state = HostState.READY
            self._serve(self.kinds[host.key])


def _draining(hosts: list[PooledHost]) -> int:
    return sum(host.state is HostState.DRAINING for host in hosts)


def _first_turn(kind: Kind) -> int:
    first = kind.first
    return -1 if first is None else first.turn
