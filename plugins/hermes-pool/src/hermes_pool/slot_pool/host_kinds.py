"""Kinds of hosts, and the waiters for slots in them."""

from __future__ import annotations

import asyncio
import bisect
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

from hermes_core.contracts.errors import BackendError
from hermes_pool.slot_pool.creation_rate import Backoff
from hermes_pool.slot_pool.pooled_host import HostState, PooledHost
from hermes_sandbox.backends import HostSeat, MakeHost, SlotRequest

_REMEMBERED: Final = 16
"""How many kinds without hosts are kept for the sake of their pause after a failure."""
_RANK: Final = attrgetter("rank")


Rank = tuple[bool, int]
"""The order of waiters: those whose trajectory has a slot already are first, since it gives that back only after it got
its second one; then the order of arrival."""


@dataclass(slots=True, eq=False, kw_only=True)
class Waiter:
    """One request for a slot, from its arrival until it has the slot."""

    rank: Rank
    since: float
    request: SlotRequest
    is_surplus: bool
    """Whether the queue was full when it arrived: then it gets a slot at once, or is refused."""
    future: asyncio.Future[HostSeat]
    member: int | None = None
    """The number of the only member that may serve it; None if every member of the pool may."""
    line: Line | None = None
    """The line in which it waits; None before the first member has made an offer."""
    is_expecting: bool = False
    """Whether a member has not answered yet whether it can serve the sandbox; until then, failures refuse no waiter."""
    has_seen_failure: bool = False
    """Whether the start of a host has failed while it waited for one of that kind."""
    failures: dict[str, BackendError] = field(default_factory=dict)
    """The last error of each member that has made it no offer, by the members' names."""
    kind: Kind | None = None
    """The kind of the host in which it got its slot; None until then."""

    @property
    def has_slot(self) -> bool:
        """Whether its trajectory had a slot when it arrived."""
        return not self.rank[0]


class Kind:
    """The hosts of one backend that share a key, and the result of the last start of such a host."""

    def __init__(self, key: Hashable, member: int, backoff: Backoff) -> None:
        self.key = key
        self.member = member
        """The number of its backend among the members of the pool."""
        self.hosts: list[PooledHost] = []
        self.lines: list[Line] = []
        """The lines of waiters that such a host may serve; hosts of other backends may serve them too."""
        self.backoff = backoff
        self.failure: BaseException | None = None
        self.apart_until = 0.0
        """Until when hosts of other members are preferred, after a start was refused for good."""
        self.limit = 1
        """The number of slots of a host."""
        self.make_host: MakeHost | None = None
        """Makes a host, by the latest offer; `request` is the request with which its agent is greeted."""
        self.request: SlotRequest | None = None

    @property
    def first(self) -> Waiter | None:
        """The waiter that is served next."""
        return min((line.first for line in self.lines), key=_RANK, default=None)

    @property
    def has_ready(self) -> bool:
        """Whether a host of this kind is ready, and its agent not lost."""
        return any(host.state is HostState.READY and host.lost is None for host in self.hosts)

    @property
    def is_stalled(self) -> bool:
        """Whether it has hosts, and all of them are starting and late."""
        return bool(self.hosts) and all(host.state is HostState.STARTING and host.is_late for host in self.hosts)

    @property
    def is_idle(self) -> bool:
        """Whether it has neither hosts nor waiters."""
        return not self.hosts and not self.lines

    @property
    def coming(self) -> int:
        """The number of slots in the hosts that are starting."""
        return sum(host.limit for host in self.hosts if host.is_coming)

    def best(self, *, further: bool) -> PooledHost | None:
        """Return the host with the most free slots, or None if there is no free slot.

        Args:
            further: Whether the slot is a trajectory's second one: a full host has up to twice its slots for these.
        """
        host = max(self.hosts, key=lambda host: host.free, default=None)
        if host is not None and host.free:
            return host
        if not further:
            return None
        return min((host for host in self.hosts if host.serves_further), key=lambda host: len(host.seats), default=None)


class Line:
    """The waiters, in order, that hosts of the same kinds may serve, one kind of each member; dropped when empty."""

    def __init__(self, kinds: tuple[Kind, ...]) -> None:
        self.kinds = kinds
        self._waiters: list[Waiter] = []

    def __iter__(self) -> Iterator[Waiter]:
        return iter(tuple(self._waiters))

    def __len__(self) -> int:
        return len(self._waiters)

    @property
    def first(self) -> Waiter:
        """The waiter that is served next."""
        return self._waiters[0]

    @property
    def has_host(self) -> bool:
        """Whether a host of these kinds exists, in any state."""
        return any(kind.hosts for kind in self.kinds)

    @property
    def missing(self) -> int:
        """The number of further hosts that the waiters would fill, besides those that are starting."""
        unserved = len(self._waiters) - sum(kind.coming for kind in self.kinds)
        return max(0, -(-unserved // max(kind.limit for kind in self.kinds)))

    def add(self, waiter: Waiter) -> None:
        """Add a waiter at the position of its rank."""
        bisect.insort(self._waiters, waiter, key=_RANK)

    def remove(self, waiter: Waiter) -> None:
        """Remove a waiter."""
        del self._waiters[bisect.bisect_left(self._waiters, waiter.rank, key=_RANK)]


class Kinds(dict[Hashable, Kind]):
    """All kinds of a backend, by their keys. Of those without hosts only the last few that failed are kept."""

    def forget(self, kept: Kind | None) -> None:
        """Drop the kinds without hosts and waiters, except `kept` and the last few that failed."""
        idle = [kind for kind in self.values() if kind.is_idle and kind is not kept]
        failed = sorted((kind for kind in idle if kind.failure is not None), key=lambda kind: kind.backoff.until)
        remembered = {id(kind) for kind in failed[-_REMEMBERED:]}
        for kind in idle:
            if id(kind) not in remembered:
                del self[kind.key]
