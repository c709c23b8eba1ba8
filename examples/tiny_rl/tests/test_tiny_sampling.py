from __future__ import annotations

import pytest

pytest.importorskip("jax", reason="jax is not installed")

import jax
import jax.numpy as jnp
import numpy as np

from tiny_rl.model import transformer as model
from tiny_rl.model.sampling import Sampling, sample

SHAPE = model.Shape(vocabulary=50, width=64, layers=2)
PARAMS = model.create(SHAPE, 0)
PROMPTS = ([3, 1, 4, 1, 5], [9], [2, 6, 5, 3, 5, 8, 9, 7])


def drawn(prompts=PROMPTS, *, seeds=None, temperature=1.0, top_p=1.0, stops=(-1,), limit=12):
    size, time = len(prompts), 8
    rows = np.zeros((size, time), np.int32)
    for row, prompt in zip(rows, prompts, strict=True):
        row[time - len(prompt) :] = prompt
    sampling = Sampling(
        temperature=jnp.full(size, temperature),
        top_p=jnp.full(size, top_p),
        stop_ids=jnp.broadcast_to(jnp.array(stops), (size, len(stops))),
        seeds=jnp.array(seeds or range(size), jnp.uint32),
        limit=jnp.full(size, limit),
    )
    pads = jnp.array([time - len(prompt) for prompt in prompts])
    found = sample(PARAMS, rows, pads, sampling, new=12)
    return [
        (list(map(int, ids[:length])), logprobs[:length], ranks[:length])
        for ids, logprobs, ranks, length in zip(*map(np.asarray, found), strict=True)
    ]


def forced(prompt, ids):
    tokens = jnp.array([[*prompt, *ids]])
    return np.asarray(model.logprobs(PARAMS, tokens))[0, len(prompt) :]


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.5, 1.0), (1.0, 0.7), (0.0, 1.0)])
def test_sampled_logprobs_are_those_of_teacher_forcing_whatever_was_sampled_with(temperature, top_p):
    for prompt, (ids, logprobs, _) in zip(PROMPTS, drawn(temperature=temperature, top_p=top_p), strict=True):
        assert np.abs(logprobs - forced(prompt, ids)).max() < 1e-4


def test_temperature_zero_takes_the_likeliest_token():
    assert all((ranks == 1).all() for _, _, ranks in drawn(temperature=0.0))


def test_a_tiny_top_p_leaves_only_the_likeliest_token():
    assert all((ranks == 1).all() for _, _, ranks in drawn(top_p=1e-6))


def test_a_rank_counts_the_likelier_tokens():
    (ids, _, ranks), *_ = drawn()
    chances = np.asarray(model.logits(PARAMS, jnp.array([PROMPTS[0]])))[0, -1]
    assert ranks[0] == 1 + (chances > chances[ids[0]]).sum()


def test_a_row_ends_with_its_stop_token():
    whole = drawn()[0][0]
    cut = drawn(stops=(whole[3],))[0][0]
    assert cut == whole[: whole.index(whole[3]) + 1]


def test_a_row_ends_at_its_limit():
    assert [len(ids) for ids, _, _ in drawn(limit=5)] == [5, 5, 5]


def test_a_row_depends_on_its_own_seed_and_prompt_only():
    alone = drawn([PROMPTS[0], [1], [1]], seeds=[7, 0, 0])[0][0]
    among = drawn([PROMPTS[2], PROMPTS[1], PROMPTS[0]], seeds=[1, 2, 7])[2][0]
    assert alone == among


def test_other_seeds_draw_other_tokens():
    first, second = (drawn([PROMPTS[0]], seeds=[seed])[0][0] for seed in (1, 2))
    assert first != second


def test_samples_follow_the_models_distribution():
    size = 4000
    found = drawn([PROMPTS[0]] * size, seeds=list(range(size)), limit=1)
    shares = np.bincount([ids[0] for ids, _, _ in found], minlength=50) / size
    chances = np.exp(np.asarray(jax.nn.log_softmax(model.logits(PARAMS, jnp.array([PROMPTS[0]]))[0, -1])))
    assert np.abs(shares - chances).max() < 0.04


def test_weights_survive_their_file(tmp_path):
    model.save(PARAMS, tmp_path / "weights.npz")
    same = jax.tree.map(lambda a, b: bool((a == b).all()), PARAMS, model.load(tmp_path / "weights.npz"))
    assert all(jax.tree.leaves(same))
