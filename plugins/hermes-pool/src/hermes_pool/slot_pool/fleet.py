"""The hosts of a pool: when they are started, looked at, set apart and ended."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Hashable, Iterator
from typing import Any, Final

from hermes_core.contracts.errors import BackendError
from hermes_pool.options import OptionNames, PoolOptions
from hermes_pool.refusals import gave_up, is_final, is_late, message_of, retold, start_given_up
from hermes_pool.slot_pool.creation_rate import Backoff, CreationRate
from hermes_pool.slot_pool.host_kinds import Kind, Kinds, Waiter
from hermes_pool.slot_pool.pooled_host import HostState, PooledHost

_TICK: Final = 0.5
"""Seconds between two looks at all hosts, at most."""
REMOVING: Final = 30.0
"""Seconds in which a start that was cancelled must have ended; then it is waited for no longer."""


class Fleet:
    """Starts hosts for those who wait, and ends those that nobody needs or that are not well.

    Args:
        options: Bounds and times.
        name: Of the pool.
        rate: How many may be starting at a time.
        chance: For the jitter of pauses.
        serve: Called with a kind of which there may be free slots.
        is_impatient: Whether those who wait for hosts that are late are refused, because they may go elsewhere.
        names: What the options are called where a user sets them.
    """

    def __init__(
        self,
        options: PoolOptions,
        *,
        name: str,
        rate: CreationRate,
        chance: random.Random | None,
        serve: Callable[[Kind], None],
        is_impatient: bool,
        names: OptionNames,
    ) -> None:
        self.options = options
        self.name = name
        self.rate = rate
        self.kinds = Kinds()
        self.counts: Counter[str] = Counter()
        self.last_failure: str | None = None
        self.latest: tuple[Kind, Waiter] | None = None
        """Whose hosts are the ones that are kept or made for `min_hosts`."""
        self._closings = 0
        self._chance = chance
        self._serve = serve
        self._is_impatient = is_impatient
        self._names = names
        self._left: list[str] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._abandoned: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def hosts(self) -> list[PooledHost]:
        """All hosts, in whatever state."""
        return [host for kind in self.kinds.values() for host in kind.hosts]

    @property
    def has_coming(self) -> bool:
        """Whether a host of any kind is being started, for as long as its start may take."""
        return any(host.state is HostState.STARTING for host in self.hosts)

    @property
    def waiting(self) -> int:
        """How many wait for a slot, of any kind."""
        return sum(len(kind.waiting) for kind in self.kinds.values())

    def kind(self, key: Hashable) -> Kind:
        """Return what a key stands for."""
        if key not in self.kinds:
            self.kinds.forget(None if self.latest is None else self.latest[0])
            self.kinds[key] = Kind(key, Backoff(self._chance))
        return self.kinds[key]

    @property
    def closing(self) -> bool:
        """Whether nobody is let in."""
        return self._closings > 0

    @contextlib.contextmanager
    def refuse_all(self) -> Iterator[None]:
        """Refuse those who wait, and whoever comes within the block."""
        self._closings += 1
        try:
            for kind in self.kinds.values():
                self.refuse(kind, self.closing_error())
            yield
        finally:
            self._closings -= 1

    async def aclose(self) -> None:
        """Refuse those who wait and end every host, used or not.

        Raises:
            BackendError: Hosts could not be ended, now or earlier.
        """
        # Cancelled, it keeps what it has not ended: for the next call, or for those who still have slots.
        with self.refuse_all():
            for task in list(self._tasks):
                if task.get_name() != "end":
                    task.cancel()
            await self._await_tasks(give_up={"create"})
            for host in self.hosts:
                self._end(host)
            await self._await_tasks()
            self.kinds.clear()
            self.latest = None
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        left, self._left = self._left, []
        if left:
            raise BackendError(
                f"{len(left)} hosts of pool {self.name!r} could not be ended: {'; '.join(left[:3])}",
                hint="hermes-core sandboxes gc --all removes what is left once this process has ended",
            )

    async def _await_tasks(self, *, give_up: Collection[str] = ()) -> None:
        """Wait for what is under way; tasks of the names in `give_up` for a while only, in case they go on for ever."""
        while self._tasks:
            done, _ = await asyncio.wait(list(self._tasks), timeout=REMOVING if give_up else None)
            stuck = [] if done else [task for task in self._tasks if task.get_name() in give_up]
            for task in stuck:
                self._abandon(task)

    def _abandon(self, task: asyncio.Task[None]) -> None:
        """Wait no longer for the start of a host that does not end although it was cancelled."""
        self._tasks.discard(task)
        self._abandoned.add(task)
        task.add_done_callback(self._abandoned.discard)
        for kind in self.kinds.values():
            for host in [host for host in kind.hosts if host.starting is task]:
                host.given_up = asyncio.get_running_loop().time()
                kind.hosts.remove(host)
                self._left.append("its start was given up, and goes on although it was cancelled")

    def closing_error(self) -> BackendError:
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
        if sum(host.is_coming for host in hosts) >= self.rate.allowed:
            return False
        if len(hosts) >= self.options.max_hosts:
            self._make_room(kind, hosts)
            return False
        host = PooledHost(kind.key, waiter.limit)
        host.began = now
        kind.hosts.append(host)
        host.starting = self._spawn(self._create(kind, host, waiter), "create")
        return True

    def _make_room(self, kind: Kind, hosts: list[PooledHost]) -> None:
        """End a host that nobody uses for somebody who waits for another kind, or in place of one that is not well.

        Where all are used, and this kind has none, one takes nobody new: no kind keeps another out for ever.
        """
        closing = sum(host.state is HostState.CLOSING for host in hosts)
        if closing >= kind.missing:
            return
        others = [host for host in hosts if self._can_go(host, kind)]
        idle = [host for host in others if not host.seats]
        late = next((host for host in idle if host.is_late), None)
        if late is not None:
            self._give_up(late, asyncio.get_running_loop().time())
        elif idle:
            self._end(min(idle, key=lambda host: host.idle_since))
        # Those that take nobody new already go with their last users.
        elif others and not kind.hosts and closing + _draining(hosts) < kind.missing:
            min(others, key=lambda host: len(host.seats)).spoil()

    def _can_go(self, host: PooledHost, wanting: Kind) -> bool:
        if host.state is HostState.QUARANTINED:
            return True
        if host.state is HostState.STARTING:
            # Never the only hope of those who wait, and nothing for a kind that has a host.
            kind = self.kinds[host.key]
            is_hope = len(kind.hosts) == 1 and kind.first is not None
            return host.is_late and kind is not wanting and not wanting.hosts and not is_hope
        first = self.kinds[host.key].first
        return host.state is HostState.READY and (first is None or first.turn > _first_turn(wanting))

    async def _create(self, kind: Kind, host: PooledHost, waiter: Waiter) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            await host.begin(waiter.make_host, waiter.request)
        except asyncio.CancelledError:
            self._withdraw(kind, host)
            if host.given_up is None:
                raise
        except Exception as error:  # noqa: BLE001 - the backend's code: whatever it raises, those who wait are told
            self._withdraw(kind, host)
            if host.given_up is None:
                self._note_failure(kind, error, loop.time())
        else:
            if host.given_up is not None:
                await self._end_host(host)
                return
            self.counts["created"] += 1
            self.rate.note_success(loop.time() - began)
            kind.backoff.reset()
            kind.failure = None
            host.idle_since = host.asked_at = loop.time()
            host.state = HostState.READY
            host.is_late = False
            self._serve(kind)
        self.grow()
        self.watch()

    def _withdraw(self, kind: Kind, host: PooledHost) -> None:
        """Take a host that is not to be out of the table; what could not be removed of it is told by `aclose`."""
        if host in kind.hosts:
            kind.hosts.remove(host)
        self._left += [host.complaint] if host.complaint else []

    def _look_at_start(self, host: PooledHost, now: float) -> None:
        """Let a start that takes too long keep nobody up, and give it up in the end."""
        seconds, options, kind = now - host.began, self.options, self.kinds[host.key]
        if host.given_up is not None:
            if now - host.given_up >= REMOVING and host.starting is not None:
                self._abandon(host.starting)
        elif seconds >= options.start_timeout:
            self._give_up(host, now)
        else:
            host.is_late = seconds >= options.acquire_timeout / 2
            if self._is_impatient and kind.is_stalled:
                self.refuse(kind, is_late(self.name, seconds, self._names))

    def _give_up(self, host: PooledHost, now: float) -> None:
        """Cancel a start that takes too long; until that is done, the host counts as one that is being closed."""
        host.given_up = now
        host.state = HostState.CLOSING
        if host.starting is not None:
            host.starting.cancel()
        self._note_failure(self.kinds[host.key], start_given_up(self.name, now - host.began, self._names), now)

    def _note_failure(self, kind: Kind, error: BaseException, now: float) -> None:
        self.counts["failed"] += 1
        self.last_failure = message_of(error)
        self.rate.note_failure()
        kind.backoff.begin_pause(now)
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
            self._spawn(self._end_host(host), "end")

    async def _end_host(self, host: PooledHost) -> None:
        try:
            await host.end()
        except Exception as error:  # noqa: BLE001 - the backend's code; told by `aclose`
            self._left.append(message_of(error))
        kind = self.kinds.get(host.key)
        if kind is not None and host in kind.hosts:
            kind.hosts.remove(host)
        self.kinds.forget(None if self.latest is None else self.latest[0])
        self.grow()

    def watch(self) -> None:
        """Look at all hosts again, as long as there are any or somebody waits."""
        if self._timer is None and not self.closing and (self.waiting or self.hosts):
            self._timer = asyncio.get_running_loop().call_later(self._pause(), self._tick)

    def _pause(self) -> float:
        options, now = self.options, asyncio.get_running_loop().time()
        times = [_TICK, options.health_interval / 2, options.idle_timeout / 2, options.quarantine / 2]
        times += [options.start_timeout / 2, options.acquire_timeout / 4]
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
        if host.state is HostState.STARTING or host.given_up is not None:
            self._look_at_start(host, now)
        elif host.state is HostState.CLOSING:
            return
        elif host.lost is not None:
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
