"""Rate limits: every form of a requested wait, and fewer requests at a time meanwhile."""

from __future__ import annotations

import asyncio
import math

import pytest
from aiohttp import web
from chat_server import NOON, ask, completion
from hypothesis import given
from hypothesis import strategies as st

from hermes_core.contracts.errors import ModelRateLimitError, ModelServerError
from hermes_models.clients.rate_limits import Throttle, requested_wait

WAITS = [
    ({"Retry-After": "7"}, "", 7),
    ({"retry-after": "0.5"}, "", 0.5),
    ({"Retry-After": "20s"}, "", 20),
    ({"Retry-After": "Fri, 15 Jan 2027 08:00:30 GMT"}, "", 30),
    ({"Retry-After": "Fri, 15 Jan 2027 07:00:00 GMT"}, "", 0),
    ({"Retry-After": "-3"}, "", 0),
    ({"retry-after-ms": "1250", "retry-after": "2"}, "", 1.25),
    ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1s"}, "", 1),
    ({"x-ratelimit-reset-tokens": "6m0s"}, "", 360),
    ({"x-ratelimit-reset-tokens": "1h2m3.5s"}, "", 3723.5),
    ({"x-ratelimit-reset-tokens": "20ms"}, "", 0.02),
    (
        {
            "x-ratelimit-remaining-requests": "9",
            "x-ratelimit-reset-requests": "24h0m0s",
            "x-ratelimit-remaining-tokens": "0",
            "x-ratelimit-reset-tokens": "8.5s",
        },
        "",
        8.5,
    ),
    (
        {
            "anthropic-ratelimit-requests-remaining": "0",
            "anthropic-ratelimit-requests-reset": "2027-01-15T08:00:12Z",
            "anthropic-ratelimit-tokens-remaining": "50",
            "anthropic-ratelimit-tokens-reset": "2027-01-15T08:09:00Z",
        },
        "",
        12,
    ),
    ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(NOON) + 45)}, "", 45),
    ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str((int(NOON) + 45) * 1000)}, "", 45),
    ({"RateLimit-Reset": "50", "RateLimit-Remaining": "0"}, "", 50),
    ({"RateLimit": '"default";r=0;t=30'}, "", 30),
    ({}, "Rate limit reached for m in o on tokens per min. Limit 1, used 2. Please try again in 6m0s. Visit …", 360),
    ({}, "Rate limit reached. Please try again in 250ms.", 0.25),
    ({}, "Requests have exceeded the call rate limit. Please retry after 20 seconds.", 20),
    ({}, "Quota exceeded. Please retry in 34.074824224s.", 34.074824224),
    ({}, '{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34s"}', 34),
    ({}, "slow down, and try again in 1 minute, 5 seconds", 65),
    ({"Retry-After": "soon"}, "try again in 3s", 3),
    *(({"Retry-After": wish}, "", None) for wish in ("soon", "nan", "inf", "", "1e999")),
    ({}, "try again in a moment", None),
    ({"x-ratelimit-remaining-requests": "0"}, "no answer in 20 s", None),
]


@pytest.mark.parametrize(("headers", "text", "wait"), WAITS)
def test_the_wait_that_a_server_asks_for_is_read_in_all_its_forms(headers, text, wait):
    found = requested_wait(headers, text, NOON)
    assert found == (None if wait is None else pytest.approx(wait))


NAMES = ["Retry-After", "retry-after-ms", "x-ratelimit-reset-tokens", "x-ratelimit-reset", "ratelimit"]


@given(
    st.dictionaries(st.sampled_from(NAMES), st.text("0123456789.:-+TZ esmhJan;t=,", max_size=40) | st.text()),
    st.text("try again in 0123456789.smh,", max_size=200) | st.text(),
)
def test_any_header_text_gives_a_finite_number_of_seconds_or_none(headers, text):
    found = requested_wait(headers, text, NOON)
    assert found is None or (math.isfinite(found) and found >= 0)


async def test_a_limit_that_ends_within_the_patience_costs_no_call(server, connect):
    refusals = [(429, b"", {"Retry-After": "100"})] * 8
    server.set_answers(*refusals, completion("after all"))
    client = connect(rate_limit_patience=10_000)
    assert (await client.chat(ask())).content == "after all"
    assert len(server.chats) == 9


async def test_rate_limit_refusals_do_not_use_up_the_retries(server, connect):
    refused, broken = (429, b"", {"Retry-After": "1"}), (500, b"", {})
    server.set_answers(refused, broken, refused, broken, refused, completion("after all"))
    assert (await connect(max_retries=2).chat(ask())).content == "after all"


@pytest.mark.parametrize("wish", [{"Retry-After": "0"}, {}, {"Retry-After": "Fri, 15 Jan 2027 07:00:00 GMT"}])
async def test_a_server_that_always_answers_now_is_called_less_and_less_often_and_not_without_end(
    server, connect, wish
):
    server.set_answers((429, b"", wish))
    client = connect(rate_limit_patience=120)
    with pytest.raises(ModelRateLimitError, match="gave up after"):
        await client.chat(ask())
    assert len(server.chats) < 20
    assert 14 < client.pauses[-1] < 34


async def test_a_client_that_repeats_nothing_does_not_wait_either(server, connect):
    server.set_answers((429, b"", {"Retry-After": "1"}))
    client = connect(max_retries=0)
    with pytest.raises(ModelRateLimitError):
        await client.chat(ask())
    assert (len(server.chats), client.pauses) == (1, [])


