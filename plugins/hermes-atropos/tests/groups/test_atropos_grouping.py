"""From outcomes to scored groups: nothing optional is lost, and what cannot be vouched for has a reason."""

from __future__ import annotations

import pytest

pytest.importorskip("atroposlib", reason="hermes-atropos is not installed")

from hypothesis import given
from hypothesis import strategies as st

from hermes_atropos.groups.grouping import NUMBERS, GroupError, Limits, group_of, parts, refusal
from hermes_atropos.groups.sequences import conversation_item, exact_items
from hermes_core.contracts.rollout import RewardStatus, RolloutOutcome, StopReason
from hermes_core.contracts.tokens import TrainingSample, WeightSpan


def sample(branch=0, reason="", logprobs=(None, -0.5, -0.25), masks=(-100, 2, 3)):
    span = WeightSpan(version="v1", start=1, end=3)
    return TrainingSample(
        tokens=[1, 2, 3], masks=masks, logprobs=logprobs, weight_versions=(span,), branch=branch, reason=reason
    )


def outcome(*samples, reward=1.0, rollout_id="r1", disposition="score"):
    return RolloutOutcome(
        rollout_id=rollout_id,
        task_id="t",
        group_id="g",
        index=0,
        split="train",
        seed=1,
        messages=[{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": []}],
        turns=1,
        stop_reason=StopReason.FINAL_ANSWER,
        reward_status=RewardStatus.OK,
        reward=reward,
        disposition=disposition,
        samples=samples,
    )


def items(*scores, **fields):
    return [{"tokens": [1, 2], "masks": [-100, 2], "scores": score, **fields} for score in scores]


def test_an_outcome_becomes_an_item_with_logprobs_and_what_a_trainer_needs_to_know():
    (item,) = exact_items(outcome(sample()))
    assert (item["tokens"], item["masks"], item["scores"]) == ([1, 2, 3], [-100, 2, 3], 1.0)
    assert item["inference_logprobs"] == [1.0, -0.5, -0.25]
    assert all("content" in message for message in item["messages"])
    about = item["overrides"]
    assert (about["rollout_id"], about["weight"], about["trainable"]) == ("r1", 1.0, True)
    assert about["weight_versions"] == [{"version": "v1", "start": 1, "end": 3}]


def test_a_rollout_with_branches_gives_sequences_with_weights_that_sum_to_one():
    both = exact_items(outcome(sample(), sample(branch=1, reason="compaction")))
    assert [item["overrides"]["weight"] for item in both] == [0.5, 0.5]
    assert [item["overrides"]["branch_reason"] for item in both] == ["", "compaction"]


def test_a_rollout_without_a_reward_gives_nothing():
    assert exact_items(outcome(sample(), reward=None)) == []
    assert conversation_item(outcome(reward=None)) is None


def test_a_masked_rollout_stays_in_its_group_without_a_loss():
    (item,) = exact_items(outcome(sample(), disposition="mask"))
    assert item["masks"] == [-100, -100, -100]
    assert item["overrides"]["masked"] == "final_answer"


def test_a_conversation_without_tokens_is_refused_by_name():
    group = group_of([conversation_item(outcome()), conversation_item(outcome(reward=0.0))], group_size=2)
    assert refusal(group, Limits(group_size=2)) == "not trainable: the server gave no token ids"


def test_a_trained_token_without_a_logprob_is_never_given_a_made_up_one():
    group = group_of(exact_items(outcome(sample(logprobs=(None, -0.5, None)))), group_size=1)
    assert group["inference_logprobs"] is None
    assert "without logprobs" in refusal(group, Limits(group_size=1, distinct_scores=False))


def test_logprobs_on_some_sequences_only_are_an_error_that_names_the_rollout():
    with_them = exact_items(outcome(sample()))
    without = exact_items(outcome(sample(logprobs=(None, None, None)), rollout_id="r2"))
    with pytest.raises(GroupError, match=r"inference_logprobs for all sequences(.|\n)*rollout r2"):
        group_of(with_them + without, group_size=2)


def test_a_field_with_another_length_than_the_tokens_is_an_error():
    with pytest.raises(GroupError, match="one entry of advantages for each of 2 tokens, got 1"):
        group_of(items(1.0, advantages=[1.0]), group_size=1)


def test_a_shrunk_group_says_its_size():
    assert group_of(items(0.0, 1.0), group_size=2)["group_overrides"] == {}
    assert group_of(items(0.0, 1.0), group_size=4)["group_overrides"] == {"group_size": 2}


def test_group_level_fields_of_the_items_are_joined():
    first = {**items(0.0)[0], "group_overrides": {"a": 1}, "generation_params": {"temperature": 1.0}}
    second = {**items(1.0)[0], "group_overrides": {"b": 2}}
    group = group_of([first, second], group_size=2, about={"group_id": "g"})
    assert group["group_overrides"] == {"group_id": "g", "a": 1, "b": 2}
    assert group["generation_params"] == {"temperature": 1.0}


@pytest.mark.parametrize(
    ("scores", "limits", "reason"),
    [
        ((1.0, 1.0), Limits(group_size=2), "all scores are 1"),
        ((0.0, 1.0), Limits(group_size=2, max_token_len=2), "expected sequences of fewer than 2 tokens, got 2"),
        ((0.0, 1.0), Limits(group_size=2, max_token_len=3), None),
        ((1.0, 1.0), Limits(group_size=2, distinct_scores=False), None),
        ((), Limits(group_size=2), "no scored rollout is left"),
    ],
)
def test_what_a_trainer_cannot_use_has_a_reason(scores, limits, reason):
    assert refusal(group_of(items(*scores), group_size=2), limits) == reason


def test_a_group_without_any_loss_is_refused():
    group = group_of(items(0.0, 1.0), group_size=2)
    assert refusal({**group, "masks": [[-100, -100]] * 2}, Limits(group_size=2)) == "no token has a loss"


def test_more_sequences_than_the_api_takes_go_in_parts_that_carry_their_advantages():
    split = exact_items(outcome(sample(), sample(branch=1, reason="edit"), reward=1.0))
    whole = exact_items(outcome(sample(), reward=0.0, rollout_id="r2"))
    both = parts(group_of(split + whole, group_size=2), 2)
    assert [len(part["tokens"]) for part in both] == [2, 1]
    assert [part["advantages"][0][0] for part in both] == [0.25, -0.5]
    assert [part["group_overrides"]["part"] for part in both] == [0, 1]
    assert both[1]["group_overrides"]["group_size"] == 1


def test_a_group_that_fits_is_not_cut():
    group = group_of(items(0.0, 1.0), group_size=2)
    assert parts(group, 2) == [group]


@given(st.lists(st.tuples(st.floats(-1, 1), st.integers(1, 4)), min_size=1, max_size=6), st.integers(1, 5))
def test_parts_hold_every_sequence_once_and_their_advantages_sum_to_zero(rollouts, group_size):
    made = [
        item
        for number, (score, branches) in enumerate(rollouts)
        for item in exact_items(
            outcome(*(sample(branch=b) for b in range(branches)), reward=score, rollout_id=f"r{number}")
        )
    ]
    cut = parts(group_of(made, group_size=group_size), group_size)
    assert [tokens for part in cut for tokens in part["tokens"]] == [item["tokens"] for item in made]
    assert all(len(part["tokens"]) <= group_size for part in cut)
    if len(made) > group_size:
        assert sum(row[0] for part in cut for row in part["advantages"]) == pytest.approx(0, abs=1e-9)


@given(st.sets(st.sampled_from(NUMBERS)), st.integers(1, 4))
def test_every_numeric_field_survives_for_any_choice_of_fields(fields, size):
    values = {field: [[1], [2]] if field.startswith("distill") else [0.5, 0.25] for field in fields}
    group = group_of(items(*map(float, range(size)), **values), group_size=size)
    for field in NUMBERS:
        assert group[field] == ([values[field]] * size if field in fields else None)
