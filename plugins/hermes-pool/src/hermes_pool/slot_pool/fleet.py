"""The hosts of one backend of a pool: how they are started, looked at, set apart and ended."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Collection, Coroutine
from typing import Any, Final, Protocol

from hermes_core.contracts.errors import BackendError
from hermes_pool.options import OptionNames, PoolOptions
from hermes_pool.refusals import is_final, is_late, message_of, start_given_up
from hermes_pool.slot_pool.creation_rate import Backoff, CreationRate
from hermes_pool.slot_pool.host_kinds import Kind, Kinds
from hermes_pool.slot_pool.pooled_host import HostState, PooledHost
from hermes_sandbox.backends import SlotOffer, SlotRequest

REMOVING: Final = 30.0
"""Seconds in which a start that was cancelled must have ended; then it is waited for no longer."""


class Demand(Protocol):
    """Those who wait for hosts, as a fleet knows them."""

    def serve(self, kind: Kind) -> None:
        """Give out free slots of a kind."""
        ...

    def note_failure(self, kind: Kind) -> None:
        """Refuse the waiters that no host can serve any more, after the start of one has failed."""
        ...

    def grow(self) -> None:
        """Start the hosts that are wanted."""
        ...


class Fleet:
    """The hosts of one backend; belongs to the queue of those who wait for them.

    Args:
        number: Its place among those of the pool.
        options: Bounds and times.
        name: Of the backend, for messages.
        rate: How many may be starting at a time.
        chance: For the jitter of pauses.
        demand: Who waits for hosts.
        names: What the options are called where a user sets them.
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
        """How many slots each trajectory has here."""
        self.last_failure: str | None = None
        self.slots_per_host: int | None = None
        """Known when somebody has asked, since the backend may allow fewer than the options."""
        self.latest: Kind | None = None
        """Whose hosts are the ones that are kept or made for `min_hosts`."""
        self.trouble: BaseException | None = None
        """What last went wrong here; None once a host has started since."""
        self.apart_until = 0.0
        """Until when no more hosts are started here while another backend may have them."""
        self.rate = rate
        self._chance = chance
        self._demand = demand
        self._names = names
        self._left: list[str] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._abandoned: set[asyncio.Task[None]] = set()

    @property
    def hosts(self) -> list[PooledHost]:
        """All hosts, in whatever state."""
        return [host for kind in self.kinds.values() for host in kind.hosts]

    @property
    def used(self) -> int:
        """How many slots are taken."""
        return sum(len(host.seats) for host in self.hosts)

    @property
    def capacity(self) -> int | None:
        """How many slots there would be with all hosts; None before somebody has asked for the first."""
        return None if self.slots_per_host is None else self.options.max_hosts * self.slots_per_host

    @property
    def room(self) -> int:
        """How many more slots it could give out now, with the hosts that may still be started."""
        hosts = self.hosts
        slots = self.slots_per_host or self.options.slots_per_host
        return sum(host.free for host in hosts) + max(0, self.options.max_hosts - len(hosts)) * slots

    @property
    def has_coming(self) -> bool:
        """Whether a host is being started, for as long as its start may take."""
        return any(host.state is HostState.STARTING for host in self.hosts)

    @property
    def is_full(self) -> bool:
        """Whether there are as many hosts as there may be."""
        return len(self.hosts) >= self.options.max_hosts

    def set_apart(self, error: BaseException) -> None:
        """Start no more hosts here for a while, as long as another backend may have them."""
        self.trouble = error
        self.apart_until = asyncio.get_running_loop().time() + self.options.quarantine

    def note_unusable_slot(self, error: BackendError) -> None:
        """Take note of a slot that could not be opened in a host that works."""
        self.counts["failed"] += 1
        self.last_failure = message_of(error)
        self.set_apart(error)

    def is_apart(self, now: float) -> bool:
        """Tell whether it has failed a short while ago."""
        return now < self.apart_until

    def kind(self, offer: SlotOffer, request: SlotRequest) -> Kind:
        """Return the kind of an offer, whose next host is made as this offer says."""
        if offer.key not in self.kinds:
            self.kinds.forget(self.latest)
            self.kinds[offer.key] = Kind(offer.key, self.number, Backoff(self._chance))
        kind = self.kinds[offer.key]
        kind.limit = self.slots_per_host = min(offer.limit, self.options.slots_per_host)
        kind.make_host, kind.request = offer.make_host, request
        return kind

    async def aclose(self) -> None:
        """End every host, used or not; nobody may be let in meanwhile.

        Raises:
            BackendError: Hosts could not be ended, now or earlier.
        """
        # Cancelled, it keeps what it has not ended: for the next call, or for those who still have slots.
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

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def may_start(self, kind: Kind, now: float) -> bool:
        """Tell whether one more host may be starting now, where there is room for it."""
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
        """Start hosts up to `min_hosts`, once one was needed."""
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
            kind.failure = self.trouble = None
            kind.apart_until = self.apart_until = 0.0
            host.idle_since = host.asked_at = loop.time()
            host.state = HostState.READY
            host.is_late = False
            self._demand.serve(kind)
        self._demand.grow()

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
            self.give_up(host, now)
        else:
            host.is_late = seconds >= options.acquire_timeout / 2
            if kind.is_stalled and not self.is_apart(now):
                self.set_apart(is_late(self.name, seconds, self._names))

    def give_up(self, host: PooledHost, now: float) -> None:
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
        if is_final(error):
            # The member may work for sandboxes of other kinds.
            kind.apart_until = now + self.options.quarantine
        elif not any(host.state is HostState.READY for host in self.hosts):
            self.set_apart(error)
        # Where a host works, so does the config: who waits has a slot when one is given back.
        if not kind.has_ready:
            self._demand.note_failure(kind)

    def end(self, host: PooledHost) -> None:
        """End a host, used or not."""
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
        self.kinds.forget(self.latest)
        self._demand.grow()

    def review(self, host: PooledHost, now: float) -> None:
        """Do with a host what its state and the time ask for."""
        if host.state is HostState.STARTING or host.given_up is not None:
            self._look_at_start(host, now)
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
        self._demand.grow()

    def _judge(self, host: PooledHost, complaint: str | None) -> None:
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
