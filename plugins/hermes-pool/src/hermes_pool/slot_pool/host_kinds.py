"""Hosts that serve the same sandboxes, and who waits for a slot in one of them."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from hermes_pool.slot_pool.creation_rate import Backoff
from hermes_pool.slot_pool.pooled_host import HostState, PooledHost, PoolSeat
from hermes_sandbox.backends import MakeHost, SlotRequest

_REMEMBERED: Final = 16
"""Kinds without hosts whose failures are remembered."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Waiter:
    """Somebody who waits for a slot. `turn` counts all who ever waited; `further` says that he has a slot already."""

    turn: int
    since: float
    limit: int
    make_host: MakeHost
    request: SlotRequest
    further: bool
    future: asyncio.Future[PoolSeat]


class Kind:
    """What one key stands for: its hosts, its queue, and what starting such a host last came to."""

    def __init__(self, key: Hashable, backoff: Backoff) -> None:
        self.key = key
        self.hosts: list[PooledHost] = []
        self.waiting: OrderedDict[Waiter, None] = OrderedDict()
        self.backoff = backoff
        self.failure: BaseException | None = None

    @property
    def first(self) -> Waiter | None:
        """Who is served next."""
        return next(iter(self.waiting), None)

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
        return not self.hosts and not self.waiting

    @property
    def missing(self) -> int:
        """How many more hosts those who wait could use, besides those that are starting."""
        first = self.first
        if first is None:
            return 0
        coming = sum(host.limit for host in self.hosts if host.is_coming)
        return -((coming - len(self.waiting)) // first.limit) if len(self.waiting) > coming else 0

    def enqueue(self, waiter: Waiter) -> None:
        """Add somebody; who has a slot already goes first, since he gives none back before he is served."""
        self.waiting[waiter] = None
        if waiter.further:
            self.waiting.move_to_end(waiter, last=False)

    def best(self, *, further: bool) -> PooledHost | None:
        """Return the emptiest host that gives a slot; one that is full serves who has a slot already, to its double."""
        host = max(self.hosts, key=lambda host: host.free, default=None)
        if host is not None and host.free:
            return host
        if not further:
            return None
        full = (host for host in self.hosts if host.state is HostState.READY and host.lost is None)
        fewest = min(full, key=lambda host: len(host.seats), default=None)
        return fewest if fewest is not None and len(fewest.seats) < 2 * fewest.limit else None


class Kinds(dict[Hashable, Kind]):
    """All kinds by their keys. Of those without hosts only the last few that failed are remembered, for their pause."""

    def forget(self, kept: Kind | None) -> None:
        """Drop what nobody needs any more, but `kept`."""
        idle = [kind for kind in self.values() if kind.is_idle and kind is not kept]
        failed = sorted((kind for kind in idle if kind.failure is not None), key=lambda kind: kind.backoff.until)
        remembered = {id(kind) for kind in failed[-_REMEMBERED:]}
        for kind in idle:
            if id(kind) not in remembered:
                del self[kind.key]
