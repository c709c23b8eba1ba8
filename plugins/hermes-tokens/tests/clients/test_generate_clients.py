"""The generate clients against servers that speak their protocols strictly, over real loopback HTTP."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from token_clients import PROTOCOLS, connecting_tokens, request
from token_server import Fault, Sampled, TokenServer, serving_tokens
from token_wire import SglangWire, VllmWire

import hermes_tokens
from hermes_core.contracts.errors import ConfigError
from hermes_core.contracts.tokens import WeightSpan
from hermes_tokens.clients.generate import request_body
from hermes_tokens.generation import GenerateClient, TokenIds


@pytest.fixture(params=PROTOCOLS)
async def server(request):
    async with serving_tokens(TokenServer(request.param)) as server:
        yield server


@pytest.fixture
async def vllm():
    async with serving_tokens(TokenServer("vllm")) as server:
        yield server


@pytest.fixture
async def sglang():
    async with serving_tokens(TokenServer("sglang")) as server:
        yield server


@pytest.fixture
async def connect():
    async with connecting_tokens() as make:
        yield make


def sent_body(server, index=-1):
    return json.loads(server.received[index][1])


async def test_ids_logprobs_and_reason_come_as_the_server_sampled_them(server, connect):
    client = connect(server)
    assert isinstance(client, GenerateClient)
    generated = await client.generate(request(5, 6, 7, rollout_id="task/é 0"))
    assert generated.ids == (18, 19, 2)
    assert generated.logprobs == (-0.25, -0.5, -0.125)
    assert generated.finish_reason == "stop"
    assert generated.usage.prompt_tokens == 3
    assert generated.usage.completion_tokens == 3
    assert server.lines[0]["prompt_ids"] == [5, 6, 7]
    assert server.lines[0]["rollout_id"] == "task/é 0"


async def test_the_server_that_says_which_token_stopped_is_believed(connect):
    for protocol, stop in (("vllm", 2), ("sglang", 2), ("atropos", None)):
        async with serving_tokens(TokenServer(protocol)) as server:
            assert (await connect(server).generate(request())).stop_id == stop


async def test_vllms_request_has_exactly_these_fields(vllm, connect):
    await connect(vllm).generate(request(5, 6, sampling={"temperature": 0.5, "max_tokens": 9}, request_id="r1"))
    assert sent_body(vllm) == {
        "request_id": "r1",
        "model": "m",
        "sampling_params": {"logprobs": 0, "detokenize": False, "temperature": 0.5, "max_tokens": 9},
        "token_ids": [5, 6],
    }


async def test_sglangs_request_has_exactly_these_fields(sglang, connect):
    sampling = {"seed": 3, "max_tokens": 9, "min_tokens": 1, "stop_token_ids": [2]}
    await connect(sglang).generate(request(5, 6, sampling=sampling, request_id="r1"))
    assert sent_body(sglang) == {
        "rid": "r1#",
        "sampling_params": {"sampling_seed": 3, "max_new_tokens": 9, "min_new_tokens": 1, "stop_token_ids": [2]},
        "return_logprob": True,
        "return_text_in_logprobs": False,
        "input_ids": [5, 6],
    }


async def test_atropos_request_has_exactly_these_fields(connect):
    async with serving_tokens(TokenServer("atropos")) as server:
        await connect(server).generate(request(5, 6, sampling={"top_p": 0.5, "max_completion_tokens": 9}))
    assert sent_body(server) == {"logprobs": 0, "top_p": 0.5, "max_tokens": 9, "prompt": {"prompt_token_ids": [5, 6]}}


@given(st.lists(st.lists(st.integers(0, 2**31), max_size=4), min_size=1, max_size=6).filter(any))
def test_a_request_is_joined_from_the_prompts_bytes_and_reads_as_the_same_ids(parts):
    prompt = TokenIds()
    for part in parts:
        prompt.extend(part)
    asked = request(1)
    body = request_body({"a": "é"}, b'"token_ids":', type(asked)(prompt=prompt))
    assert json.loads(body) == {"a": "é", "token_ids": [token for part in parts for token in part]}
    assert prompt.json_array() in body


async def test_max_tokens_is_always_written(server, connect):
    """Peers' defect: without it vLLM's default of 16 or SGLang's of 128 cuts every turn."""
    name = "max_new_tokens" if server.wire.name == "sglang" else "max_tokens"
    client = connect(server, max_tokens=77)
    await client.generate(request())
    await client.generate(request(sampling={"max_tokens": None}))
    for index in (0, 1):
        body = sent_body(server, index)
        assert body.get("sampling_params", body)[name] == 77


