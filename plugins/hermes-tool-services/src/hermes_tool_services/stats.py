"""Call statistics of a service, in constant memory."""

from __future__ import annotations

import random
from typing import Final

_KEPT: Final = 1024


class CallStats:
    """Counts calls and keeps a uniform sample of at most 1,024 latencies."""

    def __init__(self, *, kept: int = _KEPT, seed: int = 0) -> None:
        self.total_requests = 0
        self.total_errors = 0
        self.latency_max_s = 0.0
        self._seconds = 0.0
        self._kept = kept
        self._sample: list[float] = []
        self._random = random.Random(seed)  # noqa: S311 - which latencies are kept, not a secret

    def add(self, seconds: float, *, is_error: bool) -> None:
        """Count one call."""
        self.total_requests += 1
        self.total_errors += is_error
        self.latency_max_s = max(self.latency_max_s, seconds)
        self._seconds += seconds
        if len(self._sample) < self._kept:
            self._sample.append(seconds)
            return
        place = self._random.randrange(self.total_requests)
        if place < self._kept:
            self._sample[place] = seconds

    @property
    def latencies_s(self) -> list[float]:
        """The sample of latencies, unordered; it holds all calls until it is full."""
        return list(self._sample)

    def to_json(self) -> dict[str, float | int | None]:
        """Return the counts, and mean, median, 95th percentile and maximum of the latencies in seconds."""
        ordered = sorted(self._sample)
        return {
            "total_requests": self.total_requests,
            "total_errors": self.total_errors,
            "latency_mean_s": self._seconds / self.total_requests if self.total_requests else None,
            "latency_p50_s": _quantile(ordered, 0.5),
            "latency_p95_s": _quantile(ordered, 0.95),
            "latency_max_s": self.latency_max_s if self.total_requests else None,
        }


def _quantile(ordered: list[float], share: float) -> float | None:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None
