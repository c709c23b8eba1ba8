"""A token-level model's check: a server without logprobs is reported before a run."""

from __future__ import annotations

import json
import logging

import pytest
from chatml_folder import chatml_folder
from token_rollout import USER, open_rollout
from token_server import Fault

from hermes_core.contracts.errors import ModelReplyError
from hermes_tokens.audit.recording_proxy import RecordingProxy, recording
from hermes_tokens.clients.factory import create_generate_client
from hermes_tokens.clients.token_model import TokenModel
from hermes_tokens.exactness import Exchange

PROTOCOLS = ("vllm", "sglang", "atropos")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return chatml_folder(tmp_path_factory.mktemp("tokenizer"))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("kind", ["no_logprobs", "no_ids", "short_logprobs"])
async def test_a_server_whose_answer_lacks_what_is_needed_is_refused_by_the_check(folder, protocol, kind):
    async with open_rollout(folder, [], protocol=protocol) as rollout:
        rollout.server.check_fault = Fault.named(kind)
        with pytest.raises(ModelReplyError):
            await rollout.model.check()
        assert rollout.server.lines == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_server_that_answers_null_for_logprobs_is_warned_of(folder, protocol, caplog):
    async with open_rollout(folder, [], protocol=protocol) as rollout:
        rollout.server.check_logprob = None
        with caplog.at_level(logging.WARNING):
            await rollout.model.check()
            await rollout.model.check()
    (record,) = [record for record in caplog.records if record.name.startswith("hermes_tokens")]
    assert "samples have no logprobs" in record.getMessage()


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_the_check_samples_one_token_that_belongs_to_no_rollout(folder, protocol, caplog):
    async with open_rollout(folder, ["one<|im_end|>"], protocol=protocol) as rollout:
        with caplog.at_level(logging.WARNING):
            await rollout.model.check()
        assert not caplog.records
        (sent,) = map(json.loads, rollout.server.checks)
        parameters = sent.get("sampling_params", sent)
        assert parameters.get("max_tokens", parameters.get("max_new_tokens")) == 1
        await rollout.ask(USER)
        assert rollout.check().is_exact


async def test_a_temporary_failure_of_the_check_does_not_stop_the_run(folder):
    async with open_rollout(folder, ["one<|im_end|>"], client={"max_retries": 0}) as rollout:
        rollout.server.check_fault = Fault.refuse(500)
        await rollout.model.check()
        await rollout.ask(USER)
        assert rollout.session.exactness().is_exact


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_recorded_check_is_not_a_turn_that_a_sample_must_hold(folder, protocol, tmp_path):
    log = tmp_path / "wire.jsonl"
    async with (
        open_rollout(folder, [], protocol=protocol) as rollout,
        recording(RecordingProxy(rollout.server.url, log)) as url,
    ):
        model = TokenModel(create_generate_client(protocol, url, "m"), rollout.tokenizer)
        await model.check()
        await model.aclose()
    (line,) = map(json.loads, log.read_text().splitlines())
    assert line["ids"] == [2]
    assert Exchange.of_line(line) is None
    assert Exchange.of_line({**line, "rollout_id": "r1"}) is not None
    assert Exchange.of_line({**line, "ids": [2, 3]}) is not None