async def test_a_turn_cut_at_its_bound_says_length(server, connect):
    generated = await connect(server).generate(request(sampling={"max_tokens": 2}))
    assert (generated.finish_reason, generated.ids, generated.stop_id) == ("length", (18, 19), None)


async def test_a_requests_sampling_wins_over_the_clients(server, connect):
    await connect(server, extra_body={"temperature": 0.1, "top_k": 5}).generate(request(sampling={"temperature": 1.0}))
    found = sent_body(server).get("sampling_params", sent_body(server))
    assert (found["temperature"], found["top_k"]) == (1.0, 5)


@pytest.mark.parametrize(
    ("sampling", "said"),
    [
        ({"temprature": 1}, "did you mean 'temperature'"),
        ({"chat_template_kwargs": {}}, "it supports"),
        ({"logprobs": 5}, "remove logprobs"),
        ({"n": 2}, "remove n"),
        ({"stream": True}, "remove stream"),
        ({"max_tokens": 0}, "max_tokens to be a whole number above 0, got 0"),
        ({"max_tokens": "9"}, "got '9'"),
        ({"max_tokens": 8, "max_completion_tokens": 9}, "got max_tokens and max_completion_tokens"),
    ],
)
async def test_a_parameter_without_a_place_is_refused_before_any_request(server, connect, sampling, said):
    with pytest.raises(ConfigError) as caught:
        await connect(server).generate(request(sampling=sampling))
    assert said in str(caught.value)
    with pytest.raises(ConfigError):
        connect(server, extra_body=sampling)
    assert server.received == []


async def test_a_parameter_that_only_some_protocols_have_is_refused_by_the_others(connect):
    async with serving_tokens(TokenServer("atropos")) as server:
        with pytest.raises(ConfigError, match="protocol atropos supports, got 'json_schema'"):
            await connect(server).generate(request(sampling={"json_schema": "{}"}))


async def test_an_empty_prompt_is_refused_before_any_request(server, connect):
    with pytest.raises(ConfigError, match="at least one token"):
        await connect(server).generate(type(request())(prompt=TokenIds()))
    assert server.received == []


async def test_stop_strings_reach_a_server_that_has_text(vllm, connect):
    await connect(vllm).generate(request(sampling={"stop": ["</s>"]}))
    assert "detokenize" not in sent_body(vllm)["sampling_params"]


async def test_fields_beside_the_sampling_go_where_they_belong(vllm, sglang, connect):
    for server in (vllm, sglang):
        await connect(server).generate(request(sampling={"priority": 3}))
        assert sent_body(server)["priority"] == 3


async def test_weights_that_changed_under_way_are_told_apart(vllm, sglang, connect):
    spans = [{"version": "v7", "start": 0, "end": 1}, {"version": "v8", "start": 1, "end": 3}]
    for server in (vllm, sglang):
        server.sampler = lambda _p, _s: Sampled(ids=[7, 8, 9], logprobs=[-1, -1, -1], weight_versions=spans)
        generated = await connect(server).generate(request())
        assert generated.weight_versions == tuple(WeightSpan(**span) for span in spans)


