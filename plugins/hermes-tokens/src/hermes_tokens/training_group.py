"""The training data of one task: a group of samples with scores, for sinks such as Atropos and JSONL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hermes_core.contracts.model import Message
from hermes_core.contracts.rollout import RolloutOutcome
from hermes_core.contracts.tokens import TrainingSample


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingItem:
    """One sequence with its score.

    A rollout with several branches gives several items, each with `weight` 1 / branches, so that each rollout counts
    once when a trainer averages over its group.
    """

    sample: TrainingSample
    score: float
    rollout_id: str
    index: int
    weight: float = 1.0
    messages: Sequence[Message] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingGroup:
    """The scored, trainable rollouts of one task, and the outcomes of all its rollouts."""

    group_id: str
    task_id: str
    items: tuple[TrainingItem, ...] = ()
    outcomes: tuple[RolloutOutcome, ...] = ()

    @classmethod
    def of(cls, outcomes: Sequence[RolloutOutcome]) -> TrainingGroup:
        """Collect the rollouts of one group; a rollout without a reward or exact tokens gives no item."""
        first = outcomes[0]
        items = [item for outcome in outcomes for item in _items(outcome)]
        return cls(group_id=first.group_id, task_id=first.task_id, items=tuple(items), outcomes=tuple(outcomes))


def _items(outcome: RolloutOutcome) -> list[TrainingItem]:
    if outcome.reward is None or outcome.disposition != "score":
        return []
    trained = [sample for sample in outcome.samples if any(mask >= 0 for mask in sample.masks)]
    return [
        TrainingItem(
            sample=sample,
            score=outcome.reward,
            rollout_id=outcome.rollout_id,
            index=outcome.index,
            weight=1 / len(trained),
            messages=outcome.messages,
            metadata={
                "stop_reason": str(outcome.stop_reason),
                "branch": sample.branch,
                "reason": sample.reason,
                "constrained": sample.constrained,
            },
        )
        for sample in trained
    ]
