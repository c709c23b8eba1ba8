"""Means over the rollouts recorded so far, for charts that are watched during a run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, final

from hermes_core.contracts.rollout import RewardStatus


@final
class RunningMeans:
    """Adds up outcomes one by one, in constant memory."""

    def __init__(self) -> None:
        self.rollouts = 0
        self._sums: dict[str, float] = {}
        self._counts: Counter[str] = Counter()
        self._stop_reasons: Counter[str] = Counter()

    def add(self, outcome: Mapping[str, Any]) -> None:
        """Count one outcome; a rollout without a reward is left out of the mean of rewards, not counted as 0."""
        self.rollouts += 1
        self._stop_reasons[str(outcome.get("stop_reason"))] += 1
        for name, value in _numbers(outcome):
            self._sums[name] = self._sums.get(name, 0.0) + value
            self._counts[name] += 1

    def values(self) -> dict[str, float]:
        """Return the means and the shares of the stop reasons, by the names of their charts."""
        means = {f"mean/{name}": total / self._counts[name] for name, total in self._sums.items()}
        stops = {f"stop_reason/{name}": count / self.rollouts for name, count in self._stop_reasons.items()}
        return {"rollouts": self.rollouts, **means, **stops}


def _numbers(outcome: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    reward = outcome.get("reward")
    has_reward = outcome.get("reward_status") == RewardStatus.OK and outcome.get("disposition") != "drop"
    has_reward = has_reward and reward is not None and math.isfinite(reward)
    yield "without_reward", float(not has_reward)
    if has_reward:
        yield "reward", float(reward or 0.0)
    yield "turns", float(outcome.get("turns") or 0)
    counters = outcome.get("counters") or {}
    for name in ("prompt_tokens", "completion_tokens"):
        yield name, float(counters.get(name) or 0)
    yield "seconds", float((outcome.get("timings") or {}).get("total") or 0.0)