async def test_during_a_wait_no_request_goes_out_and_then_half_as_many_at_a_time(server, connect):
    ends, together, most = asyncio.Event(), [0], [0]

    async def refuse(_request):
        return web.Response(status=429, headers={"Retry-After": "50"})

    async def answer(_request):
        together[0] += 1
        most[0] = max(most[0], together[0])
        for _ in range(20):
            await asyncio.sleep(0)
        together[0] -= 1
        return web.json_response(completion())

    async def wait(_seconds):
        waiting.append("")
        await ends.wait()

    waiting = []
    server.set_answers(refuse, answer)
    client = connect(sleep=wait)
    first = asyncio.create_task(client.chat(ask()))
    while not waiting:
        await asyncio.sleep(0)
    others = [asyncio.create_task(client.chat(ask())) for _ in range(12)]
    for _ in range(50):
        await asyncio.sleep(0)
    assert len(server.chats) == 1
    ends.set()
    assert [reply.content for reply in await asyncio.gather(first, *others)] == ["ok"] * 13
    assert most[0] < 12


async def client_in_pause(server, connect, seconds, **options):
    """Return a client whose server has asked for a pause, and the call that waits for its end."""
    server.set_answers((429, b"", {"Retry-After": str(seconds)}))

    async def wait(_seconds):
        waiting.append("")
        await asyncio.Event().wait()

    waiting = []
    client = connect(sleep=wait, **options)
    first = asyncio.create_task(client.chat(ask()))
    while not waiting and not first.done():
        await asyncio.sleep(0)
    return client, first


@pytest.mark.parametrize("seconds", [50, 0.05])
async def test_a_rollout_that_runs_out_of_time_in_the_queue_gets_the_rate_limit_as_its_reason(server, connect, seconds):
    """The rollout's own timer took it for the model's time, which is judged."""
    client, first = await client_in_pause(server, connect, 100)
    with pytest.raises(ModelRateLimitError, match="the time of the rollout ended before this request's turn"):
        async with asyncio.timeout(seconds):
            await client.chat(ask(timeout=seconds))
    first.cancel()
    assert len(server.chats) == 1


@pytest.mark.parametrize("seconds", [5.0, 0.2, 0.001])
async def test_no_rate_limit_is_reported_where_there_is_none(server, connect, seconds):
    """Calls in the last quarter of a second of their rollout were, and lost their reward."""
    server.set_answers(completion())
    assert (await connect().chat(ask(timeout=seconds))).content == "ok"


async def test_the_wait_that_an_error_of_the_server_names_is_kept_to_and_counts_as_a_repetition(server, connect):
    server.set_answers((503, b"loading", {"Retry-After": "7"}))
    client = connect(max_retries=2)
    with pytest.raises(ModelServerError, match="gave up after 3 attempts"):
        await client.chat(ask())
    assert [7 <= pause <= 7.7 for pause in client.pauses] == [True, True]


@pytest.mark.parametrize("options", [{"rate_limit_patience": 60}, {"max_retries": 0}])
async def test_a_pause_of_hours_ends_every_call_at_once_and_not_the_refused_one_alone(server, connect, options):
    client, first = await client_in_pause(server, connect, 28_800, **options)
    with pytest.raises(ModelRateLimitError):
        await first
    for _ in range(3):
        with pytest.raises(ModelRateLimitError, match="the patience of the run"):
            await client.chat(ask())
    assert len(server.chats) == 1


async def test_limits_in_the_headers_of_a_server_error_are_not_a_rate_limit(server, connect):
    headers = {"x-ratelimit-remaining-tokens": "9999", "x-ratelimit-reset-tokens": "8ms"}
    server.set_answers((500, b"retry in 5 s", headers))
    with pytest.raises(ModelServerError, match="gave up after 3 attempts"):
        await connect(max_retries=2).chat(ask())
    assert len(server.chats) == 3


async def test_turns_are_neither_lost_nor_doubled_by_any_cancellation():
    async def wait(_seconds):
        await asyncio.sleep(0)

    throttle, together = Throttle("the server", sleep=wait), [0, 0]

    async def ask_once(number):
        began = await throttle.enter()
        together[0] += 1
        together[1] = max(together)
        try:
            for _ in range(number % 5):
                await asyncio.sleep(0)
        finally:
            together[0] -= 1
            throttle.leave(began, wait=1e-4 if number % 7 == 0 else None, is_answered=True)

    await ask_once(0)
    for cut in range(40):
        tasks = [asyncio.create_task(ask_once(number)) for number in range(1, 30)]
        for _ in range(cut):
            await asyncio.sleep(0)
        for task in tasks[cut % 3 :: 3]:
            task.cancel()
        done = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)
        assert {type(outcome) for outcome in done} <= {type(None), asyncio.CancelledError}
    assert together[0] == 0
    throttle.leave(await throttle.enter(), wait=None, is_answered=True)


async def test_after_refusals_the_number_of_requests_grows_again():
    throttle = Throttle("the server")
    began = [await throttle.enter() for _ in range(64)]
    for turn in began:
        throttle.leave(turn, wait=0.0, is_answered=False)

    async def count_at_once(*, is_answered=True):
        turns = [asyncio.create_task(throttle.enter()) for _ in range(64)]
        for _ in range(3):
            await asyncio.sleep(0)
        ready = [turn for turn in turns if turn.done()]
        for turn in turns:
            throttle.leave(await turn, wait=None, is_answered=is_answered)
        return len(ready)

    first = await count_at_once(is_answered=False)
    assert (first, await count_at_once(is_answered=False)) == (32, 32)
    for _ in range(10):
        last = await count_at_once()
    assert last == 64
