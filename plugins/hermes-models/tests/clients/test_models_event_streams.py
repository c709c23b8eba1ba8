"""Servers that always stream or refuse anything else, and streams that are broken or hostile."""

from __future__ import annotations

import asyncio
import gzip
import json

import pytest
from aiohttp import web
from chat_server import ask, completion

from hermes_core.contracts.errors import (
    ContextOverflowError,
    ModelReplyError,
    ModelRequestError,
    ModelServerError,
    ModelTimeoutError,
)
from hermes_core.contracts.model import ModelReply, RequestedCall, Usage
from hermes_testing.watching import TooSoon, with_more_time

USAGE = {"prompt_tokens": 7, "completion_tokens": 5}
HEADERS = {"Content-Type": "text/event-stream; charset=utf-8"}


def chunk(finish=None, usage=None, **delta):
    """Give one event as servers write it."""
    logprobs = {"content": [{"token": "a", "logprob": -1.0}]}
    choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": logprobs}
    return {"object": "chat.completion.chunk", "usage": usage, "choices": [choice]}


def piece(index, arguments=None, **fields):
    """Give a piece of a tool call."""
    function = {name: fields.pop(name) for name in ("name",) if name in fields} | {"arguments": arguments}
    return {**({} if index is None else {"index": index}), **fields, "function": function}


def events(*items, end="\n\n", done=True):
    lines = [item if isinstance(item, str) else f"data: {json.dumps(item)}" for item in items]
    return "".join(f"{line}{end}" for line in [*lines, *(["data: [DONE]"] if done else [])]).encode()


def stream(*items, **options):
    return 200, events(*items, **options), HEADERS


def usage_event(**usage):
    return {"choices": [], "usage": {**USAGE, **usage}}


@pytest.mark.parametrize("end", ["\n\n", "\r\n\r\n", "\r\r", "\n"])
async def test_a_streamed_text_becomes_the_same_reply(server, connect, end):
    server.set_answers(
        stream(
            ": OPENROUTER PROCESSING",
            chunk(role="assistant", content="", reasoning_content=None),
            "event: message",
            chunk(reasoning_content="so "),
            chunk(reasoning_content="it is"),
            chunk(content="4"),
            chunk(content="2 [DONE]\ndata: [DONE]"),
            chunk("length", content=""),
            usage_event(),
            end=end,
        )
    )
    assert await connect().chat(ask()) == ModelReply(
        content="42 [DONE]\ndata: [DONE]",
        reasoning="so it is",
        finish_reason="length",
        usage=Usage(prompt_tokens=7, completion_tokens=5),
    )


def first(index, arguments):
    return piece(index, arguments, id="a", name="f")


def second(index, arguments):
    return piece(index, arguments, id="b", name="g")


CALLS = {
    "by index": [first(0, ""), piece(0, '{"n"'), second(1, ""), piece(1, "{}"), piece(0, ": 1}")],
    "in one piece each, all with the index 0": [first(0, '{"n": 1}'), second(0, "{}")],
    "in one piece each, without an index": [first(None, '{"n": 1}'), second(None, "{}")],
    "in pieces without an index": [first(None, '{"n"'), piece(None, ": 1}"), second(None, "{}")],
    "with the name in every piece": [first(0, '{"n": '), first(0, "1}"), second(1, "{}")],
    "with new ids for pieces without a name": [first(0, '{"n": '), piece(0, "1}", id="x"), second(1, "{}")],
    "with arguments that are not text": [first(0, {"n": 1}), second(1, None)],
}


