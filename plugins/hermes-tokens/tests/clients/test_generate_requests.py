"""Retries, aborts and start-up checks of the generate clients."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest
from aiohttp import web
from token_clients import PROTOCOLS, connecting_tokens, request
from token_server import Fault, TokenServer, serving_tokens

from hermes_core.contracts.errors import (
    ConfigError,
    ContextOverflowError,
    ModelAuthError,
    ModelRateLimitError,
    ModelReplyError,
    ModelRequestError,
    ModelServerError,
    ModelTimeoutError,
    ModelUnreachableError,
)
from hermes_testing.servers import closed_port
from hermes_testing.watching import TooSoon, with_more_time
from hermes_tokens.clients.factory import create_generate_client

KEY = "sk-very-secret-0123456789"


@pytest.fixture(params=PROTOCOLS)
async def server(request):
    async with serving_tokens(TokenServer(request.param)) as server:
        yield server


@pytest.fixture
async def connect():
    async with connecting_tokens() as make:
        yield make


@contextlib.asynccontextmanager
async def request_in_flight(connect, protocol="vllm", request_id="r1", **options):
    """Provide a server that does not answer, a client, and the task of a request that has arrived."""
    async with serving_tokens(TokenServer(protocol)) as server:
        server.set_faults(Fault.hang())
        client = connect(server, **options)
        task = asyncio.create_task(client.generate(request(request_id=request_id)))
        await server.arrived.wait()
        yield server, client, task


async def cancel(task):
    """Cancel a task and wait for its end."""
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 60)


async def test_a_400_is_sent_once(server, connect):
    server.set_faults(Fault.refuse(400, "bad value"))
    client = connect(server)
    with pytest.raises(ModelRequestError, match="400: bad value"):
        await client.generate(request())
    assert (len(server.received), client.pauses) == (1, [])


@pytest.mark.parametrize(("name", "wish"), [("3", 3.0), ("Fri, 15 Jan 2027 08:00:05 GMT", 5.0)])
async def test_a_429_waits_as_long_as_the_server_wishes(server, connect, name, wish):
    server.set_faults(Fault.refuse(429, Retry_After=name))
    client = connect(server)
    assert (await client.generate(request())).ids
    assert wish <= client.pauses[0] <= wish * 1.1
    assert len(server.received) == 2


async def test_a_429_that_does_not_end_is_said_with_the_servers_wish(server, connect):
    server.set_faults(*[Fault.refuse(429, "busy", Retry_After="2")] * 9)
    with pytest.raises(ModelRateLimitError, match="gave up after 3 attempts") as caught:
        await connect(server, rate_limit_patience=5.5).generate(request())
    assert caught.value.retry_after == 2


async def test_a_5xx_is_sent_again_after_growing_pauses_with_jitter(server, connect):
    server.set_faults(Fault.refuse(500), Fault.refuse(503), Fault.refuse(502))
    client = connect(server)
    assert (await client.generate(request())).ids
    assert len(server.received) == 4
    for pause, most in zip(client.pauses, (0.5, 1.0, 2.0), strict=True):
        assert most / 2 <= pause < most


async def test_each_attempt_has_a_request_id_of_its_own(server, connect):
    server.set_faults(Fault.refuse(500))
    client = connect(server)
    await client.generate(request(request_id="r1"))
    await client.generate(request())
    await client.generate(request())
    ids = [line["request_id"] for line in server.lines]
    assert ids[:2] == ["r1", "r1.2"]
    assert len(set(ids)) == 4
    assert all(ids)


async def test_a_request_that_was_cut_off_is_aborted_and_sent_again_in_bounds(server, connect):
    server.set_faults(Fault.drop())
    assert (await connect(server).generate(request())).ids
    assert len(server.received) == 2
    server.set_faults(Fault.drop(), Fault.drop())
    with pytest.raises(ModelServerError, match="broke off"):
        await connect(server, max_retries=1).generate(request())


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_server_that_stays_silent_is_given_up_and_told_to_stop(protocol):
    async def attempt(seconds):
        async with serving_tokens(TokenServer(protocol)) as server, connecting_tokens() as connect:
            server.set_faults(Fault.hang())
            client = connect(server, timeout=seconds, abort_timeout=60.0)
            with pytest.raises(ModelTimeoutError, match="did not answer within"):
                await client.generate(request(request_id="r1"))
            await client.aclose()
            TooSoon.unless(server.arrived.is_set(), "the request had not arrived")
            assert (len(server.received), client.pauses) == (1, [])
            assert server.aborts == {"vllm": ["r1"], "sglang": ["r1#"], "atropos": []}[server.wire.name]

    await with_more_time(attempt)


async def test_no_attempt_starts_when_the_rollouts_time_is_over(server, connect):
    server.set_faults(Fault.refuse(503, Retry_After="60"))
    with pytest.raises(ModelServerError):
        await connect(server).generate(request(timeout=50.0))
    assert len(server.received) == 1


@pytest.mark.parametrize("protocol", ["vllm", "sglang"])
async def test_a_prompt_that_does_not_fit_is_a_context_overflow(connect, protocol):
    async with serving_tokens(TokenServer(protocol, max_context=3)) as server:
        with pytest.raises(ContextOverflowError):
            await connect(server).generate(request(1, 2, 3, 4))
        assert len(server.received) == 1


@pytest.mark.parametrize(
    "text",
    [
        "This model's maximum context length is 4096 tokens. However, you requested 5000",
        "Requested token count exceeds the model's maximum context length of 4096 tokens.",
        "The decoder prompt (length 9) is longer than the maximum model length of 8.",
        "The input (61709 tokens) is longer than the model's context length (4096).",
    ],
)
async def test_the_servers_wordings_of_an_overflow_are_known(server, connect, text):
    server.set_faults(Fault.refuse(400, text))
    with pytest.raises(ContextOverflowError):
        await connect(server).generate(request())


async def test_no_server_at_the_address(connect):
    with closed_port() as port:
        for protocol in PROTOCOLS:
            server = TokenServer(protocol)
            client = connect(server, base_url=f"http://127.0.0.1:{port}/v1", max_retries=1)
            with pytest.raises(ModelUnreachableError, match=f"curl http://127.0.0.1:{port}/health"):
                await client.generate(request())
            assert len(client.pauses) == 1


@pytest.mark.parametrize("protocol", ["vllm", "sglang"])
async def test_a_cancelled_rollout_aborts_its_request_on_the_server(connect, protocol):
    async with request_in_flight(connect, protocol) as (server, client, task):
        await cancel(task)
        assert server.aborts == (["r1"] if protocol == "vllm" else ["r1#"])
        await server.ended.wait()
        assert server.lines[0]["aborted"] is True
        assert (await client.generate(request())).ids, "the client still works"


async def test_atropos_server_hears_of_a_cancelled_rollout_by_its_connection(connect):
    async with request_in_flight(connect, "atropos") as (server, _, task):
        await cancel(task)
        await server.ended.wait()
        assert server.left == ["r1"]
        assert server.lines[0]["aborted"] is True


async def test_an_abort_that_hangs_holds_a_cancelled_rollout_for_its_own_time_only(connect):
    async with request_in_flight(connect, abort_timeout=0.1) as (server, _, task):
        server.hangs_on_abort = True
        await cancel(task)


async def test_a_second_cancellation_ends_the_wait_but_not_the_abort(connect):
    async with request_in_flight(connect) as (server, client, task):
        task.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await cancel(task)
        await client.aclose()
        assert server.aborts == ["r1"]


async def test_an_abort_of_one_request_does_not_hit_one_with_a_longer_id(connect):
    """SGLang aborts every request whose id starts with the given one."""
    async with serving_tokens(TokenServer("sglang")) as server:
        server.set_faults(Fault.hang(), Fault.hang())
        client = connect(server)
        first = asyncio.create_task(client.generate(request(request_id="r1")))
        other = asyncio.create_task(client.generate(request(request_id="r10")))
        while len(server.received) < 2:
            server.arrived.clear()
            await server.arrived.wait()
        await cancel(first)
        assert not other.done()
        await cancel(other)
        assert server.aborts == ["r1#", "r10#"]


async def test_the_check_samples_nothing(server, connect):
    await connect(server).check()
    assert server.received == []
    assert "GET /health" in server.calls


async def test_a_server_that_is_not_well_fails_the_check(server, connect):
    server.healthy = False
    with pytest.raises(ModelServerError, match="answered 503"):
        await connect(server).check()


async def test_a_vllm_without_the_endpoint_names_the_flag_before_a_run_and_in_one(connect):
    async with serving_tokens(TokenServer("vllm", scale_out=False)) as server:
        for attempt in (connect(server).check, lambda: connect(server).generate(request())):
            with pytest.raises(ModelAuthError, match="answered 403") as caught:
                await attempt()
            assert "--enable-scale-out" in (caught.value.hint or "")


async def test_a_server_of_another_protocol_is_found_by_the_check(connect):
    async with serving_tokens(TokenServer("vllm")) as server:
        for protocol in ("sglang", "atropos"):
            client = create_generate_client(protocol, server.url, "m")
            with pytest.raises(ModelRequestError, match="expected a server with /generate") as caught:
                await client.check()
            assert "--model-protocol" in (caught.value.hint or "")
            await client.aclose()
    async with serving_tokens(TokenServer("sglang")) as server:
        client = create_generate_client("vllm", server.url, "m")
        with pytest.raises(ModelRequestError, match="expected a server with /inference/v1/generate"):
            await client.check()
        await client.aclose()


async def test_a_wrong_model_name_is_found_by_vllms_check(connect):
    async with serving_tokens(TokenServer("vllm", model="qwen")) as server:
        with pytest.raises(ModelRequestError, match="got qwen"):
            await connect(server).check()
        await connect(server, model_name="").check()
        await connect(server, allow_unlisted_model=True).check()


async def test_a_server_without_a_health_page_and_with_gets_unanswered_passes(connect):
    """A small server of somebody's own; only the path that samples must be there."""

    async def generate(request):
        asked.append(await request.read())
        return web.Response(status=400)

    async def nothing(_request):
        return web.Response(status=404)

    asked = []
    app = web.Application()
    app.router.add_post("/inference/v1/generate", generate)
    app.router.add_get("/inference/v1/generate", nothing)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    client = create_generate_client("vllm", f"http://127.0.0.1:{runner.addresses[0][1]}", "m")
    await client.check()
    assert asked == [b"{}"]
    await client.aclose()
    await runner.cleanup()


