from __future__ import annotations

import itertools
import json

import pytest

pytest.importorskip("jax", reason="jax is not installed")

import jax
import jax.numpy as jnp
import numpy as np

from tiny_rl.model import tokenizer
from tiny_rl.model import transformer as model
from tiny_rl.tasks import COLOURS
from tiny_rl.training import grpo, optimizer, sft
from tiny_rl.training.trainer import Trainer

SHAPE = model.Shape(vocabulary=50, width=64, layers=1)
PARAMS = model.create(SHAPE, 0)


@pytest.fixture(scope="module")
def coder():
    return tokenizer.train(itertools.islice(sft.texts(0), 200), COLOURS)


def test_twenty_steps_of_supervised_learning_lower_the_loss(coder):
    params = model.create(model.Shape(vocabulary=coder.get_vocab_size(), width=64, layers=1), 0)
    _, losses = sft.learn(params, coder, steps=20, seed=0, size=8, rate=3e-3)
    assert np.mean(losses[-5:]) < 0.7 * np.mean(losses[:3])


def test_only_what_the_assistant_wrote_has_loss(coder):
    text = next(sft.texts(0))
    example = sft.encoded(coder, text)
    trained = coder.decode(
        [token for token, is_trained in zip(example.ids, example.trained, strict=True) if is_trained],
        skip_special_tokens=False,
    )
    said = [part.split("<|im_end|>")[0] for part in text.split("<|im_start|>assistant\n")[1:]]
    assert trained == "".join(f"{turn}<|im_end|>" for turn in said)


def group(rewards, versions=("v0",), weight=1.0):
    """A group of sequences [prompt, sampled, sampled], with the logprobs of the weights."""
    tokens = [[3, 4, 5 + number, 6] for number in range(len(rewards))]
    logprobs = np.asarray(model.logprobs(PARAMS, jnp.array(tokens)))
    spans = [{"version": version, "start": 2, "end": 4} for version in versions]
    return {
        "tokens": tokens,
        "masks": [[-100, -100, *row[2:]] for row in tokens],
        "scores": list(rewards),
        "inference_logprobs": [[1.0, 1.0, *map(float, row[2:])] for row in logprobs],
        "generation_params": {"temperature": 1.0, "logprobs_mode": "raw"},
        "overrides": [
            {"rollout_id": f"ro_{n}", "weight_versions": spans, "weight": weight} for n in range(len(tokens))
        ],
    }


def forced(params, data):
    return np.asarray(model.logprobs(params, jnp.array(data["tokens"])))[:, 2:].sum(axis=1)


def test_a_step_makes_what_scored_well_likelier_and_the_rest_less_likely():
    data = group([1.0, 0.0, 0.0])
    batch = grpo.arrays(grpo.sequences([data]))
    params, _, norm = grpo.step(PARAMS, optimizer.start(PARAMS), batch, 1e-3, tokens=6)
    change = forced(params, data) - forced(PARAMS, data)
    assert norm > 0
    assert change[0] > 0 > max(change[1:])


def test_groups_without_differences_move_nothing():
    batch = grpo.arrays(grpo.sequences([group([1.0, 1.0])]))
    params, _, norm = grpo.step(PARAMS, optimizer.start(PARAMS), batch, 1e-3, tokens=4)
    assert norm == 0.0
    assert all(jax.tree.leaves(jax.tree.map(lambda a, b: bool((a == b).all()), params, PARAMS)))


def test_the_branches_of_a_rollout_share_its_weight():
    whole, half = (grpo.sequences([group([1.0, 0.0], weight=weight)]) for weight in (1.0, 0.5))
    assert half[0].advantage == pytest.approx(whole[0].advantage / 2)


def test_honest_data_agrees_with_the_weights_that_sampled_it():
    found = grpo.agreement(grpo.arrays(grpo.sequences([group([1.0, 0.0])])), {"v0": PARAMS})
    assert (found.tokens, found.unknown) == (4, 0)
    assert found.largest < 1e-4


@pytest.mark.parametrize("place", [2, 3])
def test_one_token_with_another_logprob_is_found(place):
    data = group([1.0, 0.0])
    data["inference_logprobs"][1][place] += 0.01
    found = grpo.agreement(grpo.arrays(grpo.sequences([data])), {"v0": PARAMS})
    assert found.largest == pytest.approx(0.01, rel=0.05)


