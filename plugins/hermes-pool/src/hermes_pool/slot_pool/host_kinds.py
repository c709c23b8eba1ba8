"""Hosts that serve the same sandboxes, and who waits for a slot in one of them."""

from __future__ import annotations

import asyncio
import bisect
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from hermes_pool.slot_pool.creation_rate import Backoff
from hermes_pool.slot_pool.pooled_host import HostState, PooledHost
from hermes_sandbox.backends import HostSeat, MakeHost, SlotRequest

_REMEMBERED: Final = 16
"""Kinds without hosts whose failures are remembered."""
_RANK: Final = attrgetter("rank")


Rank = tuple[bool, int]
"""Who is served first: those who have a slot already, since they give none back before; then who came first."""


@dataclass(slots=True, eq=False, kw_only=True)
class Waiter:
    """Somebody who waits for a slot, from when he comes until he has it."""

    rank: Rank
    since: float
    request: SlotRequest
    is_surplus: bool
    """Whether the queue was full when he came: he gets a slot at once, or none."""
    future: asyncio.Future[HostSeat]
    member: int | None = None
    """The number of the only member that may serve him; None if every member of the pool may."""
    line: Line | None = None
    """Where he stands; None before the first backend has said that it can serve him."""
    is_expecting: bool = False
    """Whether a backend has not yet said whether it can serve him; until then not all hope is lost."""
    has_seen_failure: bool = False
    """Whether a host that he waited for could not be started."""
    kind: Kind | None = None
    """Of the host in which he has his slot."""

    @property
    def has_slot(self) -> bool:
        """Whether his trajectory had a slot when he came."""
        return not self.rank[0]


class Kind:
    """The hosts of one backend that have a key in common, and what starting such a host last came to."""

    def __init__(self, key: Hashable, member: int, backoff: Backoff) -> None:
        self.key = key
        self.member = member
        """The place of its backend among those of the pool."""
        self.hosts: list[PooledHost] = []
        self.lines: list[Line] = []
        """Those who wait for such a host, or for one of other backends."""
        self.backoff = backoff
        self.failure: BaseException | None = None
        self.apart_until = 0.0
        """Until when another backend's hosts are preferred, after a start that was refused for good."""
        self.limit = 1
        """Slots of a host."""
        self.make_host: MakeHost | None = None
        """How the last one who asked would have a host made, and with what request its agent is greeted."""
        self.request: SlotRequest | None = None

    @property
    def first(self) -> Waiter | None:
        """Who is served next."""
        return min((line.first for line in self.lines), key=_RANK, default=None)

    @property
    def has_ready(self) -> bool:
        """Whether a host of this kind works."""
        return any(host.state is HostState.READY and host.lost is None for host in self.hosts)

    @property
    def is_stalled(self) -> bool:
        """Whether those who wait have nothing to expect but hosts that should have started long ago."""
        return bool(self.hosts) and all(host.state is HostState.STARTING and host.is_late for host in self.hosts)

    @property
    def is_idle(self) -> bool:
        """Whether it has neither hosts nor a queue."""
        return not self.hosts and not self.lines

    @property
    def coming(self) -> int:
        """How many slots there will be in hosts that are starting."""
        return sum(host.limit for host in self.hosts if host.is_coming)

    def best(self, *, further: bool) -> PooledHost | None:
        """Return the emptiest host that gives a slot; one that is full serves who has a slot already, to its double."""
        host = max(self.hosts, key=lambda host: host.free, default=None)
        if host is not None and host.free:
            return host
        if not further:
            return None
        return min((host for host in self.hosts if host.serves_further), key=lambda host: len(host.seats), default=None)


class Line:
    """Those who may have a slot of the same kinds, one of each backend, in order. One without anybody is dropped."""

    def __init__(self, kinds: tuple[Kind, ...]) -> None:
        self.kinds = kinds
        self._waiters: list[Waiter] = []

    def __iter__(self) -> Iterator[Waiter]:
        return iter(tuple(self._waiters))

    def __len__(self) -> int:
        return len(self._waiters)

    @property
    def first(self) -> Waiter:
        """Who is served next."""
        return self._waiters[0]

    @property
    def has_host(self) -> bool:
        """Whether there is a host, in whatever state, that may serve them."""
        return any(kind.hosts for kind in self.kinds)

    @property
    def missing(self) -> int:
        """How many more hosts they could use, besides those that are starting."""
        unserved = len(self._waiters) - sum(kind.coming for kind in self.kinds)
        return max(0, -(-unserved // max(kind.limit for kind in self.kinds)))

    def add(self, waiter: Waiter) -> None:
        """Let somebody stand where his rank is."""
        bisect.insort(self._waiters, waiter, key=_RANK)

    def remove(self, waiter: Waiter) -> None:
        """Let somebody go."""
        del self._waiters[bisect.bisect_left(self._waiters, waiter.rank, key=_RANK)]


class Kinds(dict[Hashable, Kind]):
    """All kinds of a backend. Of those without hosts only the last few that failed are remembered, for their pause."""

    def forget(self, kept: Kind | None) -> None:
        """Drop what nobody needs any more, but `kept`."""
        idle = [kind for kind in self.values() if kind.is_idle and kind is not kept]
        failed = sorted((kind for kind in idle if kind.failure is not None), key=lambda kind: kind.backoff.until)
        remembered = {id(kind) for kind in failed[-_REMEMBERED:]}
        for kind in idle:
            if id(kind) not in remembered:
                del self[kind.key]
