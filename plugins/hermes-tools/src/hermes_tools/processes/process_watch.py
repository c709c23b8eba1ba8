"""Limits how often observers are notified of a running process, and matches patterns in its output."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

MIN_CHECK_INTERVAL: Final = 30.0
MATCH_PAUSE: Final = 15.0
"""Minimum seconds between two notifications of matches of one process. A match within them counts as a strike."""
MAX_STRIKES: Final = 3
_ALL_AT_ONCE: Final = 15
_ALL_SECONDS: Final = 10.0
_ALL_COOLDOWN: Final = 30.0


class MatchLimit:
    """Rate limit for all processes of a registry: 15 matches in 10 seconds, then none for 30 seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._told: deque[float] = deque()
        self._silent_until = 0.0

    def allows(self) -> bool:
        """Return whether a match may be sent to observers, and if so count it."""
        now = self._clock()
        if now < self._silent_until:
            return False
        while self._told and self._told[0] <= now - _ALL_SECONDS:
            self._told.popleft()
        if len(self._told) >= _ALL_AT_ONCE:
            self._silent_until = now + _ALL_COOLDOWN
            return False
        self._told.append(now)
        return True


class Watch:
    """The patterns of one process. They are plain text, so that the time of a search is bounded."""

    def __init__(self, patterns: tuple[str, ...], limit: MatchLimit, clock: Callable[[], float]) -> None:
        self.patterns = patterns
        self._limit = limit
        self._clock = clock
        self._last = float("-inf")
        self._strikes = 0
        self._rest = ""

    @property
    def is_muted(self) -> bool:
        """Whether the patterns matched too often. From then on, observers are notified only of the end."""
        return self._strikes >= MAX_STRIKES

    def match(self, text: str) -> str | None:
        """Return the first pattern in the new output, or None if there is none or it must not be sent now."""
        if self.is_muted or not self.patterns:
            return None
        searched = self._rest + text
        longest = max(map(len, self.patterns))
        self._rest = searched[len(searched) - (longest - 1) :] if longest > 1 else ""
        found = next((pattern for pattern in self.patterns if pattern in searched), None)
        if found is None:
            return None
        self._rest = ""
        now = self._clock()
        if now - self._last < MATCH_PAUSE or not self._limit.allows():
            self._strikes += 1
            return None
        self._last, self._strikes = now, 0
        return found
