"""A decoder-only transformer in JAX: weights, their files, and the log-probabilities of given tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

Array = Any
"""A JAX or numpy array; the type checker does not need the framework."""
Params = dict[str, Any]

_HEAD: Final = 64
"""Dimensions of one head."""
_THETA: Final = 10_000.0
_EPSILON: Final = 1e-6
MASKED: Final = -1e30


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The size of a transformer; the default has 2.4 million parameters without the vocabulary."""

    vocabulary: int
    width: int = 256
    layers: int = 3


def create(shape: Shape, seed: int) -> Params:
    """Return fresh weights."""
    keys = iter(jax.random.split(jax.random.key(seed), 4 * shape.layers + 1))
    width, deep = shape.width, 1 / math.sqrt(2 * shape.layers)

    def matrix(rows: int, columns: int, scale: float = 1.0) -> Array:
        return scale / math.sqrt(rows) * jax.random.normal(next(keys), (rows, columns), jnp.float32)

    return {
        "embedding": matrix(width, shape.vocabulary).T,
        "norm": jnp.ones(width),
        "layers": [
            {
                "attention_norm": jnp.ones(width),
                "qkv": matrix(width, 3 * width),
                "out": matrix(width, width, deep),
                "feed_norm": jnp.ones(width),
                "up": matrix(width, 4 * width),
                "down": matrix(4 * width, width, deep),
            }
            for _ in range(shape.layers)
        ],
    }


def count(params: Params) -> int:
    """Return the number of parameters."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def save(params: Params, path: Path) -> None:
    """Write weights as `.npz` atomically: a reader never sees half a file."""
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        np.savez(file, **_flat(params))
    partial.replace(path)


def load(path: Path) -> Params:
    """Read weights that `save` wrote."""
    with np.load(path) as arrays:
        flat = {name: jnp.asarray(arrays[name]) for name in arrays.files}
    layers = 1 + max(int(name.split(".")[1]) for name in flat if name.startswith("layers."))
    nested: Params = {name: value for name, value in flat.items() if "." not in name}
    nested["layers"] = [
        {name.split(".")[2]: value for name, value in flat.items() if name.startswith(f"layers.{index}.")}
        for index in range(layers)
    ]
    return nested


def _flat(params: Params) -> dict[str, Array]:
    flat = {name: np.asarray(value) for name, value in params.items() if name != "layers"}
    for index, layer in enumerate(params["layers"]):
        flat |= {f"layers.{index}.{name}": np.asarray(value) for name, value in layer.items()}
    return flat


def _normalised(x: Array, scale: Array) -> Array:
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + _EPSILON) * scale


def _times(x: Array, matrix: Array) -> Array:
    """Multiply along the last axis in two dimensions: the gradient of the plain product takes 1.7 times as long."""
    return (x.reshape(-1, x.shape[-1]) @ matrix).reshape(*x.shape[:-1], matrix.shape[1])


def _rotated(x: Array, positions: Array) -> Array:
    """Turn each pair of dimensions of `x` [batch, time, heads, head] by its position [batch, time]."""
    half = x.shape[-1] // 2
    angles = positions[..., None, None] * _THETA ** (-jnp.arange(half) / half)
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    first, second = x[..., :half], x[..., half:]
    return jnp.concatenate([first * cos - second * sin, first * sin + second * cos], axis=-1)


def projected(layer: Params, x: Array, positions: Array) -> tuple[Array, Array, Array]:
    """Return queries, keys and values [batch, time, heads, head]."""
    batch, time, _ = x.shape
    qkv = _times(_normalised(x, layer["attention_norm"]), layer["qkv"]).reshape(batch, time, 3, -1, _HEAD)
    return _rotated(qkv[:, :, 0], positions), _rotated(qkv[:, :, 1], positions), qkv[:, :, 2]


def mixed(layer: Params, x: Array, qkv: tuple[Array, Array, Array], visible: Array) -> Array:
    """Attend and feed forward; `visible` [batch, queries, keys] is the attention mask."""
    q, k, v = qkv
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1])
    weights = jax.nn.softmax(jnp.where(visible[:, None], scores, MASKED), axis=-1)
    x = x + _times(jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(x.shape), layer["out"])
    return x + _times(jax.nn.gelu(_times(_normalised(x, layer["feed_norm"]), layer["up"])), layer["down"])


def predicted(params: Params, x: Array) -> Array:
    """Return the logits of the last layer's output."""
    return _times(_normalised(x, params["norm"]), params["embedding"].T)


def logits(params: Params, tokens: Array) -> Array:
    """Return the logits after each of `tokens` [batch, time], which are padded on the right."""
    batch, time = tokens.shape
    positions = jnp.broadcast_to(jnp.arange(time), (batch, time))
    visible = jnp.broadcast_to(jnp.tril(jnp.ones((time, time), bool)), (batch, time, time))
    x = params["embedding"][tokens]
    for layer in params["layers"]:
        x = mixed(layer, x, projected(layer, x, positions), visible)
    return predicted(params, x)


def logprobs(params: Params, tokens: Array) -> Array:
    """Return the log-probability of each token given those before it, at temperature 1; the first one's is 0."""
    given = jax.nn.log_softmax(logits(params, tokens[:, :-1]))
    picked = jnp.take_along_axis(given, tokens[:, 1:, None], axis=-1)[..., 0]
    return jnp.pad(picked, ((0, 0), (1, 0)))
