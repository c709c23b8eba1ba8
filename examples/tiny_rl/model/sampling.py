"""Batched sampling with a key-value cache.

Prompts are padded on the left, so that every row of a batch writes the same column of the cache; positions are counted
from each row's own first token, so that sampling and teacher forcing compute the same numbers.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import jax
import jax.numpy as jnp

from tiny_rl.model.transformer import MASKED, Array, Params, mixed, predicted, projected

Caches = tuple[tuple[Array, Array], ...]
"""Keys and values of each layer, [batch, column, heads, head]."""


class Sampling(NamedTuple):
    """How each row of a batch is sampled; arrays of one entry (or row) each.

    `stop_ids` [batch, n] is padded with -1; `seeds` are 32 bits each; `limit` is the maximum number of tokens to
    sample.
    """

    temperature: Array
    top_p: Array
    stop_ids: Array
    seeds: Array
    limit: Array


class Sampled(NamedTuple):
    """The sampled tokens: `ids`, raw `logprobs` and `ranks` [batch, new], of which the first `lengths` are real."""

    ids: Array
    logprobs: Array
    ranks: Array
    lengths: Array


class _Progress(NamedTuple):
    step: Array
    logits: Array
    caches: Caches
    active: Array
    sampled: Sampled


def _sample(params: Params, prompts: Array, pads: Array, sampling: Sampling, *, new: int) -> Sampled:
    """Sample up to `new` tokens after `prompts` [batch, time], whose first `pads` columns are padding."""
    batch, time = prompts.shape
    last, caches = _prefilled(params, prompts, pads, time + new)
    empty = Sampled(
        jnp.zeros((batch, new), jnp.int32),
        jnp.zeros((batch, new)),
        jnp.zeros((batch, new), jnp.int32),
        jnp.zeros(batch, jnp.int32),
    )

    def goes_on(now: _Progress) -> Array:
        return (now.step < new) & jnp.any(now.active)

    def advance(now: _Progress) -> _Progress:
        ids, chosen, ranks = _draw(now.logits, sampling, now.step)
        sampled = _noted(now, ids, chosen, ranks)
        stopped = jnp.any(ids[:, None] == sampling.stop_ids, axis=1) | (sampled.lengths >= sampling.limit)
        following, updated = _decoded(params, ids, time + now.step, pads, caches=now.caches)
        return _Progress(now.step + 1, following, updated, now.active & ~stopped, sampled)

    start = _Progress(jnp.int32(0), last, caches, sampling.limit > 0, empty)
    end: _Progress = jax.lax.while_loop(goes_on, advance, start)
    return end.sampled


sample: Final = jax.jit(_sample, static_argnames="new")
"""`_sample`, compiled once for each shape of prompts."""


def _prefilled(params: Params, prompts: Array, pads: Array, columns: int) -> tuple[Array, Caches]:
    """Run the prompts; returns the logits after the last column and the caches, with room for `columns`."""
    batch, time = prompts.shape
    places = jnp.broadcast_to(jnp.arange(time), (batch, time))
    visible = (places[:, None, :] <= places[:, :, None]) & (places >= pads[:, None])[:, None, :]
    x = params["embedding"][prompts]
    caches = []
    for layer in params["layers"]:
        q, k, v = projected(layer, x, places - pads[:, None])
        x = mixed(layer, x, (q, k, v), visible)
        room = ((0, 0), (0, columns - time), (0, 0), (0, 0))
        caches.append((jnp.pad(k, room), jnp.pad(v, room)))
    return predicted(params, x[:, -1:])[:, 0], tuple(caches)


def _decoded(params: Params, ids: Array, column: Array, pads: Array, *, caches: Caches) -> tuple[Array, Caches]:
    """Run one token of each row, written to `column` of the caches; returns the logits after it."""
    columns = jnp.arange(caches[0][0].shape[1])
    visible = ((columns <= column) & (columns >= pads[:, None]))[:, None, :]
    x = params["embedding"][ids][:, None]
    updated = []
    for layer, (old_keys, old_values) in zip(params["layers"], caches, strict=True):
        q, k, v = projected(layer, x, (column - pads)[:, None])
        keys = jax.lax.dynamic_update_slice_in_dim(old_keys, k, column, axis=1)
        values = jax.lax.dynamic_update_slice_in_dim(old_values, v, column, axis=1)
        x = mixed(layer, x, (q, keys, values), visible)
        updated.append((keys, values))
    return predicted(params, x)[:, 0], tuple(updated)


def _draw(raw: Array, sampling: Sampling, step: Array) -> tuple[Array, Array, Array]:
    """Draw one token of each row; returns ids, their raw log-probabilities and ranks (1: the likeliest)."""
    normal = jax.nn.log_softmax(raw)
    heat = jnp.maximum(sampling.temperature, 1e-4)[:, None]
    narrows = jnp.any(sampling.top_p < 1)
    # Sorting costs more than the rest of the draw, so nothing is sorted without top-p.
    allowed = jax.lax.cond(narrows, _nucleus, lambda scaled, _: scaled, normal / heat, sampling.top_p)
    # Each row has its own randomness, so a seed draws the same tokens whatever the batch contains.
    keys = jax.vmap(lambda seed: jax.random.fold_in(jax.random.key(seed), step))(sampling.seeds)
    noise = jax.vmap(lambda key: jax.random.gumbel(key, normal.shape[1:]))(keys)
    greedy = sampling.temperature <= 0
    ids = jnp.argmax(jnp.where(greedy[:, None], normal, allowed + noise), axis=-1).astype(jnp.int32)
    chosen = jnp.take_along_axis(normal, ids[:, None], axis=-1)
    return ids, chosen[:, 0], 1 + jnp.sum(normal > chosen, axis=-1, dtype=jnp.int32)


def _nucleus(scaled: Array, top_p: Array) -> Array:
    """Mask all but the likeliest tokens that together reach `top_p`."""
    order = jnp.argsort(-scaled, axis=-1)
    chances = jnp.take_along_axis(jax.nn.softmax(scaled), order, axis=-1)
    before = jnp.cumsum(chances, axis=-1) - chances
    kept = jnp.put_along_axis(jnp.zeros_like(scaled, bool), order, before < top_p[:, None], axis=-1, inplace=False)
    return jnp.where(kept, scaled, MASKED)


def _noted(now: _Progress, ids: Array, chosen: Array, ranks: Array) -> Sampled:
    """Write one column of sampled tokens; finished rows stay unchanged."""

    def column(old: Array, values: Array) -> Array:
        return jax.lax.dynamic_update_slice_in_dim(old, values[:, None], now.step, axis=1)

    done = now.sampled
    return Sampled(
        column(done.ids, ids), column(done.logprobs, chosen), column(done.ranks, ranks), done.lengths + now.active
    )