async def test_a_key_is_sent_with_every_request_and_shown_nowhere(connect):
    async with serving_tokens(TokenServer("vllm", api_key=KEY)) as server:
        client = connect(server, api_key=KEY)
        await client.check()
        await client.generate(request())
        assert server.received[0][0]["Authorization"] == f"Bearer {KEY}"
        assert KEY not in f"{client!r} {client.provenance}"
        with pytest.raises(ModelAuthError, match="401"):
            await connect(server, api_key="other").check()
        with pytest.raises(ModelAuthError, match="401"):
            await connect(server).generate(request())


async def test_an_error_object_under_200_is_judged_by_its_own_status(server, connect):
    server.set_faults(Fault.answer(lambda _answer: {"error": {"message": "context length exceeded", "code": 400}}))
    with pytest.raises(ContextOverflowError):
        await connect(server).generate(request())


async def test_a_model_the_server_does_not_have_says_so(connect):
    async with serving_tokens(TokenServer("vllm")) as server:
        server.set_faults(Fault.refuse(404, "The model `x` does not exist."))
        with pytest.raises(ModelRequestError) as caught:
            await connect(server).generate(request())
        assert "--model-name" in str(caught.value)


@pytest.mark.parametrize("protocol", ["chat", "openai", "", "VLLM"])
def test_a_protocol_without_token_ids_is_refused_with_those_there_are(protocol):
    with pytest.raises(ConfigError, match="--model-protocol vllm or sglang or atropos"):
        create_generate_client(protocol, "http://h", "m")


