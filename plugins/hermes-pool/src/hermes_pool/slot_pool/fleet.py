"""The hosts of one member of a pool: starts, checks, quarantines and ends them."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Collection, Coroutine
from typing import Any, Final, Protocol

from hermes_core.cli import plural
from hermes_core.contracts.errors import BackendError
from hermes_pool.options import OptionNames, PoolOptions
from hermes_pool.refusals import is_final, late_start_error, message_of, start_timeout_error
from hermes_pool.slot_pool.creation_rate import Backoff, CreationRate
from hermes_pool.slot_pool.host_kinds import Kind, Kinds
from hermes_pool.slot_pool.pooled_host import HostState, PooledHost
from hermes_sandbox.backends import SlotOffer, SlotRequest

REMOVING: Final = 30.0
"""Seconds in which a cancelled start must have ended; then the pool stops waiting for it."""


class Demand(Protocol):
    """The methods that a fleet calls on the queue whose waiters it serves."""

    def serve(self, kind: Kind) -> None:
        """Give free slots of a kind to its waiters."""
        ...

    def note_failure(self, kind: Kind) -> None:
        """Refuse the waiters that no host can serve any more, after a start has failed."""
        ...

    def grow(self) -> None:
        """Start the hosts that the waiters need."""
        ...


class Fleet:
    """The hosts of one member of a pool; belongs to a slot queue.

    Args:
        number: The number of the member, from 0.
        options: Bounds and times.
        name: Name of the member in messages.
        rate: The limit of concurrent starts.
        chance: Source of the jitter of pauses.
        demand: The queue.
        names: Names of the options in messages, as the user sets them.
    """

    def __init__(
        self,
        number: int,
        options: PoolOptions,
        *,
        name: str,
        rate: CreationRate,
        chance: random.Random | None,
        demand: Demand,
        names: OptionNames,
    ) -> None:
        self.number = number
        self.options = options
        self.name = name
        self.kinds = Kinds()
        self.counts: Counter[str] = Counter()
        self.holders: Counter[str] = Counter()
        """The number of slots of each trajectory, by its `rollout_id`."""
        self.last_failure: str | None = None
        self.slots_per_host: int | None = None
        """Known after the first offer, since the backend may allow fewer than the options; None before."""
        self.latest: Kind | None = None
        """The kind of which hosts are started for `min_hosts`: the one that was used last."""
        self.trouble: BaseException | None = None
        """The last failure of this member; None after a host has started since."""
        self.apart_until = 0.0
        """Until when hosts are started on other members instead, if they can serve the waiters."""
        self.rate = rate
        self._chance = chance
        self._demand = demand
        self._names = names
        self._left: list[str] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._abandoned: set[asyncio.Task[None]] = set()

    @property
    def hosts(self) -> list[PooledHost]:
        """All hosts, in any state."""
        return [host for kind in self.kinds.values() for host in kind.hosts]

    @property
    def used(self) -> int:
        """The number of slots in use."""
        return sum(len(host.seats) for host in self.hosts)

    @property
    def capacity(self) -> int | None:
        """The number of slots of `max_hosts` hosts; None before the first offer."""
        return None if self.slots_per_host is None else self.options.max_hosts * self.slots_per_host

    @property
    def room(self) -> int:
        """The number of free slots, with those of the hosts that may still be started."""
        hosts = self.hosts
        slots = self.slots_per_host or self.options.slots_per_host
        return sum(host.free for host in hosts) + max(0, self.options.max_hosts - len(hosts)) * slots

    @property
    def has_coming(self) -> bool:
        """Whether a host is being started, late or not."""
        return any(host.state is HostState.STARTING for host in self.hosts)

    @property
    def is_full(self) -> bool:
        """Whether there are `max_hosts` hosts."""
        return len(self.hosts) >= self.options.max_hosts

    def set_apart(self, error: BaseException) -> None:
        """Record a failure, and for `quarantine` seconds start hosts on other members instead, if possible."""
        self.trouble = error
        self.apart_until = asyncio.get_running_loop().time() + self.options.quarantine

    def note_unusable_slot(self, error: BackendError) -> None:
        """Record that a slot could not be opened in a host that works."""
        self.counts["failed"] += 1
        self.last_failure = message_of(error)
        self.set_apart(error)

    def is_apart(self, now: float) -> bool:
        """Tell whether hosts are to be started on other members instead, because of a recent failure."""
        return now < self.apart_until

    def kind(self, offer: SlotOffer, request: SlotRequest) -> Kind:
        """Return the kind of an offer, and make its next hosts by this offer."""
        if offer.key not in self.kinds:
            self.kinds.forget(self.latest)
            self.kinds[offer.key] = Kind(offer.key, self.number, Backoff(self._chance))
        kind = self.kinds[offer.key]
        kind.limit = self.slots_per_host = min(offer.limit, self.options.slots_per_host)
        kind.make_host, kind.request = offer.make_host, request
        return kind

    async def aclose(self) -> None:
        """End every host, in use or not; the queue must give out no slots meanwhile.

        Raises:
            BackendError: Hosts could not be ended, now or earlier.
        """
        # A cancelled call keeps the hosts that it has not ended, for the next call and for the slots still in use.
        for task in list(self._tasks):
            if task.get_name() != "end":
                task.cancel()
        await self._await_tasks(give_up={"create"})
        for host in self.hosts:
            self.end(host)
        await self._await_tasks()
        self.kinds.clear()
        self.latest = None
        left, self._left = self._left, []
        if left:
            raise BackendError(
                f"{plural(len(left), 'host')} of pool {self.name!r} could not be ended: {'; '.join(left[:3])}",
                hint="hermes-core sandboxes gc --all removes what is left once this process has ended",
            )

    async def _await_tasks(self, *, give_up: Collection[str] = ()) -> None:
        """Wait for all tasks; abandon those with a name in `give_up` if none ends within `REMOVING` seconds."""
        while self._tasks:
            done, _ = await asyncio.wait(list(self._tasks), timeout=REMOVING if give_up else None)
            stuck = [] if done else [task for task in self._tasks if task.get_name() in give_up]
            for task in stuck:
                self._abandon(task)

    def _abandon(self, task: asyncio.Task[None]) -> None:
        """Stop waiting for the start of a host that was cancelled and does not end."""
        self._tasks.discard(task)
        self._abandoned.add(task)
        task.add_done_callback(self._abandoned.discard)
        for kind in self.kinds.values():
            for host in [host for host in kind.hosts if host.starting is task]:
                host.given_up = asyncio.get_running_loop().time()
                kind.hosts.remove(host)
                self._left.append("its start was cancelled, and has not ended")

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def may_start(self, kind: Kind, now: float) -> bool:
        """Tell whether the pause after failures and the limit of concurrent starts allow one more start now."""
        coming = sum(host.is_coming for host in self.hosts)
        return now >= kind.backoff.until and coming < self.rate.allowed

    def start(self, kind: Kind, now: float) -> None:
        """Start a host."""
        host = PooledHost(kind.key, kind.limit)
        host.began = now
        kind.hosts.append(host)
        self.latest = self.latest or kind
        host.starting = self._spawn(self._create(kind, host), "create")

    def keep_minimum(self, now: float) -> None:
        """Start hosts up to `min_hosts`, after the first one was needed."""
        kind = self.latest
        while kind is not None and len(self.hosts) < self.options.min_hosts and self.may_start(kind, now):
            self.start(kind, now)

    async def _create(self, kind: Kind, host: PooledHost) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert kind.make_host is not None
        assert kind.request is not None
        try:
            await host.begin(kind.make_host, kind.request)
        except asyncio.CancelledError:
            self._withdraw(kind, host)
            if host.given_up is None:
                raise
        except Exception as error:  # noqa: BLE001 - the backend's code: whatever it raises, the waiters get an error
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
            kind.failure = self.trouble = None
            kind.apart_until = self.apart_until = 0.0
            host.idle_since = host.checked_at = loop.time()
            host.state = HostState.READY
            host.is_late = False
            self._demand.serve(kind)
        self._demand.grow()

    def _withdraw(self, kind: Kind, host: PooledHost) -> None:
        """Remove a host that did not start from the table; `aclose` reports what could not be removed of it."""
        if host in kind.hosts:
            kind.hosts.remove(host)
        self._left += [host.complaint] if host.complaint else []

    def _check_start(self, host: PooledHost, now: float) -> None:
        """Mark a start that takes long as late, and give it up after `start_timeout`."""
        seconds, options, kind = now - host.began, self.options, self.kinds[host.key]
        if host.given_up is not None:
            if now - host.given_up >= REMOVING and host.starting is not None:
                self._abandon(host.starting)
        elif seconds >= options.start_timeout:
            self.give_up(host, now)
        else:
            host.is_late = seconds >= options.acquire_timeout / 2
            if kind.is_stalled and not self.is_apart(now):
                self.set_apart(late_start_error(self.name, seconds, self._names))

    def give_up(self, host: PooledHost, now: float) -> None:
        """Cancel a start that takes too long; until it has ended, the host counts as closing."""
        host.given_up = now
        host.state = HostState.CLOSING
        if host.starting is not None:
            host.starting.cancel()
        self._note_failure(self.kinds[host.key], start_timeout_error(self.name, now - host.began, self._names), now)

    def _note_failure(self, kind: Kind, error: BaseException, now: float) -> None:
        self.counts["failed"] += 1
        self.last_failure = message_of(error)
        self.rate.note_failure()
        kind.backoff.begin_pause(now)
        kind.failure = error
        if is_final(error):
            # The member may work for sandboxes of other kinds.
            kind.apart_until = now + self.options.quarantine
        elif not any(host.state is HostState.READY for host in self.hosts):
            self.set_apart(error)
        # If a host of this kind works, its slots will be given back, and the waiters get those.
        if not kind.has_ready:
            self._demand.note_failure(kind)

    def end(self, host: PooledHost) -> None:
        """End a host, in use or not."""
        if host.state is not HostState.CLOSING:
            host.state = HostState.CLOSING
            self._spawn(self._end_host(host), "end")

    async def _end_host(self, host: PooledHost) -> None:
        try:
            await host.end()
        except Exception as error:  # noqa: BLE001 - the backend's code; `aclose` reports it
            self._left.append(message_of(error))
        kind = self.kinds.get(host.key)
        if kind is not None and host in kind.hosts:
            kind.hosts.remove(host)
        self.kinds.forget(self.latest)
        self._demand.grow()

    def review(self, host: PooledHost, now: float) -> None:
        """End, check or give up a host, as its state and the time require."""
        if host.state is HostState.STARTING or host.given_up is not None:
            self._check_start(host, now)
        elif host.state is HostState.CLOSING:
            return
        elif host.lost is not None:
            self.counts["lost"] += 1
            self.end(host)
        elif host.state is HostState.DRAINING:
            if not host.seats:
                self.end(host)
        elif host.state is HostState.READY and not host.seats and self._is_superfluous(host, now):
            self.end(host)
        elif host.checking is None and now - host.checked_at >= self._check_interval(host):
            host.checking = self._spawn(self._check(host), "check")

    def _is_superfluous(self, host: PooledHost, now: float) -> bool:
        ready = sum(other.state is HostState.READY for other in self.hosts)
        return now - host.idle_since >= self.options.idle_timeout and ready > self.options.min_hosts

    def _check_interval(self, host: PooledHost) -> float:
        return self.options.quarantine if host.state is HostState.QUARANTINED else self.options.health_interval

    async def _check(self, host: PooledHost) -> None:
        complaint = await host.check(self.options.health_timeout)
        host.checking = None
        host.checked_at = asyncio.get_running_loop().time()
        self._note_health(host, complaint)
        self.review(host, host.checked_at)
        self._demand.grow()

    def _note_health(self, host: PooledHost, complaint: str | None) -> None:
        if complaint is not None:
            host.complaint = complaint
        if host.lost is not None:
            return
        if host.state is HostState.READY and complaint is not None:
            self.counts["quarantined"] += 1
            host.state = HostState.QUARANTINED
        elif host.state is HostState.QUARANTINED and complaint is not None:
            host.retire()
        elif host.state is HostState.QUARANTINED:
            host.state = HostState.READY
            self._demand.serve(self.kinds[host.key])
