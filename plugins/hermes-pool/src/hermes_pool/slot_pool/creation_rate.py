"""How many hosts may be starting at a time, and when the next one may."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Final

_FASTEST: Final = 0.2
"""Share of a new, faster start in what counts as the usual time of one."""
_SLOWER: Final = 0.05
"""The same of a slower one: an engine that becomes slow is not taken for a slow engine at once."""
_SLOW: Final = 3.0
"""A start that takes so many times the usual time says that too many are in progress."""
_NEGLIGIBLE: Final = 0.5
"""Seconds that no start is blamed for."""
_CROWDED: Final = 4.0
"""Load per core of this machine from which on starts take turns of half the size."""
_FIRST_PAUSE: Final = 0.25
_LONGEST_PAUSE: Final = 30.0


def load_per_core() -> float:
    """Return how many processes want each core of this machine, over the last minute."""
    return os.getloadavg()[0] / (os.cpu_count() or 1)


class CreationRate:
    """Adds one to the starts at a time for a good one, halves them for a bad one; never more than `most`.

    Args:
        most: The upper bound, which is also the beginning.
        load: Returns the load per core of the machine that starts the hosts.
    """

    def __init__(self, most: int, *, load: Callable[[], float] = load_per_core) -> None:
        self._most = most
        self._load = load
        self._limit = float(most)
        self._usual: float | None = None

    @property
    def allowed(self) -> int:
        """How many may be starting now; at least one."""
        limit = self._limit / 2 if self._load() > _CROWDED else self._limit
        return max(1, int(limit))

    def note_success(self, seconds: float) -> None:
        """Take note of a start that worked and of how long it took."""
        usual = seconds if self._usual is None else self._usual
        if seconds > max(_NEGLIGIBLE, _SLOW * usual):
            self._shrink()
        else:
            self._limit = min(float(self._most), self._limit + 1)
        share = _FASTEST if seconds < usual else _SLOWER
        self._usual = usual + share * (seconds - usual)

    def note_failure(self) -> None:
        """Take note of a start that failed."""
        self._shrink()

    def _shrink(self) -> None:
        self._limit = max(1.0, self._limit / 2)


class Backoff:
    """The pause after failed starts in a row: doubled each time, with jitter, so that pools do not come back as one."""

    def __init__(self, chance: random.Random | None = None) -> None:
        self._chance = chance or random.Random()  # noqa: S311 - jitter
        self.failures = 0
        self.until = 0.0

    def begin_pause(self, now: float) -> None:
        """Begin a pause."""
        self.failures += 1
        longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (self.failures - 1))
        self.until = now + longest * self._chance.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Forget the failures."""
        self.failures = 0
        self.until = 0.0
