"""Convert a rollout's outcome to sequences of a scored group (Atropos' `ScoredDataItem`)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from hermes_atropos.author_code.reward import as_score
from hermes_atropos.compat import MASKED_LOGPROB
from hermes_core.contracts.errors import VerifierError
from hermes_core.contracts.rollout import RolloutOutcome
from hermes_core.contracts.tokens import IGNORED, TrainingSample
from hermes_tokens import TrainingGroup, TrainingItem

Item = dict[str, Any]
"""One sequence in Atropos' form: tokens, masks, scores, and optional fields."""


def exact_items(outcome: RolloutOutcome) -> list[Item]:
    """Return the training items of a rollout with recorded tokens: one per branch, none without a reward.

    A rollout that the policy masks stays in its group, with no token trained.
    """
    if outcome.disposition == "mask" and outcome.reward is not None:
        return [_masked_item(outcome, sample) for sample in outcome.samples[:1]]
    return [_item(item, outcome) for item in TrainingGroup.of([outcome]).items]


def conversation_item(outcome: RolloutOutcome) -> Item | None:
    """Return a rollout without recorded tokens as messages and score, marked as not trainable; None if unscored."""
    if outcome.reward is None or outcome.disposition == "drop":
        return None
    return {
        "tokens": [],
        "masks": [],
        "scores": outcome.reward,
        "messages": plain_messages(outcome.messages),
        "overrides": {**_about(outcome), "trainable": False},
    }


def plain_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return messages in the API's form: each has a role and a content."""
    return [{"content": None, **message} for message in messages]


def _item(item: TrainingItem, outcome: RolloutOutcome) -> Item:
    sample = item.sample
    about = {
        **_about(outcome),
        "trainable": True,
        "weight": item.weight,
        "branch": sample.branch,
        "branch_reason": sample.reason,
        "constrained": sample.constrained,
        "weight_versions": [asdict(span) for span in sample.weight_versions],
    }
    return {
        "tokens": list(sample.tokens),
        "masks": list(sample.masks),
        "scores": item.score,
        "inference_logprobs": _logprobs(sample),
        "messages": plain_messages(item.messages),
        "overrides": about,
    }


def _masked_item(outcome: RolloutOutcome, sample: TrainingSample) -> Item:
    return {
        "tokens": list(sample.tokens),
        "masks": [IGNORED] * len(sample.tokens),
        "scores": outcome.reward,
        "inference_logprobs": [MASKED_LOGPROB] * len(sample.tokens),
        "messages": plain_messages(outcome.messages),
        "overrides": {**_about(outcome), "trainable": True, "masked": str(outcome.stop_reason)},
    }


def _logprobs(sample: TrainingSample) -> list[float] | None:
    """Return one logprob per token, or None if a trained token has none: such a sequence is not sent."""
    pairs = zip(sample.masks, sample.logprobs, strict=True)
    numbers = [MASKED_LOGPROB if mask == IGNORED else logprob for mask, logprob in pairs]
    return (
        None
        if any(number is None for number in numbers)
        else [float(number) for number in numbers if number is not None]
    )


def check_item(item: Item) -> Item:
    """Normalise an author's item, including NumPy numbers; raise `VerifierError` if it is not a scored sequence."""
    missing = [name for name in ("tokens", "masks", "scores") if item.get(name) is None]
    if missing:
        raise VerifierError(
            f"expected an item with {missing[0]!r}, got one without", hint="return None if a rollout cannot be judged"
        )
    tokens, masks, score = _whole(item["tokens"]), _whole(item["masks"]), as_score(item["scores"]).value
    if len(tokens) != len(masks):
        raise VerifierError(f"expected one mask for each of {len(tokens)} tokens, got {len(masks)}")
    if not math.isfinite(score):
        raise VerifierError(f"expected a finite number as an item's score, got {score}")
    return {**item, "tokens": tokens, "masks": masks, "scores": score}


def _whole(numbers: Iterable[Any]) -> list[int]:
    listed = list(numbers)
    return listed if set(map(type, listed)) <= {int} else [int(number) for number in listed]


def with_logprobs(item: Item, samples: Iterable[TrainingSample]) -> Item:
    """Add recorded logprobs to an author's item that is a recorded sequence or a prefix of one."""
    if item.get("inference_logprobs") is not None:
        return item
    tokens, masks = list(item["tokens"]), list(item["masks"])
    for sample in samples:
        size = len(tokens)
        if size and list(sample.tokens[:size]) == tokens and list(sample.masks[:size]) == masks:
            logprobs = _logprobs(sample)
            return item if logprobs is None else {**item, "inference_logprobs": logprobs[:size]}
    return item


def _about(outcome: RolloutOutcome) -> dict[str, Any]:
    exactness = {} if outcome.exactness is None else {"exactness": outcome.exactness.to_json()}
    return {
        **exactness,
        "rollout_id": outcome.rollout_id,
        "stop_reason": str(outcome.stop_reason),
        "reward_parts": dict(outcome.reward_parts),
        "turns": outcome.turns,
    }
