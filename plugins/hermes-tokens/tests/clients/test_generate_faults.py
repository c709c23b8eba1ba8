"""Answers that must never reach a trainer: each is one error with the expected and the actual value."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from token_clients import PROTOCOLS, connecting_tokens, request
from token_server import Fault, Sampled, TokenServer, serving_tokens
from token_wire import WIRES

from hermes_core.contracts.errors import ModelReplyError
from hermes_core.contracts.tokens import WeightSpan
from hermes_tokens.clients.factory import create_generate_client
from hermes_tokens.clients.generate import HttpGenerateClient
from hermes_tokens.clients.generate_response import read_weight_spans
from hermes_tokens.generation import Generated


@pytest.fixture(params=PROTOCOLS)
async def server(request):
    async with serving_tokens(TokenServer(request.param)) as server:
        yield server


@pytest.fixture
async def connect():
    async with connecting_tokens() as make:
        yield make


async def refusal(server, connect, *faults):
    server.set_faults(*faults)
    with pytest.raises(ModelReplyError) as caught:
        await connect(server).generate(request())
    assert len(server.received) == 1, "the request of an unusable answer is not repeated"
    assert "answered 200, but" in str(caught.value)
    return str(caught.value)


def at(server, position, change):
    """Change the logprob entry at one position, in any form."""

    def edit(answer):
        listed = server.wire.logprob_list(answer)
        listed[position] = change(listed[position])

    return Fault.answer(edit)


def with_logprob(server, value):
    def change(entry):
        if server.wire.name == "vllm":
            return {**entry, "logprob": value}
        if server.wire.name == "sglang":
            return [value, *entry[1:]]
        return [dict.fromkeys(entry[0], value)]

    return at(server, 1, change)


def of_token(server, token):
    def change(entry):
        if server.wire.name == "vllm":
            return {**entry, "token_id": token}
        if server.wire.name == "sglang":
            return [entry[0], token, None]
        return [{str(token): -0.5}]

    return at(server, 1, change)


async def test_fewer_logprobs_than_tokens(server, connect):
    """Peers' defect: the shorter list was padded, or the longer one cut."""
    said = await refusal(server, connect, Fault.named("short_logprobs"))
    assert re.search("one logprob for each of 3 tokens in .*, got 2", said)


async def test_more_logprobs_than_tokens(server, connect):
    said = await refusal(server, connect, Fault.named("long_logprobs"))
    assert re.search("one logprob for each of 3 tokens in .*, got 4", said)


async def test_no_logprobs_at_all_names_the_field_that_requested_them(server, connect):
    said = await refusal(server, connect, Fault.named("no_logprobs"))
    option = {"vllm": "sampling_params.logprobs", "sglang": "return_logprob", "atropos": "logprobs: 0"}
    assert option[server.wire.name] in said
    assert "got no" in said or "got neither" in said


async def test_an_empty_list_of_logprobs_is_refused(server, connect):
    said = await refusal(server, connect, Fault.answer(lambda answer: server.wire.logprob_list(answer).clear()))
    assert "expected a logprob for each of 3 tokens" in said


async def test_no_token_ids(server, connect):
    said = await refusal(server, connect, Fault.named("no_ids"))
    assert re.search("token ids in .*, got None|, got none", said)


async def test_no_sampled_token_although_the_request_was_not_aborted(server, connect):
    server.sampler = lambda _prompt, _sampling: Sampled(ids=[], logprobs=[])
    assert "expected at least one sampled token" in await refusal(server, connect)


async def test_an_id_below_zero(server, connect):
    server.sampler = lambda _prompt, _sampling: Sampled(ids=[4, -1], logprobs=[-1, -1])
    assert "got [4, -1]" in await refusal(server, connect)


async def test_other_ids_than_those_the_logprobs_are_of(server, connect):
    said = await refusal(server, connect, Fault.named("wrong_ids"))
    assert "[0] to be the logprob of sampled token 19, got one of 18" in said


