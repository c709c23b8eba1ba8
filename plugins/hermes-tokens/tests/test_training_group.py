"""The training data made from a group's outcomes."""

from __future__ import annotations

import dataclasses

import pytest

from hermes_core.contracts.rollout import RewardStatus, RolloutOutcome, StopReason
from hermes_core.contracts.tokens import IGNORED, TrainingSample
from hermes_tokens import TrainingGroup


def sample(*masks: int, branch: int = 0) -> TrainingSample:
    tokens = [abs(mask) for mask in masks]
    return TrainingSample(tokens=tokens, masks=masks, logprobs=[None] * len(tokens), branch=branch)


def outcome(**changed) -> RolloutOutcome:
    whole = RolloutOutcome(
        rollout_id="r1",
        task_id="t",
        group_id="g",
        index=1,
        split="train",
        seed=0,
        messages=[{"role": "user", "content": "x"}],
        turns=1,
        stop_reason=StopReason.FINAL_ANSWER,
        reward_status=RewardStatus.OK,
        reward=0.5,
        samples=(sample(IGNORED, 7),),
    )
    return dataclasses.replace(whole, **changed)


def test_a_rollout_is_an_item_with_its_score_and_its_conversation():
    group = TrainingGroup.of([outcome()])
    (item,) = group.items
    assert (group.group_id, group.task_id, item.rollout_id, item.index) == ("g", "t", "r1", 1)
    assert (item.score, item.weight, item.sample.tokens) == (0.5, 1.0, [100, 7])
    assert item.messages == [{"role": "user", "content": "x"}]
    assert item.metadata["stop_reason"] == "final_answer"


def test_the_branches_of_a_rollout_share_its_weight():
    group = TrainingGroup.of([outcome(samples=(sample(IGNORED, 7), sample(IGNORED, 8, branch=1)))])
    assert [(item.weight, item.metadata["branch"]) for item in group.items] == [(0.5, 0), (0.5, 1)]


@pytest.mark.parametrize(
    "changed",
    [
        {"reward": None, "reward_status": RewardStatus.ERROR},
        {"disposition": "drop"},
        {"disposition": "mask"},
        {"samples": ()},
        {"samples": (sample(IGNORED, IGNORED),)},
    ],
    ids=["no reward", "dropped", "masked", "no tokens", "no loss"],
)
def test_an_untrainable_rollout_is_an_outcome_and_not_an_item(changed):
    group = TrainingGroup.of([outcome(), outcome(rollout_id="r2", **changed)])
    assert [item.rollout_id for item in group.items] == ["r1"]
    assert [one.rollout_id for one in group.outcomes] == ["r1", "r2"]
