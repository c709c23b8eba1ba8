"""Statistics of a pool."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from hermes_core.cli import plural

_KEPT: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitTimes:
    """Times that waiters waited for their slots, in seconds. Percentiles are of a uniform sample of at most 1,024."""

    count: int = 0
    mean: float = 0.0
    p50: float = 0.0
    p90: float = 0.0
    p99: float = 0.0
    longest: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStats:
    """The statistics of a pool at one moment.

    `total`, `free` and `used` count slots: `free` those that would be given out now, `used` also those in hosts that
    give out no new ones. `hosts` counts hosts by state: starting, ready, quarantined, draining, closing.
    `capacity` is the number of slots of `max_hosts` hosts; None before the first request, since only the
    backend knows how many slots a host may have.
    """

    name: str
    total: int
    free: int
    used: int
    waiting: int
    hosts: Mapping[str, int]
    max_hosts: int
    starts_allowed: int
    created: int
    failed: int
    lost: int
    quarantined: int
    waits: WaitTimes = field(default_factory=WaitTimes)
    last_failure: str | None = None
    capacity: int | None = None

    def summary(self) -> str:
        """Return in one line the numbers that explain why no slot is free."""
        alive = sum(self.hosts.values())
        apart = {state: count for state, count in self.hosts.items() if count and state != "ready"}
        states = "".join(f", {count} {state}" for state, count in apart.items())
        return (
            f"{self.waiting} waiting, {self.free} free and {self.used} in use of {plural(self.total, 'slot')}, "
            f"{plural(alive, 'host')} of at most {self.max_hosts}{states}"
        )


class Waits:
    """Records the times of all waits: their number, sum and maximum, and a uniform sample of constant size."""

    def __init__(self) -> None:
        self._random = random.Random(0)  # noqa: S311 - a sample of statistics
        self._sample: list[float] = []
        self._count = 0
        self._sum = 0.0
        self._longest = 0.0

    def add(self, seconds: float) -> None:
        """Record the duration of one wait."""
        self._count += 1
        self._sum += seconds
        self._longest = max(self._longest, seconds)
        if len(self._sample) < _KEPT:
            self._sample.append(seconds)
        elif (place := self._random.randrange(self._count)) < _KEPT:
            self._sample[place] = seconds

    def summary(self) -> WaitTimes:
        """Return the figures of all waits so far."""
        if not self._count:
            return WaitTimes()
        ordered = sorted(self._sample)

        def part(share: float) -> float:
            return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

        return WaitTimes(
            count=self._count,
            mean=self._sum / self._count,
            p50=part(0.5),
            p90=part(0.9),
            p99=part(0.99),
            longest=self._longest,
        )
