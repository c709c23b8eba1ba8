"""The chat client against real HTTP servers on the loopback interface: requests, answers, refusals, failures."""

from __future__ import annotations

import asyncio
import gzip
import json

import pytest
from aiohttp import web
from chat_server import ask, completion, connecting, serving_answers

from hermes_core.contracts.errors import (
    ContextOverflowError,
    ModelAuthError,
    ModelRateLimitError,
    ModelReplyError,
    ModelRequestError,
    ModelServerError,
    ModelTimeoutError,
    ModelUnreachableError,
)
from hermes_core.contracts.model import ModelClient, ToolSchemas
from hermes_testing.servers import unreachable_url
from hermes_testing.watching import TooSoon, with_more_time

KEY = "sk-very-secret-0123456789"
TOOL = {"type": "function", "function": {"name": "terminal", "description": "Runs.", "parameters": {"type": "object"}}}


async def test_a_request_carries_model_messages_tools_sampling_and_the_rollout_id(server, connect):
    server.set_answers(completion("hi"))
    client = connect(extra_body={"provider": {"only": ["x"]}, "top_p": 0.5})
    assert isinstance(client, ModelClient)
    reply = await client.chat(
        ask("hello", tools=ToolSchemas.of([TOOL]), sampling={"temperature": 0.5, "top_p": 1.0}, rollout_id="task/é 0")
    )
    headers, body = server.chats[0]
    assert body == {
        "model": "m",
        "provider": {"only": ["x"]},
        "temperature": 0.5,
        "top_p": 1.0,
        "messages": [{"role": "user", "content": "hello"}],
        "tools": [TOOL],
    }
    assert headers["X-Hermes-Rollout-Id"] == "task/%C3%A9%200"
    assert headers["Content-Type"] == "application/json"
    assert "Authorization" not in headers
    assert (reply.content, reply.finish_reason) == ("hi", "stop")


async def test_no_tools_means_no_tools_field(server, connect):
    server.set_answers(completion())
    await connect().chat(ask())
    assert server.chats[0][1] == {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


async def test_no_key_of_the_request_is_written_twice(server, connect):
    raw = []

    async def keep(request):
        raw.append(await request.read())
        return web.json_response(completion())

    server.set_answers(keep)
    await connect(extra_body={"top_k": 1, "min_p": 0}).chat(ask(sampling={"top_k": 2}))
    keys = json.loads(raw[0], object_pairs_hook=lambda pairs: [key for key, _ in pairs])
    assert sorted(keys) == ["messages", "min_p", "model", "top_k"]


@pytest.mark.parametrize("text", ["naïve 日本語 🎈", "lone \ud83d half", "nul \x00 and \u2028", '"role":"assistant"'])
async def test_any_text_survives_the_way_there_and_back(server, connect, text):
    """An unpaired surrogate becomes a replacement character, in requests and in answers."""

    async def echo(_request):
        return web.Response(body=json.dumps(completion(server.chats[-1][1]["messages"][0]["content"])).encode())

    server.set_answers(echo)
    reply = await connect().chat(ask(text))
    assert reply.content == text.replace("\ud83d", "?")


async def test_a_lone_surrogate_in_a_reply_becomes_a_replacement_character(server, connect):
    call = {"id": "c", "type": "function", "function": {"name": "t", "arguments": '{"a": "\udc80"}'}}
    server.set_answers(
        json.dumps(completion("a\ud800b", reasoning_content="\udfff", tool_calls=[call])).encode("ascii")
    )
    reply = await connect().chat(ask())
    assert (reply.content, reply.reasoning) == ("a\ufffdb", "\ufffd")
    assert reply.tool_calls[0].arguments == '{"a": "\ufffd"}'


async def test_a_conversation_of_several_megabytes_is_sent(server, connect):
    """aiohttp's warning about large bodies would be an error here."""
    server.set_answers(completion())
    await connect().chat(ask("x" * 3_000_000))
    assert len(server.chats[0][1]["messages"][0]["content"]) == 3_000_000


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (
            400,
            {"error": {"message": "This model's maximum context length is 4096 tokens. However, you requested 5000"}},
        ),
        (400, {"error": {"message": "too long", "code": "context_length_exceeded"}}),
        (
            400,
            {
                "object": "error",
                "message": "The decoder prompt (length 9) is longer than the maximum model length of 8.",
            },
        ),
        (
            400,
            {
                "object": "error",
                "message": "The input (61709 tokens) is longer than the model's context length (4096).",
            },
        ),
        (400, {"message": "Requested token count exceeds the model's maximum context length of 4096 tokens."}),
        (
            400,
            {
                "error": {
                    "message": "request (9 tokens) exceeds the available context size (8 tokens), try increasing it"
                }
            },
        ),
        (500, {"error": {"code": 500, "message": "Context size has been exceeded.", "type": "server_error"}}),
        (200, {"error": {"code": 400, "message": "no", "type": "exceed_context_size_error", "n_ctx": 8192}}),
        (413, {"error": {"message": "prompt is too long: 200001 tokens > 200000 maximum"}}),
    ],
)
async def test_a_context_overflow_is_recognised_and_sent_once(server, connect, status, body):
    """Peers' defect 20: the same request was sent nine times in eight seconds and surfaced as a RetryError."""
    server.set_answers((status, body, {}))
    client = connect()
    with pytest.raises(ContextOverflowError):
        await client.chat(ask())
    assert (len(server.chats), client.pauses) == (1, [])