async def test_a_logprob_of_another_token_than_the_sampled_one(server, connect):
    said = await refusal(server, connect, of_token(server, 4711))
    assert "[1] to be the logprob of sampled token " in said
    assert "4711" in said


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "x", True, [1]])
async def test_a_logprob_that_is_not_a_finite_number(server, connect, value):
    assert "expected a finite logprob in " in await refusal(server, connect, with_logprob(server, value))


async def test_the_number_that_servers_write_for_nan(server, connect):
    """vLLM sends -9999.0 for an unknown logprob; taken as a number it would ruin a trainer's ratio."""
    assert "which servers write for NaN" in await refusal(server, connect, with_logprob(server, -9999.0))


async def test_logits_in_the_place_of_logprobs(server, connect):
    assert "--logprobs-mode raw_logprobs" in await refusal(server, connect, with_logprob(server, 17.5))


async def test_a_null_logprob_is_none(server, connect):
    server.set_faults(with_logprob(server, None))
    assert (await connect(server).generate(request())).logprobs == (-0.25, None, -0.125)


async def test_a_certain_tokens_logprob_may_be_a_rounding_above_zero(server, connect):
    server.set_faults(with_logprob(server, 1e-7))
    assert (await connect(server).generate(request())).logprobs[1] == 1e-7


def set_finish(server, value):
    def edit(answer):
        if server.wire.name == "vllm":
            answer["choices"][0]["finish_reason"] = value
        elif server.wire.name == "sglang":
            answer["meta_info"]["finish_reason"] = value
        else:
            answer["finish_reasons"] = [value]

    return Fault.answer(edit)


@pytest.mark.parametrize("value", ["error", None, "tool_calls", 3, ["stop"], {"type": "paused"}])
async def test_an_unknown_finish_reason(server, connect, value):
    assert "expected stop, length or abort in " in await refusal(server, connect, set_finish(server, value))


@pytest.mark.parametrize(
    ("text", "reason", "stop"),
    [
        ("stop", "stop", None),
        ("abort", "abort", None),
        ("FINISH_MATCHED_TOKEN: 2", "stop", 2),
        ("FINISH_MATCHED_STR: FINISH_ABORT", "stop", None),
        ("FINISHED_MATCHED_REGEX: x", "stop", None),
        ("FINISH_LENGTH: 16", "length", None),
        ("FINISH_ABORT: out of memory", "abort", None),
        ({"type": "stop", "matched": [7, 2]}, "stop", 2),
        ({"type": "stop", "matched": "</s>"}, "stop", None),
        ({"type": "stop"}, "stop", None),
    ],
)
async def test_sglangs_finish_reasons_of_all_versions(connect, text, reason, stop):
    async with serving_tokens(TokenServer("sglang")) as server:
        server.set_faults(set_finish(server, text))
        generated = await connect(server).generate(request())
        assert (generated.finish_reason, generated.stop_id) == (reason, stop)


def doubled_answer(server):
    def edit(answer):
        if server.wire.name == "vllm":
            answer["choices"] *= 2
        elif server.wire.name == "sglang":
            return [answer, answer]
        else:
            for name in ("text", "finish_reasons", "logprobs", "token_ids"):
                answer[name] *= 2
        return None

    return Fault.answer(edit)


async def test_several_completions_for_one_request(server, connect):
    said = await refusal(server, connect, doubled_answer(server))
    assert "the one requested completion" in said
    assert "got 2 elements" in said


async def test_sglangs_list_of_one_is_one_answer(connect):
    async with serving_tokens(TokenServer("sglang")) as server:
        server.set_faults(Fault.answer(lambda answer: [answer]))
        assert (await connect(server).generate(request())).ids == (18, 19, 2)


async def test_sglang_counts_more_tokens_than_it_sends(connect):
    async with serving_tokens(TokenServer("sglang")) as server:
        server.set_faults(Fault.answer(lambda answer: answer["meta_info"].update(completion_tokens=5)))
        with pytest.raises(ModelReplyError, match=r"each of 5 tokens in .*, got 3"):
            await connect(server).generate(request())


