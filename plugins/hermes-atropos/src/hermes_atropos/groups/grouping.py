"""Join sequences to a scored group: optional fields are kept, and doubtful data are not sent."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hermes_atropos.compat import MASKED_LOGPROB, declared_group_size
from hermes_atropos.groups.sequences import Item
from hermes_core.contracts.errors import HermesError
from hermes_core.contracts.tokens import IGNORED

Group = dict[str, Any]
"""A `ScoredDataGroup`: lists with one entry per sequence, None for a field that no sequence has."""

UNTRAINABLE: Final = "not trainable"
"""The prefix of reasons that affect all groups, not just one."""

NUMBERS: Final = ("advantages", "ref_logprobs", "inference_logprobs", "distill_token_ids", "distill_logprobs")
"""Fields with one entry per token; a group has them for all sequences or for none."""
_FILLED: Final[Mapping[str, Any]] = {"messages": [], "overrides": {}, "images": None}
"""Fields that a sequence may lack, with the default."""


class GroupError(HermesError):
    """The sequences of a group do not fit together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits for groups. `max_token_len` is the trainer's; 0 or less means no limit.

    A file (`for_trainer` False) also accepts groups that must not be sent to a trainer.
    """

    group_size: int
    max_token_len: int = 0
    distinct_scores: bool = True
    for_trainer: bool = True
    is_recorded: bool = True
    """Whether the servers return token ids; if not, only items marked `trainable` are trainable."""


def group_of(items: Sequence[Item], *, group_size: int, about: Mapping[str, Any] | None = None) -> Group:
    """Join sequences to a group; raise `GroupError` if they do not fit together.

    A size other than the configured one is recorded in `group_overrides.group_size`. `about` is added to
    `group_overrides`, where the sequences' own keys win.
    """
    group: Group = {
        "tokens": [item["tokens"] for item in items],
        "masks": [item["masks"] for item in items],
        "scores": [item["scores"] for item in items],
    }
    for field in NUMBERS:
        group[field] = _numbers(field, items)
    for field, filling in _FILLED.items():
        has_any = any(item.get(field) is not None for item in items)
        group[field] = [_or(item.get(field), filling) for item in items] if has_any else None
    group["generation_params"] = _merge(items, "generation_params") or None
    overrides = {**(about or {}), **_merge(items, "group_overrides")}
    if len(items) != group_size:
        overrides["group_size"] = len(items)
    group["group_overrides"] = overrides
    return group


def refusal(group: Group, limits: Limits) -> str | None:
    """Return why a group is refused, or None."""
    reasons = _reasons(group, limits)
    if limits.for_trainer:
        reasons = itertools.chain(reasons, _trainer_reasons(group, limits))
    return next(reasons, None)


def _reasons(group: Group, limits: Limits) -> Iterator[str]:
    tokens, scores = group.get("tokens") or [], group.get("scores") or []
    if not tokens:
        yield "no scored rollout is left"
    elif len(tokens) != declared_group_size(group, limits.group_size):
        yield f"expected {declared_group_size(group, limits.group_size)} sequences in the group, got {len(tokens)}"
    elif [*map(len, tokens)] != [*map(len, group.get("masks") or [])]:
        yield "masks and tokens differ in length"
    elif not all(isinstance(score, int | float) and math.isfinite(score) for score in scores):
        yield "a score is not a finite number"
    elif limits.distinct_scores and len(set(scores)) == 1:
        yield f"all scores are {scores[0]:g}"


def _trainer_reasons(group: Group, limits: Limits) -> Iterator[str]:
    overrides, tokens = group.get("overrides") or [], group["tokens"]
    marks = [bool(about.get("trainable", limits.is_recorded)) for about in overrides]
    if not all(marks or [limits.is_recorded]):
        yield f"{UNTRAINABLE}: the server gave no token ids"
    if not all(tokens):
        yield f"{UNTRAINABLE}: a sequence without tokens"
    if _lacks_logprobs(group, overrides):
        yield f"{UNTRAINABLE}: the server gave trained tokens without logprobs"
    longest = max(map(len, tokens))
    if 0 < limits.max_token_len <= longest:
        yield f"expected sequences of fewer than {limits.max_token_len} tokens, got {longest}"
    if all(mask == IGNORED for masks in group["masks"] for mask in masks):
        yield "no token has a loss"


def _lacks_logprobs(group: Group, overrides: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a trained token has no logprob; a session's state has the masked tokens' placeholder instead."""
    logprobs = group.get("inference_logprobs")
    if logprobs is None:
        return any(about.get("trainable") for about in overrides)
    rows = zip(group["masks"], logprobs, strict=True)
    return any(
        mask != IGNORED and (number is None or number >= MASKED_LOGPROB)
        for masks, numbers in rows
        for mask, number in zip(masks, numbers, strict=True)
    )


def parts(group: Group, group_size: int) -> list[Group]:
    """Split a group with more sequences than the trajectory API accepts (due to branches) into parts of its size.

    The API would keep a larger group in its buffer without ever using it. A trainer cannot normalise over a part, so
    the parts carry advantages over the whole group, in which each rollout counts once, and the group's id.
    """
    size = len(group["tokens"])
    if size <= group_size:
        return [group]
    if group.get("advantages") is None:
        group = {**group, "advantages": _advantages(group)}
    starts = range(0, size, group_size)
    return [_part(group, slice(start, start + group_size), number, len(starts)) for number, start in enumerate(starts)]


def _part(group: Group, cut: slice, number: int, count: int) -> Group:
    lists = ("tokens", "masks", "scores", *NUMBERS, *_FILLED)
    part = {key: value[cut] if key in lists and value is not None else value for key, value in group.items()}
    about = {**(group.get("group_overrides") or {}), "group_size": len(part["tokens"]), "part": number, "parts": count}
    return {**part, "group_overrides": about}


def _advantages(group: Group) -> list[list[float]]:
    """Return the score minus the mean over rollouts, equal for all tokens of a sequence."""
    overrides = group.get("overrides") or [{}] * len(group["scores"])
    weights = [float(about.get("weight", 1.0)) for about in overrides]
    mean = sum(w * s for w, s in zip(weights, group["scores"], strict=True)) / sum(weights)
    rows = zip(group["tokens"], group["scores"], weights, strict=True)
    return [[weight * (score - mean)] * len(tokens) for tokens, score, weight in rows]


def _numbers(field: str, items: Sequence[Item]) -> list[Any] | None:
    values = [item.get(field) for item in items]
    if all(value is None for value in values):
        return None
    for value, item in zip(values, items, strict=True):
        if value is None:
            raise GroupError(
                f"expected {field} for all sequences of the group or for none, got it for some", hint=_name(item)
            )
        if len(value) != len(item["tokens"]):
            raise GroupError(
                f"expected one entry of {field} for each of {len(item['tokens'])} tokens, got {len(value)}",
                hint=_name(item),
            )
    return values


def _merge(items: Iterable[Item], field: str) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for item in items:
        merged |= item.get(field) or {}
    return merged


def _or(value: Any, filling: Any) -> Any:
    return filling if value is None else value


def _name(item: Item) -> str:
    rollout = (item.get("overrides") or {}).get("rollout_id", "unknown")
    return f"check rollout {rollout}"
