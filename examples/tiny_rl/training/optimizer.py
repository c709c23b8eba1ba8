"""Adam with clipped gradients, for weights as nested dictionaries."""

from __future__ import annotations

from typing import Final, NamedTuple

import jax
import jax.numpy as jnp

from tiny_rl.model.transformer import Array, Params

_FIRST: Final = 0.9
_SECOND: Final = 0.98
_EPSILON: Final = 1e-8


class Moments(NamedTuple):
    """Adam's running means, and the number of steps so far."""

    first: Params
    second: Params
    steps: Array


def start(params: Params) -> Moments:
    """Return the moments before the first step."""
    zeros = jax.tree.map(jnp.zeros_like, params)
    return Moments(zeros, zeros, jnp.int32(0))


def step(
    params: Params, gradients: Params, moments: Moments, rate: Array, largest: float = 1.0
) -> tuple[Params, Moments, Array]:
    """Take one step against gradients, clipped to the norm `largest`; also returns the norm before clipping."""
    norm = jnp.sqrt(sum(jnp.sum(leaf * leaf) for leaf in jax.tree.leaves(gradients)))
    scale = jnp.minimum(1.0, largest / (norm + 1e-9))
    gradients = jax.tree.map(lambda leaf: leaf * scale, gradients)
    steps = moments.steps + 1
    first = jax.tree.map(lambda m, g: _FIRST * m + (1 - _FIRST) * g, moments.first, gradients)
    second = jax.tree.map(lambda m, g: _SECOND * m + (1 - _SECOND) * g * g, moments.second, gradients)
    first_share, second_share = 1 - _FIRST**steps, 1 - _SECOND**steps

    def moved(value: Array, m: Array, v: Array) -> Array:
        return value - rate * (m / first_share) / (jnp.sqrt(v / second_share) + _EPSILON)

    return jax.tree.map(moved, params, first, second), Moments(first, second, steps), norm