async def test_sglang_may_cut_the_stop_token_off_the_plain_ids_but_not_more(connect):
    async with serving_tokens(TokenServer("sglang")) as server:
        server.set_faults(
            Fault.answer(lambda answer: answer["output_ids"].pop() and None),
            Fault.answer(lambda answer: answer["output_ids"].clear()),
        )
        client = connect(server)
        assert (await client.generate(request())).ids == (18, 19, 2)
        with pytest.raises(ModelReplyError, match="output_ids as output_token_logprobs, got 0 and 3"):
            await client.generate(request())


SPANS = [
    [],
    [("a", 0, 2)],
    [("a", 1, 3)],
    [("a", 0, 1), ("b", 2, 3)],
    [("a", 0, 2), ("b", 1, 3)],
    [("a", 0, 4)],
    [("a", 0, 0), ("b", 0, 3)],
    [("a", 0, 3), ("b", 3, 3)],
]


@pytest.mark.parametrize("spans", SPANS)
@pytest.mark.parametrize("protocol", ["vllm", "sglang"])
async def test_weight_spans_that_do_not_cover_the_tokens(connect, protocol, spans):
    written = [dict(zip(("version", "start", "end"), span, strict=True)) for span in spans]
    async with serving_tokens(TokenServer(protocol)) as server:
        server.sampler = lambda _p, _s: Sampled(ids=[1, 2, 3], logprobs=[-1, -1, -1], weight_versions=written)
        assert "to cover the 3 sampled tokens" in await refusal(server, connect)


@pytest.mark.parametrize("spans", ["v7", [{"version": "a"}], [{"version": 1, "start": 0, "end": 3}], [3]])
def test_weight_spans_that_are_not_spans(spans):
    with pytest.raises(ModelReplyError):
        read_weight_spans(spans, 3, "weight_versions")


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_spans_that_cover_are_kept_as_they_are(lengths):
    ends = [sum(lengths[: index + 1]) for index in range(len(lengths))]
    wanted = tuple(
        WeightSpan(version=f"v{index}", start=start, end=end)
        for index, (start, end) in enumerate(zip([0, *ends], ends, strict=False))
    )
    written = [{"version": span.version, "start": span.start, "end": span.end} for span in wanted]
    assert read_weight_spans(written, ends[-1], "w") == wanted


@pytest.mark.parametrize(
    "body", [b"<html>", b"", b"[]", b"3", b"null", b'{"choices": []}', b'{"text": "hi"}', b"{", b"[" * 100_000]
)
async def test_an_answer_in_another_form_is_one_error_too(server, connect, body):
    await refusal(server, connect, Fault.answer(lambda _answer: body))


def mutate(value, path, junk):
    """Replace the part of a JSON value that a path of numbers leads to."""
    if not path or not isinstance(value, dict | list) or not value:
        return junk
    keys = sorted(value) if isinstance(value, dict) else range(len(value))
    key = list(keys)[path[0] % len(value)]
    changed = dict(value) if isinstance(value, dict) else list(value)
    changed[key] = mutate(value[key], path[1:], junk)
    return changed


JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 9), st.floats(), st.text(max_size=3), st.just([]), st.just({})
)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@given(path=st.lists(st.integers(0, 20), max_size=6), junk=JUNK)
def test_any_damage_to_an_answer_is_an_error_or_leaves_it_whole(protocol, path, junk):
    """Any change to a part of an answer gives a `ModelReplyError`, or as many logprobs as ids."""
    wire = WIRES[protocol]()
    asked = type("Asked", (), {"prompt": [5], "request_id": "r", "logprobs": True, "echo": False})()
    answer = wire.answer(asked, Sampled(ids=[4, 5], logprobs=[-1.0, -2.0], stop_id=5))
    client = create_generate_client(protocol, "http://h", "m")
    assert isinstance(client, HttpGenerateClient)
    try:
        generated = client._read(mutate(answer, path, junk))
    except ModelReplyError:
        return
    assert isinstance(generated, Generated)
    assert len(generated.ids) == len(generated.logprobs)
    assert all(value is None or (math.isfinite(value) and value < 0.1) for value in generated.logprobs)
