"""Samples that were drawn under a mask: which parameters count, and where they are recorded."""

from __future__ import annotations

from typing import Any

import pytest
from chatml_folder import chatml_folder
from token_clients import connecting_tokens, request
from token_rollout import CALL_TEXT, CALLED, RESULT, USER, open_rollout
from token_server import TokenServer, serving_tokens

from hermes_core.contracts.tokens import Exactness
from hermes_tokens.constraints import constraints

SCHEMA = {"type": "object"}
MASKS: dict[str, dict[str, Any]] = {
    "vllm": {
        "structured_outputs": {"json": SCHEMA},
        "allowed_token_ids": [1, 2],
        "bad_words": ["no"],
        "logit_bias": {"5": 1.0},
        "min_tokens": 2,
    },
    "sglang": {"json_schema": "{}", "regex": "a+", "ebnf": "x", "structural_tag": "{}", "logit_bias": {"5": 1.0}},
    "atropos": {"allowed_token_ids": [1, 2], "bad_words": ["no"], "logit_bias": {"5": 1.0}, "min_tokens": 2},
}
EVERY_MASK = [(protocol, name, value) for protocol, masks in MASKS.items() for name, value in masks.items()]
SHAPES = {
    "top_p": (1.0, 0.9),
    "top_k": (-1, 20),
    "min_p": (0, 0.1),
    "presence_penalty": (0.0, 0.5),
    "frequency_penalty": (0, 0.5),
    "repetition_penalty": (1.0, 1.1),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return chatml_folder(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture
async def connect():
    async with connecting_tokens() as make:
        yield make


@pytest.mark.parametrize(("protocol", "name", "value"), EVERY_MASK)
@pytest.mark.parametrize("mode", ["raw", "processed", None])
async def test_a_turn_under_a_mask_names_it_for_every_kind_of_logprob(connect, protocol, name, value, mode):
    async with serving_tokens(TokenServer(protocol)) as server:
        asked = request(sampling={"temperature": 1.0, name: value})
        assert (await connect(server, logprobs_mode=mode).generate(asked)).constraints == (name,)
        of_every_request = connect(server, logprobs_mode=mode, extra_body={name: value})
        assert (await of_every_request.generate(request())).constraints == (name,)


@pytest.mark.parametrize("name", SHAPES)
def test_what_shapes_the_distribution_counts_where_the_logprobs_are_processed_by_it(name):
    neutral, other = SHAPES[name]
    assert constraints({name: neutral}, logprobs_mode="processed") == ()
    assert constraints({name: other}, logprobs_mode="processed") == (name,)
    assert constraints({name: other}, logprobs_mode="raw") == ()
    assert constraints({name: other}, logprobs_mode="unknown") == ()


@pytest.mark.parametrize(
    "sampling",
    [
        {"max_tokens": 5, "seed": 3, "stop_token_ids": [2], "ignore_eos": True},
        {"logit_bias": {}, "bad_words": [], "min_tokens": 0, "structured_outputs": None, "regex": ""},
        {"top_k": 0, "thinking_token_budget": None, "extra_args": {}},
    ],
    ids=["no mask", "empty masks", "all tokens"],
)
def test_a_parameter_that_masks_nothing_is_not_a_constraint(sampling):
    assert constraints(sampling, logprobs_mode="processed") == ()


@pytest.mark.parametrize("protocol", ["vllm", "sglang", "atropos"])
async def test_a_rollout_with_one_constrained_turn_is_marked_counted_and_not_exact(folder, protocol):
    async with open_rollout(folder, [f"{CALL_TEXT}<|im_end|>", "done<|im_end|>"], protocol=protocol) as rollout:
        await rollout.ask(USER)
        assert rollout.session.exactness().is_exact
        await rollout.ask(USER, CALLED, RESULT, logit_bias={"5": 1.0})
        (sample,) = rollout.session.samples()
        found = rollout.session.exactness()
        assert sample.to_json()["constrained"] is True
        assert found.constrained == len(rollout.tokenizer.encode_scaffold("done<|im_end|>"))
        assert not found.is_exact
        assert found.constraints == (f"turn 1: {found.constrained} sampled tokens under logit_bias",)
        assert found.constraints[0] in found.why_not_exact()
        assert rollout.session.managed_state()["nodes"][0]["metadata"]["constrained"] is True


async def test_masked_tokens_are_marked_and_counted_and_may_be_allowed(folder):
    async with open_rollout(folder, ["done<|im_end|>"]) as rollout:
        await rollout.ask(USER, logit_bias={"5": 1.0})
        found = rollout.session.exactness()
        assert "--allow-constrained" in found.why_not_exact()
        assert found.why_not_exact(allow_constrained=True) == ""
        assert found.constrained > 0
        assert rollout.session.samples()[0].constrained


def test_an_allowed_mask_hides_no_fault():
    report = Exactness(sampled=2, trained=1, with_logprob=2, constrained=2)
    assert report.why_not_exact(allow_constrained=True) == "sampled_trained_share is 0.5"


async def test_a_branch_without_loss_on_constrained_tokens_is_not_marked(folder):
    async with open_rollout(folder, ["one<|im_end|>", "two<|im_end|>", "three<|im_end|>"]) as rollout:
        one, more = {"role": "assistant", "content": "one"}, {"role": "user", "content": "More."}
        await rollout.ask(USER, logit_bias={"5": 1.0})
        await rollout.ask(USER, one, more)
        await rollout.ask(USER, one, {"role": "user", "content": "Else."})
        assert [sample.constrained for sample in rollout.session.samples()] == [True, False]


async def test_the_same_prompt_with_a_mask_and_without_is_told_apart_by_the_wire_check(folder):
    async with open_rollout(folder, ["one two<|im_end|>", "one three<|im_end|>"]) as rollout:
        await rollout.ask(USER, logit_bias={"5": 1.0})
        await rollout.ask(USER)
        assert sorted(sample.constrained for sample in rollout.session.samples()) == [False, True]
        assert rollout.check().faults == ()


def test_reports_add_up_and_those_of_older_versions_are_read():
    report = Exactness(sampled=5, trained=5, constrained=3)
    assert (report + report).constrained == 6
    assert Exactness.of_json(report.to_json()) == report
    old = Exactness(sampled=5, trained=5).to_json()
    del old["counts"]["constrained"], old["constrained_tokens"], old["constraints"]
    assert Exactness.of_json(old) == Exactness(sampled=5, trained=5)