@pytest.mark.parametrize(
    ("status", "kind", "said"),
    [
        (400, ModelRequestError, "answered 400: bad field"),
        (401, ModelAuthError, "--api-key-env"),
        (402, ModelAuthError, "no credit"),
        (403, ModelAuthError, "--api-key-env"),
        (404, ModelRequestError, "does the URL end in /v1?"),
        (405, ModelRequestError, "/models"),
        (422, ModelRequestError, "bad field"),
        (307, ModelRequestError, "http://other/v1"),
    ],
)
async def test_what_would_fail_again_is_sent_once(server, connect, status, kind, said):
    server.set_answers((status, {"error": {"message": "bad field"}}, {"Location": "http://other/v1"}))
    client = connect(api_key=KEY)
    with pytest.raises(kind) as caught:
        await client.chat(ask())
    assert type(caught.value) is kind
    assert said in str(caught.value)
    assert server.url in str(caught.value)
    assert (len(server.chats), client.pauses) == (1, [])


async def test_an_exhausted_account_is_not_a_rate_limit(server, connect):
    server.set_answers((429, {"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}, {}))
    with pytest.raises(ModelAuthError, match="no credit"):
        await connect().chat(ask())
    assert len(server.chats) == 1


@pytest.mark.parametrize(
    ("wish", "least", "most"),
    [
        ("7", 7, 7.7),
        ("0.5", 0.5, 0.55),
        ("Fri, 15 Jan 2027 08:00:30 GMT", 30, 33),
        ("Fri, 15 Jan 2027 07:00:00 GMT", 0, 0),
        ("90", 90, 99),
        ("soon", 0.25, 0.5),
        ("nan", 0.25, 0.5),
        ("inf", 0.25, 0.5),
    ],
)
async def test_retry_after_is_honoured_as_seconds_and_as_a_date(server, connect, wish, least, most):
    server.set_answers((429, {"error": {"message": "slow down"}}, {"Retry-After": wish}), completion())
    client = connect()
    assert (await client.chat(ask())).content == "ok"
    assert least * 0.99 <= sum(client.pauses) <= most


async def test_a_rate_limit_that_does_not_end_is_an_error_with_the_servers_wish(server, connect):
    server.set_answers((429, b"", {"Retry-After": "3"}))
    client = connect(rate_limit_patience=8.9)
    with pytest.raises(ModelRateLimitError, match="gave up after 3 attempts") as caught:
        await client.chat(ask())
    assert caught.value.retry_after == 3
    assert len(server.chats) == 3


@pytest.mark.parametrize("status", [500, 502, 503, 504, 529, 408])
async def test_a_server_error_is_repeated_with_growing_pauses_and_in_bounds(server, connect, status):
    server.set_answers((status, {"detail": "overloaded"}, {}))
    client = connect(max_retries=3)
    with pytest.raises(ModelServerError, match=f"{status}: overloaded; gave up after 4 attempts"):
        await client.chat(ask())
    assert len(server.chats) == 4
    assert [0.25 <= client.pauses[0] <= 0.5, 0.5 <= client.pauses[1] <= 1, 1 <= client.pauses[2] <= 2] == [True] * 3


async def test_one_server_error_costs_one_repetition(server, connect):
    server.set_answers((503, b"loading", {}), completion("after all"))
    assert (await connect().chat(ask())).content == "after all"


async def test_repetitions_stop_at_the_rollouts_own_deadline(server, connect):
    server.set_answers((429, b"", {"Retry-After": "60"}))
    client = connect()
    with pytest.raises(ModelRateLimitError):
        await client.chat(ask(timeout=50.0))
    assert (len(server.chats), client.pauses) == (1, [])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html><body>Welcome to nginx!</body></html>",
        b"\xff\xfe",
        b"[" * 100_000,
        b"null",
        b"[]",
        b'{"choices": []}',
        b'{"choices": [{"text": "completions API"}]}',
        b'{"choices": [{"message": {"content": 7}}]}',
        b'{"choices": [{"message": {"content": null, "tool_calls": {"name": "t"}}}]}',
        b'{"choices": [{"message": {"content": null, "tool_calls": ["t"]}}]}',
        b"data: {}\n\n",
    ],
)
async def test_a_success_that_is_not_a_chat_completion_is_an_error_with_an_excerpt(server, connect, body):
    server.set_answers((200, body, {}))
    with pytest.raises(ModelReplyError) as caught:
        await connect().chat(ask())
    assert f"{server.url} answered 200, but" in str(caught.value)
    assert len(str(caught.value)) < 800
    assert len(server.chats) == 1


async def test_an_answer_without_end_is_left_when_it_is_longer_than_an_answer_may_be(server, connect):
    """200 kB that are packed are 200 MB here."""
    packed = gzip.compress(b'{"choices": [' + b" " * 200_000_000, 1)
    server.set_answers((200, packed, {"Content-Encoding": "gzip", "Content-Type": "application/json"}))
    with pytest.raises(ModelReplyError, match="its body has more than 67108864 bytes"):
        await connect().chat(ask())
    assert len(server.chats) == 1


async def test_an_error_object_with_status_200_counts_as_its_code(server, connect):
    server.set_answers((200, {"error": {"code": 503, "message": "upstream is down"}}, {}), completion())
    assert (await connect().chat(ask())).content == "ok"
    assert len(server.chats) == 2


@pytest.mark.parametrize("limited", ["client", "request"])
async def test_a_server_that_hangs_is_a_timeout_and_is_not_asked_twice(limited):
    async def hang(_request):
        await asyncio.Event().wait()

    async def attempt(seconds):
        # A separate server: an earlier attempt's request may arrive late.
        async with serving_answers() as server, connecting(server) as connect:
            server.set_answers(hang)
            client = connect(timeout=seconds) if limited == "client" else connect()
            with pytest.raises(ModelTimeoutError) as caught:
                await client.chat(ask() if limited == "client" else ask(timeout=seconds))
            TooSoon.unless(server.chats, "the request had not arrived")
            assert (len(server.chats), client.pauses) == (1, [])
            assert limited == "request" or f"did not answer within {seconds:g} s" in str(caught.value)

    await with_more_time(attempt)


async def test_a_server_that_stops_in_the_middle_of_a_body_is_a_timeout(server, connect):
    async def half(request):
        response = web.StreamResponse(headers={"Content-Length": "100"})
        await response.prepare(request)
        await response.write(b'{"choices": [')
        await asyncio.Event().wait()

    server.set_answers(half)
    with pytest.raises(ModelTimeoutError):
        await connect(timeout=0.1).chat(ask())


async def break_off(request):
    response = web.StreamResponse(headers={"Content-Length": "100"})
    await response.prepare(request)
    await response.write(b'{"choices": [')
    request.transport.abort()
    return response


async def hang_up(request):
    request.transport.abort()
    return web.Response()


@pytest.mark.parametrize("failure", [break_off, hang_up])
async def test_an_answer_that_breaks_off_is_asked_for_again_in_bounds(server, connect, failure):
    server.set_answers(failure, completion())
    assert (await connect().chat(ask())).content == "ok"
    server.set_answers(failure)
    with pytest.raises(ModelServerError, match=r"broke off.*gave up after 3 attempts"):
        await connect(max_retries=2).chat(ask())


async def test_a_kept_connection_that_the_server_closes_costs_no_request(server, connect):
    """Servers close idle connections, some at the moment of the next request: of 8 long rollouts 5 were lost."""
    server.set_answers(completion("first"), hang_up, completion("second"))
    client = connect()
    assert [(await client.chat(ask())).content for _ in range(2)] == ["first", "second"]
    assert (len(server.chats), client.pauses) == (3, [])


async def test_a_request_that_ends_on_a_new_connection_too_is_lost(server, connect):
    server.set_answers(completion(), hang_up, hang_up)
    client = connect(max_retries=0)
    await client.chat(ask())
    with pytest.raises(ModelServerError, match="broke off"):
        await client.chat(ask())
    assert len(server.chats) == 3


async def test_an_answer_that_breaks_off_on_a_kept_connection_has_begun(server, connect):
    server.set_answers(completion(), break_off)
    client = connect(max_retries=0)
    await client.chat(ask())
    with pytest.raises(ModelServerError, match="broke off"):
        await client.chat(ask())
    assert len(server.chats) == 2


async def test_a_server_that_does_not_speak_http_is_reported_without_the_urls_secrets(connect):
    async def greet(_reader, writer):
        writer.write(b"SSH-2.0-OpenSSH_9.6\r\n")
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as other:
        url = f"http://127.0.0.1:{other.sockets[0].getsockname()[1]}/v1"
        with pytest.raises(ModelServerError, match="broke off") as caught:
            await connect(base_url=f"{url}?token=t0ken").chat(ask())
    assert url in str(caught.value)
    assert "t0ken" not in f"{caught.value} {caught.value.__cause__} {caught.value.__context__}"


async def test_a_refused_connection_is_reported_with_address_and_hint(connect):
    async with unreachable_url() as url:
        client = connect(base_url=url, max_retries=2)
        with pytest.raises(ModelUnreachableError, match="gave up after 3 attempts") as caught:
            await client.chat(ask())
        assert f"no server answers at {url}: Connection refused" in str(caught.value)
        assert f"curl {url}/models" in str(caught.value)
        with pytest.raises(ModelUnreachableError):
            await client.check()
    assert len(client.pauses) == 2


async def test_an_unknown_host_is_unreachable(connect):
    with pytest.raises(ModelUnreachableError, match=r"no server answers at http://no-such-host\.invalid/v1"):
        await connect(base_url="http://no-such-host.invalid/v1", max_retries=0).chat(ask())


async def test_tls_to_a_plain_server_is_explained_and_not_repeated(server, connect):
    client = connect(base_url=server.url.replace("http:", "https:"))
    with pytest.raises(ModelRequestError, match="no secure connection"):
        await client.chat(ask())
    assert client.pauses == []


async def test_cancelling_a_call_closes_its_connection_and_stays_a_cancellation(server, connect):
    """hermes-agent's defect: a cancellation was turned into a RuntimeError."""
    arrived, left = asyncio.Event(), asyncio.Event()

    async def hang(_request):
        arrived.set()
        try:
            await asyncio.Event().wait()
        finally:
            left.set()

    server.set_answers(hang)
    call = asyncio.create_task(connect().chat(ask()))
    await arrived.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    async with asyncio.timeout(60):
        await left.wait()


async def test_hundreds_of_calls_are_in_flight_at_a_time(server, connect):
    waiting, everybody = [], asyncio.Event()

    async def together(_request):
        waiting.append(1)
        if len(waiting) == 150:
            everybody.set()
        await everybody.wait()
        return web.json_response(completion())

    server.set_answers(together)
    client = connect()
    async with asyncio.timeout(60):
        await asyncio.gather(*(client.chat(ask()) for _ in range(150)))


async def test_a_client_can_be_closed_twice_and_before_use(server, connect):
    server.set_answers(completion())
    client = connect()
    await client.aclose()
    await client.chat(ask())
    await client.aclose()
    await client.aclose()