async def test_a_server_without_weight_spans_gives_none_or_its_one_version(connect):
    async with serving_tokens(TokenServer("atropos")) as server:
        assert (await connect(server).generate(request())).weight_versions == ()
    async with serving_tokens(TokenServer("vllm")) as server:
        server.set_faults(Fault.answer(lambda answer: answer["choices"][0].pop("weight_versions") and None))
        assert (await connect(server).generate(request())).weight_versions == ()
    async with serving_tokens(TokenServer("sglang", wire=SglangWire(old=True))) as server:
        found = (await connect(server).generate(request())).weight_versions
        assert found == (WeightSpan(version="default", start=0, end=3),)


async def test_the_prompt_is_echoed_on_request(server, connect):
    plain = await connect(server).generate(request(5, 6))
    asked = await connect(server, echo_prompt=True).generate(request(5, 6))
    assert asked.prompt_echo == (5, 6)
    assert plain.prompt_echo == ((5, 6) if server.wire.name == "atropos" else None)


async def test_an_old_sglangs_finish_reasons_are_text(connect):
    async with serving_tokens(TokenServer("sglang", wire=SglangWire(old=True))) as server:
        client = connect(server)
        stopped = await client.generate(request())
        cut = await client.generate(request(sampling={"max_tokens": 1}))
        server.set_faults(Fault.named("abort"))
        aborted = await client.generate(request())
    assert (stopped.finish_reason, stopped.stop_id) == ("stop", 2)
    assert (cut.finish_reason, cut.stop_id) == ("length", None)
    assert aborted.finish_reason == "abort"


async def test_an_aborted_request_is_an_answer_with_what_was_sampled(server, connect):
    server.set_faults(Fault.named("abort"))
    generated = await connect(server).generate(request())
    assert (generated.finish_reason, generated.ids, generated.logprobs) == ("abort", (18,), (-0.25,))


async def test_an_aborted_request_may_have_sampled_nothing(server, connect):
    server.sampler = lambda _p, _s: Sampled(ids=[], logprobs=[], finish_reason="abort")
    generated = await connect(server).generate(request())
    assert (generated.finish_reason, generated.ids, generated.weight_versions) == ("abort", (), ())


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
async def test_the_url_may_end_in_v1_or_not(server, connect, suffix):
    client = connect(server, base_url=server.url + suffix)
    await client.generate(request())
    assert client.provenance["base_url"] == server.url


@pytest.mark.parametrize(("told", "kept"), [(None, "unknown"), ("raw", "raw"), ("processed_logprobs", "processed")])
async def test_provenance_has_protocol_address_model_and_kind_of_logprob(server, connect, told, kept):
    url = server.url.replace("http://", "http://ann:secret@") + "?token=t0ken"
    client = connect(server, base_url=url, logprobs_mode=told)
    assert client.provenance == {
        "protocol": server.wire.name,
        "base_url": server.url,
        "model_name": "m",
        "logprobs_mode": kept,
    }
    await client.generate(request())
    assert server.received[0][0]["Authorization"].startswith("Basic ")


async def test_an_unknown_kind_of_logprob_is_refused(server, connect):
    with pytest.raises(ConfigError, match="raw or processed"):
        connect(server, logprobs_mode="raw_logits")


async def test_a_prompt_of_a_million_tokens_is_sent(vllm, connect):
    """aiohttp's warning about large bodies would be an error here."""
    await connect(vllm).generate(request(*range(1_000_000)))
    assert len(vllm.lines[0]["prompt_ids"]) == 1_000_000


async def test_a_tokens_only_server_refuses_stop_strings(connect):
    async with serving_tokens(TokenServer("vllm", wire=VllmWire(tokens_only=True))) as server:
        with pytest.raises(Exception, match="stop strings are not supported"):
            await connect(server).generate(request(sampling={"stop": ["x"]}))
    assert len(server.received) == 1


def test_what_another_client_is_written_with_is_in_the_front():
    assert {"FinishReason", "GenerateClient", "GenerateRequest", "Generated", "TokenIds"} <= {*hermes_tokens.__all__}
