"""The HTTP server in front of a model, spoken to by the real client and by hand."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import aiohttp
import pytest

from hermes_core.contracts.errors import (
    ContextOverflowError,
    HermesError,
    ModelAuthError,
    ModelRateLimitError,
    ModelReplyError,
    ModelRequestError,
    ModelServerError,
    ModelTimeoutError,
)
from hermes_core.contracts.model import Conversation, ModelReply, ModelRequest, RequestedCall, ToolSchemas, Usage
from hermes_core.contracts.task import Step, Task
from hermes_models.clients.openai import OpenAIChatClient
from hermes_models.embedded.embedded import EmbeddedModel
from hermes_models.embedded.nop import NopModel
from hermes_models.embedded.oracle import OracleModel
from hermes_models.serving.server import ChatServer, serving

STEPS = tuple(Step(tool="terminal", arguments={"command": f"echo {index} é > out"}) for index in range(4))
TASK = Task(id="t", messages=({"role": "user", "content": "Füll es."},), solution=STEPS, answer="42")
TOOL = {"type": "function", "function": {"name": "terminal", "description": "", "parameters": {"type": "object"}}}


class Fixed(EmbeddedModel):
    """Answers with one reply or error, and keeps the requests."""

    name = "fixed"

    def __init__(self, outcome):
        self.outcome = outcome
        self.requests = []

    async def chat(self, request):
        self.requests.append(request)
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


@asynccontextmanager
async def connect(model, *, api_key=None, server_key=None, **options):
    async with serving(ChatServer(model, model_name="m", api_key=server_key)) as url:
        client = OpenAIChatClient(base_url=url, model_name="m", api_key=api_key, max_retries=0, **options)
        try:
            yield client
        finally:
            await client.aclose()


async def run_rollout(model, *, rollout_id, seed=0):
    talk = Conversation(TASK.messages)
    replies = []
    while True:
        tools = ToolSchemas.of([TOOL])
        reply = await model.chat(ModelRequest(conversation=talk, tools=tools, rollout_id=rollout_id, seed=seed))
        replies.append(reply)
        calls = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in reply.tool_calls
        ]
        talk.append({"role": "assistant", "content": reply.content, **({"tool_calls": calls} if calls else {})})
        if not calls:
            return replies
        for call in calls:
            talk.append({"role": "tool", "tool_call_id": call["id"], "content": "ok"})


@pytest.mark.parametrize("seed", [0, 2**31])
async def test_the_oracle_answers_the_same_over_http_as_in_the_process(seed):
    oracle = OracleModel([TASK], mistake_rate=0.6, seed=3)
    rollouts = [f"t/{index}" for index in range(25)] + ["é 1", "50%41"]
    direct = [await run_rollout(oracle, rollout_id=rollout, seed=seed) for rollout in rollouts]
    async with connect(oracle) as client:
        await client.check()
        served = await asyncio.gather(*(run_rollout(client, rollout_id=rollout, seed=seed) for rollout in rollouts))
    assert served == direct
    different = len({str(replies) for replies in served})
    assert different == 1 if seed else different > 5


async def test_nop_is_served():
    async with connect(NopModel()) as client:
        [reply] = await run_rollout(client, rollout_id="r")
    assert reply.content == "Nothing was done."


async def test_a_whole_reply_comes_through_and_so_does_the_request():
    call = RequestedCall(id="x", name="terminal", arguments="{not json")
    usage = Usage(prompt_tokens=5, completion_tokens=7)
    model = Fixed(ModelReply(content=None, reasoning="hm", tool_calls=(call,), finish_reason="length", usage=usage))
    talk = Conversation([{"role": "user", "content": "日本"}])
    async with connect(model) as client:
        request = ModelRequest(
            conversation=talk, tools=ToolSchemas.of([TOOL]), sampling={"seed": 9}, rollout_id="r/1", seed=7
        )
        assert await client.chat(request) == model.outcome
    [arrived] = model.requests
    assert arrived.conversation.messages == talk.messages
    assert arrived.tools == ToolSchemas.of([TOOL])
    assert (arrived.sampling, arrived.seed, arrived.rollout_id) == ({"seed": 9}, 7, "r/1")


@pytest.mark.parametrize(
    ("raised", "received"),
    [
        (ContextOverflowError("it is full"), ContextOverflowError),
        (ModelRequestError("no such task"), ModelRequestError),
        (ModelAuthError("no"), ModelAuthError),
        (ModelRateLimitError("later", retry_after=2.5), ModelRateLimitError),
        (ModelTimeoutError("upstream"), ModelServerError),
        (ModelReplyError("upstream"), ModelServerError),
        (HermesError("bug"), ModelServerError),
    ],
)
async def test_errors_of_the_model_keep_their_meaning_over_http(raised, received):
    async with connect(Fixed(raised)) as client:
        with pytest.raises(received, match=raised.message) as caught:
            await run_rollout(client, rollout_id="r")
    assert getattr(caught.value, "retry_after", 3) == 3


@pytest.mark.parametrize("key", [None, "wrong", "sekret2"])
async def test_a_key_is_required(key):
    async with connect(NopModel(), server_key="sekret", api_key=key) as client:
        for call in (client.check(), run_rollout(client, rollout_id="r")):
            with pytest.raises(ModelAuthError, match="expected a valid API key"):
                await call


async def test_the_right_key_opens():
    async with connect(NopModel(), server_key="sekret", api_key="sekret") as client:
        await client.check()
        assert await run_rollout(client, rollout_id="r")


async def test_another_model_name_is_refused_with_the_right_one():
    async with serving(ChatServer(NopModel(), model_name="nop")) as url:
        client = OpenAIChatClient(base_url=url, model_name="gpt")
        with pytest.raises(ModelRequestError, match="--model-name nop"):
            await client.check()
        with pytest.raises(ModelRequestError, match="expected the model 'nop'"):
            await run_rollout(client, rollout_id="r")
        await client.aclose()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "not JSON"),
        (b"[1]", "a JSON object"),
        (b'{"model":"m"}', "`messages`"),
        (b'{"model":"m","messages":[]}', "`messages`"),
        (b'{"model":"m","messages":["hi"]}', "`messages`"),
        (b'{"model":"m","messages":[{"role":"user","content":"x"}],"stream":true}', "does not stream"),
        (b'{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{}]}', "`tools`"),
        (b'{"model":"m","messages":[{"role":"user","content":"x"}],"tools":7}', "`tools`"),
    ],
)
async def test_a_bad_request_is_answered_in_openais_shape(body, said):
    async with (
        serving(ChatServer(NopModel(), model_name="m")) as url,
        aiohttp.ClientSession() as session,
        session.post(f"{url}/chat/completions", data=body) as response,
    ):
        assert response.status == 400
        error = json.loads(await response.read())["error"]
    assert said in error["message"]
    assert error["type"] == "invalid_request_error"


async def test_health_needs_no_key():
    async with (
        serving(ChatServer(NopModel(), model_name="m", api_key="k")) as url,
        aiohttp.ClientSession() as session,
        session.get(url.removesuffix("/v1") + "/health") as response,
    ):
        assert response.status == 200


async def test_a_client_that_hangs_up_cancels_the_models_work():
    begun, ended = asyncio.Event(), asyncio.Event()

    class Slow(Fixed):
        async def chat(self, request):
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

    async with connect(Slow(None)) as client:
        call = asyncio.create_task(run_rollout(client, rollout_id="r"))
        await begun.wait()
        call.cancel()
        async with asyncio.timeout(60):
            await ended.wait()
    assert call.cancelled()


async def test_a_taken_port_is_an_oserror():
    async with serving(ChatServer(NopModel(), model_name="m")) as url:
        port = int(url.split(":")[2].split("/")[0])
        with pytest.raises(OSError, match="address already in use"):
            async with serving(ChatServer(NopModel(), model_name="m"), port=port):
                pass
