"""The loss of GRPO, and the check that the trained tokens are the sampled ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from tiny_rl.model import transformer as model
from tiny_rl.model.padded_batches import padded
from tiny_rl.model.transformer import Array, Params
from tiny_rl.training import optimizer

ROWS: Final = 32
"""Sequences in one array."""
_CLIP_LOW: Final = 0.2
_CLIP_HIGH: Final = 0.28


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """One sequence as the API returned it; the lists have the same length."""

    tokens: Sequence[int]
    trained: Sequence[bool]
    recorded: Sequence[float]
    advantage: float
    versions: Sequence[str]
    """The weights that sampled each token; "" if it was not sampled."""
    rollout_id: str = ""


def sequences(groups: Sequence[Mapping[str, Any]]) -> list[Trained]:
    """Read a batch; a sequence's advantage is its score against its group's, in standard deviations."""
    return [one for group in groups for one in _of_group(group)]


class KindOfLogprobError(Exception):
    """The recorded log-probabilities are not the weights' raw ones, so they cannot be checked."""


def _of_group(group: Mapping[str, Any]) -> Iterator[Trained]:
    kind = group["generation_params"]
    if (kind["logprobs_mode"], kind["temperature"]) != ("raw", 1.0):
        raise KindOfLogprobError(f"expected raw logprobs at temperature 1, got {kind}")
    scores = np.asarray(group["scores"])
    advantages = (scores - scores.mean()) / (scores.std() + 1e-4)
    for index, tokens in enumerate(group["tokens"]):
        own = group["overrides"][index]
        versions = [""] * len(tokens)
        for span in own["weight_versions"]:
            versions[span["start"] : span["end"]] = [span["version"]] * (span["end"] - span["start"])
        yield Trained(
            tokens=tokens,
            trained=[mask >= 0 for mask in group["masks"][index]],
            recorded=group["inference_logprobs"][index],
            advantage=float(advantages[index]) * own.get("weight", 1.0),
            versions=versions,
            rollout_id=own["rollout_id"],
        )


@dataclass(frozen=True, slots=True)
class Arrays:
    """Up to `ROWS` sequences of similar length, padded with empty rows."""

    tokens: Array
    trained: Array
    recorded: Array
    advantages: Array
    versions: Array

    @classmethod
    def of(cls, rows: Sequence[Trained]) -> Arrays:
        """Fill arrays."""
        empty = ROWS - len(rows)
        advantages = np.array([row.advantage for row in rows] + [0.0] * empty, np.float32)
        return cls(
            padded([row.tokens for row in rows] + [[0]] * empty).astype(np.int32),
            padded([row.trained for row in rows] + [[False]] * empty).astype(np.float32),
            padded([row.recorded for row in rows] + [[0.0]] * empty).astype(np.float32),
            advantages,
            padded([row.versions for row in rows] + [[""]] * empty),
        )


def arrays(rows: Sequence[Trained]) -> list[Arrays]:
    """Sort sequences by length and put them into arrays."""
    ordered = sorted(rows, key=lambda row: len(row.tokens))
    return [Arrays.of(ordered[start : start + ROWS]) for start in range(0, len(ordered), ROWS)]


def _loss(params: Params, tokens: Array, trained: Array, recorded: Array, advantages: Array) -> Array:
    ratio = jnp.exp((model.logprobs(params, tokens) - recorded) * trained)
    clipped = jnp.clip(ratio, 1 - _CLIP_LOW, 1 + _CLIP_HIGH)
    gain = jnp.minimum(ratio * advantages[:, None], clipped * advantages[:, None])
    return -jnp.sum(gain * trained)


def count(batch: Sequence[Arrays]) -> float:
    """Return the number of trained tokens."""
    return sum(float(part.trained.sum()) for part in batch)


_gradient: Final = jax.jit(jax.grad(_loss))
_move: Final = jax.jit(optimizer.step)
_logprobs: Final = jax.jit(model.logprobs)


def step(
    params: Params, moments: optimizer.Moments, batch: Sequence[Arrays], rate: float, *, tokens: float
) -> tuple[Params, optimizer.Moments, float]:
    """Take one step on a batch, every trained token counting the same; returns the gradient's norm, too.

    `tokens` is the number of trained tokens over which the gradient is averaged, including those of sequences left out
    of the batch: if only one group of eight has differences, it must move the weights less than eight would.
    """
    gradients = None
    for part in batch:
        if not part.advantages.any():
            continue
        found = _gradient(params, part.tokens, part.trained, part.recorded, part.advantages)
        gradients = found if gradients is None else jax.tree.map(jnp.add, gradients, found)
    if gradients is None:
        return params, moments, 0.0
    gradients = jax.tree.map(lambda leaf: leaf / tokens, gradients)
    params, moments, norm = _move(params, gradients, moments, jnp.float32(rate))
    return params, moments, float(norm)


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """The agreement of recomputed log-probabilities with the recorded ones."""

    tokens: int = 0
    largest: float = 0.0
    total: float = 0.0
    unknown: int = 0
    """Trained tokens of weights that are not kept or not named; they cannot be checked."""

    def __add__(self, other: Agreement) -> Agreement:
        return Agreement(
            tokens=self.tokens + other.tokens,
            largest=max(self.largest, other.largest),
            total=self.total + other.total,
            unknown=self.unknown + other.unknown,
        )


def agreement(batch: Sequence[Arrays], weights: Mapping[str, Params]) -> Agreement:
    """Recompute every trained token's log-probability with the weights that sampled it."""
    return sum((_agreement(part, weights) for part in batch), Agreement())


def _agreement(part: Arrays, weights: Mapping[str, Params]) -> Agreement:
    trained = part.trained > 0
    found = Agreement()
    for version in np.unique(part.versions[trained]):
        chosen = trained & (part.versions == version)
        if version not in weights:
            found += Agreement(unknown=int(chosen.sum()))
            continue
        recomputed = np.asarray(_logprobs(weights[version], part.tokens))
        differences = np.abs(recomputed - part.recorded)[chosen]
        found += Agreement(tokens=differences.size, largest=float(differences.max()), total=float(differences.sum()))
    return found