def test_data_is_checked_against_the_weights_that_it_names():
    other = model.create(SHAPE, 1)
    data = group([1.0, 0.0], versions=("v1",))
    found = grpo.agreement(grpo.arrays(grpo.sequences([data])), {"v0": PARAMS, "v1": other})
    assert found.largest > 1e-3


@pytest.mark.parametrize("kind", [{"logprobs_mode": "processed"}, {"temperature": 0.7}, {"logprobs_mode": None}])
def test_logprobs_of_another_kind_are_refused(kind):
    data = group([1.0, 0.0])
    data["generation_params"] |= kind
    with pytest.raises(grpo.KindOfLogprobError, match="raw"):
        grpo.sequences([data])


def test_tokens_of_weights_that_are_gone_are_counted():
    data = group([1.0, 0.0], versions=("v9",))
    found = grpo.agreement(grpo.arrays(grpo.sequences([data])), {"v0": PARAMS})
    assert (found.tokens, found.unknown) == (0, 4)


def test_sequences_of_any_length_fit_into_arrays():
    lengths = range(3, 80)
    rows = [
        grpo.Trained(tokens=[1] * n, trained=[True] * n, recorded=[0.0] * n, advantage=1.0, versions=["v0"] * n)
        for n in lengths
    ]
    batch = grpo.arrays(rows)
    assert sum(part.trained.sum() for part in batch) == sum(lengths)
    assert {part.tokens.shape[0] for part in batch} == {grpo.ROWS}


class Wire:
    """The API and the model's server as the trainer sees them; records the requests."""

    def __init__(self, batches):
        self.batches = list(batches)
        self.asked = []

    def __call__(self, url, body=None):
        self.asked.append((url, body))
        return {"batch": self.batches.pop(0)} if url.endswith("/batch") else {}


def test_the_trainer_registers_takes_batches_and_hands_out_weights(tmp_path, monkeypatch):
    wire = Wire([None, [group([1.0, 0.0])], [group([0.0, 1.0], versions=("v1",))]])
    monkeypatch.setattr("tiny_rl.training.trainer._ask", wire)
    Trainer(PARAMS, api="http://api", server="http://model", folder=tmp_path, steps=2, rate=1e-4).run(2)
    first, *_, last = wire.asked
    assert (first[0], first[1]["batch_size"], first[1]["num_steps"]) == ("http://api/register", 2, 2)
    assert (last[0], last[1]["version"]) == ("http://model/update_weights", "v2")
    steps = [json.loads(line) for line in (tmp_path / "steps.jsonl").read_text().splitlines()]
    assert [(step["reward"], step["unknown_tokens"]) for step in steps] == [(0.5, 0), (0.5, 0)]
    assert steps[0]["largest_difference"] < 1e-4 < steps[1]["largest_difference"]
    assert [path.name for path in (tmp_path / "weights").iterdir()] == ["v2.npz"]


def trained(tmp_path, monkeypatch, *batches, rate=1e-4):
    """Train on batches, one step each; returns the records of each step, and the last weights."""
    monkeypatch.setattr("tiny_rl.training.trainer._ask", Wire(batches))
    trainer = Trainer(PARAMS, api="http://api", server="http://model", folder=tmp_path, steps=len(batches), rate=rate)
    tmp_path.mkdir(exist_ok=True)
    trainer.run(2)
    steps = [json.loads(line) for line in (tmp_path / "steps.jsonl").read_text().splitlines()]
    return steps, model.load(tmp_path / "weights" / f"v{len(batches)}.npz")


@pytest.mark.parametrize("flat", [1, 3, 7])
def test_groups_without_differences_share_the_gradient_of_the_others(tmp_path, monkeypatch, flat):
    """One group with differences among eight carries less information than eight: it must move the weights less."""
    one, without = group([1.0, 0.0]), group([1.0, 1.0])
    (alone,), _ = trained(tmp_path / "alone", monkeypatch, [one])
    (beside,), _ = trained(tmp_path / "beside", monkeypatch, [one, *[without] * flat])
    assert beside["gradient"] == pytest.approx(alone["gradient"] / (1 + flat), abs=1e-3)


def test_the_first_steps_are_the_shortest(tmp_path, monkeypatch):
    """Adam's first step moves every weight by the whole rate, whatever its gradient is."""
    _, params = trained(tmp_path, monkeypatch, [group([1.0, 0.0])], rate=1e-3)
    moves = jax.tree.leaves(jax.tree.map(lambda a, b: float(abs(a - b).max()), params, PARAMS))
    assert 0 < max(moves) < 2e-4
