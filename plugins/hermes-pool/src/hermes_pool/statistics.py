"""What a pool can say of itself."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

_KEPT: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitTimes:
    """How long slots were waited for, in seconds; the percentiles are of a uniform sample of at most 1,024."""

    count: int = 0
    mean: float = 0.0
    p50: float = 0.0
    p90: float = 0.0
    p99: float = 0.0
    longest: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStats:
    """A pool at one moment.

    `total`, `free` and `used` count slots: free ones are those that would be given out now, used ones also those in
    hosts that take nobody new. `hosts` counts hosts by state: starting, ready, quarantined, draining, closing.
    `capacity` is how many slots there would be with all hosts; None before the first was asked for, since only the
    backend knows how many a host of its may have.
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
        """Return the numbers that explain why there is no slot, in one line."""
        alive = sum(self.hosts.values())
        apart = {state: count for state, count in self.hosts.items() if count and state != "ready"}
        states = "".join(f", {count} {state}" for state, count in apart.items())
        return (
            f"{self.waiting} waiting, {self.free} free and {self.used} in use of {self.total} slots, "
            f"{alive} hosts of at most {self.max_hosts}{states}"
        )


class Waits:
    """Takes the times of all waits and keeps a uniform sample of them, of constant size."""

    def __init__(self) -> None:
        self._random = random.Random(0)  # noqa: S311 - a sample of statistics
        self._sample: list[float] = []
        self._count = 0
        self._sum = 0.0
        self._longest = 0.0

    def add(self, seconds: float) -> None:
        """Record one wait."""
        self._count += 1
        self._sum += seconds
        self._longest = max(self._longest, seconds)
        if len(self._sample) < _KEPT:
            self._sample.append(seconds)
        elif (place := self._random.randrange(self._count)) < _KEPT:
            self._sample[place] = seconds

    def summary(self) -> WaitTimes:
        """Return them, summed up."""
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