@pytest.mark.parametrize("pieces", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("together", [False, True])
async def test_streamed_tool_calls_become_the_same_calls(server, connect, pieces, together):
    deltas = [pieces] if together else [[one] for one in pieces]
    server.set_answers(stream(chunk(content=""), *(chunk(tool_calls=delta) for delta in deltas), chunk("tool_calls")))
    reply = await connect().chat(ask())
    assert reply.tool_calls == (
        RequestedCall(id="a", name="f", arguments='{"n": 1}'),
        RequestedCall(id="b", name="g", arguments="{}"),
    )
    assert (reply.content, reply.finish_reason) == (None, "tool_calls")


async def test_parts_and_halves_of_characters_are_put_together(server, connect):
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    server.set_answers(
        stream(chunk(content=[thought]), chunk(content="a\ud83c"), chunk(content="\udf88"), chunk("stop"))
    )
    reply = await connect().chat(ask())
    assert (reply.content, reply.reasoning) == ("a\N{BALLOON}", "hm")


async def test_a_stream_that_stays_open_behind_its_last_event_is_whole(server, connect):
    async def stay(request):
        response = web.StreamResponse(headers=HEADERS)
        await response.prepare(request)
        data = events(chunk(content="42"), chunk("stop"))
        for at in range(0, len(data), 5):
            await response.write(data[at : at + 5])
        await asyncio.Event().wait()
        return response

    server.set_answers(stay)
    async with asyncio.timeout(60):
        assert (await connect().chat(ask())).content == "42"


async def test_a_stream_may_end_without_the_last_event(server, connect):
    server.set_answers(stream(chunk(content="42"), chunk("stop"), done=False))
    assert (await connect().chat(ask())).content == "42"


REFUSALS = [
    "This model only support stream mode, please enable the stream parameter to access the model.",
    "Stream must be set to true",
    "Streaming is required for operations that may take longer than 10 minutes",
    "Requests with max_tokens > 4096 must have stream=true",
    "This endpoint only supports streaming",
    "parameter.enable_thinking must be set to false for non-streaming calls",
    "Non-streaming requests are not supported",
    "this model requires `stream`",
]


@pytest.mark.parametrize("message", REFUSALS)
@pytest.mark.parametrize("status", [400, 200])
async def test_a_server_that_says_it_only_streams_is_asked_for_a_stream_once_and_for_all(
    server, connect, message, status
):
    refusal = (status, {"error": {"message": message}}, {})
    server.set_answers(refusal, stream(chunk(content="42"), chunk("stop"), usage_event()))
    client = connect(max_retries=0)
    assert [(await client.chat(ask())).content for _ in range(2)] == ["42", "42"]
    assert [body.get("stream") for _, body in server.chats] == [None, True, True]
    assert server.chats[1][1]["stream_options"] == {"include_usage": True}
    assert client.pauses == []


async def test_a_server_that_does_not_know_how_to_count_in_a_stream_is_not_asked_to(server, connect):
    server.set_answers(
        (400, {"detail": "Stream must be set to true"}, {}),
        (422, {"detail": "Extra inputs are not permitted: stream_options"}, {}),
        stream(chunk(content="42"), chunk("stop")),
    )
    assert (await connect(max_retries=0).chat(ask())).content == "42"
    assert server.chats[-1][1] == {"model": "m", "messages": [{"role": "user", "content": "hello"}], "stream": True}


@pytest.mark.parametrize("message", ["stream is not supported", "unknown field n", "upstream failed"])
async def test_another_refusal_does_not_lead_to_a_stream_request(server, connect, message):
    server.set_answers((400, {"error": {"message": message}}, {}))
    with pytest.raises(ModelRequestError):
        await connect().chat(ask())
    assert len(server.chats) == 1


async def test_a_server_that_refuses_both_is_refused_and_asked_no_more(server, connect):
    server.set_answers((400, {"error": {"message": "stream must be true"}}, {}))
    with pytest.raises(ModelRequestError, match="stream must be true"):
        await connect().chat(ask())
    assert len(server.chats) == 2


async def test_a_server_that_was_asked_for_a_stream_may_answer_in_one_piece(server, connect):
    server.set_answers((400, {"error": "streaming only"}, {}), completion("42"))
    assert (await connect().chat(ask())).content == "42"


CUT = {
    "before anything": (),
    "after a part of the text": (chunk(content="the answer is 4"),),
    "in a tool call": (chunk(tool_calls=[first(0, '{"n": 1}')]),),
    "within an event": (chunk(content="4"), 'data: {"choices": [{"delta": {"cont'),
}


@pytest.mark.parametrize("items", CUT.values(), ids=CUT)
async def test_a_stream_that_is_cut_is_the_servers_failure_and_not_an_answer(server, connect, items):
    server.set_answers((200, events(*items, done=False).rstrip(), HEADERS))
    with pytest.raises(ModelServerError, match="the stream ended"):
        await connect(max_retries=2).chat(ask())
    assert len(server.chats) == 3


async def test_a_stream_that_ends_before_the_reply_does_is_not_an_answer(server, connect):
    server.set_answers(stream(chunk(content="the answer is 4")))
    with pytest.raises(ModelServerError, match="no event has a finish_reason"):
        await connect().chat(ask())


async def test_a_connection_that_breaks_within_a_stream_is_the_servers_failure(server, connect):
    async def break_off(request):
        response = web.StreamResponse(headers=HEADERS)
        await response.prepare(request)
        await response.write(events(chunk(content="4"), chunk("stop"), done=False)[:-20])
        request.transport.abort()
        return response

    server.set_answers(break_off)
    with pytest.raises(ModelServerError, match="broke off"):
        await connect().chat(ask())


@pytest.mark.parametrize(
    ("item", "found"),
    [
        ("data: {no json}", "an event of the stream is not JSON"),
        ("data: " + "[" * 100_000, "an event of the stream is not JSON"),
        ("data: 1" + "0" * 10_000, "an event of the stream is not JSON"),
        *((value, "is not part of a chat completion") for value in ([], 3, {"choices": 3}, {"choices": [3]})),
        *(
            (chunk("stop", tool_calls=value), "is not part of a chat completion")
            for value in (3, [3], [{"function": 3}])
        ),
        ({"choices": [{"delta": [1], "finish_reason": "stop"}]}, "is not part of a chat completion"),
    ],
    ids=lambda value: str(value)[:30],
)
async def test_invalid_events_are_not_an_answer(server, connect, item, found):
    server.set_answers(stream(chunk(content="4"), item, chunk("stop")))
    with pytest.raises(ModelReplyError, match=found) as caught:
        await connect().chat(ask())
    assert caught.value.hint is None


async def test_an_error_within_a_stream_counts_as_its_code(server, connect):
    error = {"error": {"code": 503, "message": "upstream is down"}}
    server.set_answers(stream(chunk(content="4"), error), stream(chunk(content="42"), chunk("stop")))
    assert (await connect().chat(ask())).content == "42"
    overflow = {"error": {"message": "maximum context length is 8 tokens", "code": "context_length_exceeded"}}
    server.set_answers(stream(overflow))
    with pytest.raises(ContextOverflowError, match="maximum context length is 8 tokens"):
        await connect().chat(ask())


async def test_a_reply_that_a_stream_says_was_broken_off_is_asked_for_again(server, connect):
    broken = {**chunk("error", content=""), "error": {"code": 502, "message": "upstream"}}
    server.set_answers(stream(chunk(content="4"), broken), stream(chunk(content="42"), chunk("stop")))
    assert (await connect().chat(ask())).content == "42"


async def test_a_stream_that_never_ends_is_a_timeout(server, connect):
    async def attempt(seconds):
        begun = []

        async def babble(request):
            response = web.StreamResponse(headers=HEADERS)
            await response.prepare(request)
            begun.append(1)
            while True:
                await response.write(events(chunk(content="and "), done=False))
                await asyncio.sleep(0)

        server.set_answers(babble)
        with pytest.raises((ModelTimeoutError, ModelReplyError)):
            await connect(timeout=seconds).chat(ask())
        TooSoon.unless(begun, "the stream had not begun")

    await with_more_time(attempt)


@pytest.mark.parametrize(
    "filling", [b"\n", b"x", b": x\n", b"data:\n"], ids=["lines", "one line", "comments", "nothing"]
)
async def test_a_stream_that_is_larger_than_an_answer_may_be_is_refused(server, connect, filling):
    packed = gzip.compress(filling * (100_000_000 // len(filling)), 1)
    server.set_answers((200, packed, {**HEADERS, "Content-Encoding": "gzip"}))
    with pytest.raises(ModelReplyError, match="its body has more than 67108864 bytes"):
        await connect().chat(ask())


async def test_other_work_goes_on_while_a_long_stream_is_read(server, connect):
    """Many events in one read: the loop is given back between them."""
    many = 30_000
    packed = gzip.compress(events(*[chunk(content="a")] * many, chunk("stop")), 1)
    server.set_answers((200, packed, {**HEADERS, "Content-Encoding": "gzip"}))
    turns = 0

    async def count():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    client = connect()
    reply = await client.chat(ask())
    counting.cancel()
    assert reply.content == "a" * many
    assert turns > many // 1000
