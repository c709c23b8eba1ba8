"""Evaluate items, with hermes-agent's metric names."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from hermes_core.contracts.rollout import RolloutOutcome

PASSED: Final = 1.0
RunItem = Callable[[Any], Awaitable[RolloutOutcome]]


async def evaluate_items(
    run_item: RunItem, items: Iterable[Any], *, at_once: int, passed: float = PASSED
) -> dict[str, float]:
    """Run every item once, with limited concurrency, and return the metrics.

    An item passes with a reward of at least `passed`. An item without a reward is not a failure of the model: it counts
    under `eval/errors` and in no rate.
    """
    slots = asyncio.Semaphore(at_once)

    async def one(item: Any) -> tuple[str, RolloutOutcome]:
        async with slots:
            return _category(item), await run_item(item)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(item)) for item in items]
    return _metrics([task.result() for task in tasks], passed)


def _category(item: Any) -> str:
    return str(item.get("category", "")) if isinstance(item, Mapping) else ""


def _metrics(outcomes: list[tuple[str, RolloutOutcome]], passed: float) -> dict[str, float]:
    scored = [(category, outcome.reward) for category, outcome in outcomes if outcome.reward is not None]
    by_category: dict[str, list[bool]] = defaultdict(list)
    for category, reward in scored:
        by_category[category].append(reward >= passed)
    metrics: dict[str, float] = {
        "eval/total_tasks": len(outcomes),
        "eval/passed_tasks": sum(reward >= passed for _, reward in scored),
        "eval/errors": len(outcomes) - len(scored),
    }
    if scored:
        metrics["eval/pass_rate"] = metrics["eval/passed_tasks"] / len(scored)
        metrics["eval/mean_reward"] = sum(reward for _, reward in scored) / len(scored)
    rates = {f"eval/pass_rate_{name}": sum(hits) / len(hits) for name, hits in sorted(by_category.items()) if name}
    return metrics | rates
