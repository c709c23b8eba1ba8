"""Limits of starts of hosts: how many at a time, and the pause after failures."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Final

_FASTEST: Final = 0.2
"""Weight of a start that was faster than usual in the running average of start times."""
_SLOWER: Final = 0.05
"""Weight of a slower one. It is smaller, so that starts that become slow are noticed before they count as usual."""
_SLOW: Final = 3.0
"""A start that takes more than this multiple of the usual time is a sign that too many are in progress."""
_NEGLIGIBLE: Final = 0.5
"""Seconds up to which a start never counts as slow."""
_CROWDED: Final = 4.0
"""Load per core of this machine above which only half as many hosts may be starting."""
_FIRST_PAUSE: Final = 0.25
_LONGEST_PAUSE: Final = 30.0


def load_per_core() -> float:
    """Return the load average of the last minute, divided by the number of cores of this machine."""
    return os.getloadavg()[0] / (os.cpu_count() or 1)


class CreationRate:
    """Limits concurrent starts: a good start raises the limit by one, a failed or slow one halves it.

    Args:
        most: The upper bound, and the initial limit.
        load: Returns the load per core of the machine that starts the hosts.
    """

    def __init__(self, most: int, *, load: Callable[[], float] = load_per_core) -> None:
        self._most = most
        self._load = load
        self._limit = float(most)
        self._usual: float | None = None

    @property
    def allowed(self) -> int:
        """The number of hosts that may be starting now; at least one."""
        limit = self._limit / 2 if self._load() > _CROWDED else self._limit
        return max(1, int(limit))

    def note_success(self, seconds: float) -> None:
        """Record a successful start and its duration in seconds."""
        usual = seconds if self._usual is None else self._usual
        if seconds > max(_NEGLIGIBLE, _SLOW * usual):
            self._shrink()
        else:
            self._limit = min(float(self._most), self._limit + 1)
        share = _FASTEST if seconds < usual else _SLOWER
        self._usual = usual + share * (seconds - usual)

    def note_failure(self) -> None:
        """Record a failed start."""
        self._shrink()

    def _shrink(self) -> None:
        self._limit = max(1.0, self._limit / 2)


class Backoff:
    """The pause after failed starts in a row: doubled each time, with jitter so that pools retry at different times."""

    def __init__(self, chance: random.Random | None = None) -> None:
        self._chance = chance or random.Random()  # noqa: S311 - jitter
        self.failures = 0
        self.until = 0.0

    def begin_pause(self, now: float) -> None:
        """Count a failure, and begin the pause after it."""
        self.failures += 1
        longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (self.failures - 1))
        self.until = now + longest * self._chance.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Forget the failures."""
        self.failures = 0
        self.until = 0.0