@pytest.mark.parametrize("url", ["http://h:1/generate", "http://h:1/inference/v1/generate"])
def test_a_url_of_an_endpoint_is_refused_with_the_base(url):
    with pytest.raises(ConfigError, match=r"--model http://h:1$"):
        create_generate_client("vllm", url, "m")


async def test_many_requests_at_a_time_get_each_its_own_answer(server, connect):
    client = connect(server)
    answers = await asyncio.gather(*[client.generate(request(number)) for number in range(64)])
    assert [answer.ids[0] for answer in answers] == list(range(64))


async def test_a_request_with_an_unusable_answer_is_not_repeated(server, connect):
    server.set_faults(Fault.named("no_logprobs"), Fault.none())
    with pytest.raises(ModelReplyError):
        await connect(server, max_retries=4).generate(request())
    assert len(server.received) == 1


@pytest.mark.parametrize("request_id", ["task/é 0-1", "a%b", " x ", "日本\ud800", "plain-1.2:3"])
async def test_any_request_id_is_the_same_in_header_body_and_abort(connect, request_id):
    async with request_in_flight(connect, request_id=request_id) as (server, _, task):
        await cancel(task)
        headers, body = server.received[0]
        assert headers["X-Request-ID"] == json.loads(body)["request_id"] == server.aborts[0]


async def test_a_client_that_was_closed_opens_no_connection_for_an_abort(connect):
    async with request_in_flight(connect) as (server, client, task):
        await client.aclose()
        task.cancel()
        with pytest.raises((asyncio.CancelledError, ModelServerError)):
            await task
        await client.aclose()
        assert server.aborts == []
