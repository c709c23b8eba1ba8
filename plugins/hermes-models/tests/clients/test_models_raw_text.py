"""Raw text for a parser of ours: the tools are in the model's prompt, and the marks of its calls in the answer."""

from __future__ import annotations

import json
import logging

import pytest
from aiohttp import web
from chat_server import ask, completion

from hermes_core.contracts.errors import ModelAuthError, ModelRequestError
from hermes_core.contracts.model import ModelSettings, ToolSchemas
from hermes_models.providers import Chat
from hermes_testing.chat_engines import refusal_of, usage_of

TOOL = {"type": "function", "function": {"name": "terminal", "description": "Runs.", "parameters": {"type": "object"}}}
TOOLS = ToolSchemas.of([TOOL])
WITH_MARKS = {"skip_special_tokens": False}
NONE = {"tool_choice": "none", **WITH_MARKS}


def be(server, engine):
    async def respond(_request):
        body = server.chats[-1][1]
        status, answer = refusal_of(engine, body) or (200, completion() | {"usage": usage_of(engine, body)})
        return web.json_response(answer, status=status)

    server.set_answers(respond)


def last_request(server):
    """The fields of the last request that decide what is shown and what comes back."""
    return {name: value for name, value in server.chats[-1][1].items() if name not in {"model", "messages", "tools"}}


@pytest.mark.parametrize(
    ("engine", "fields", "requests"),
    [("vllm", NONE, 2), ("sglang", WITH_MARKS, 3), ("transformers", {"tool_choice": "none"}, 4)],
)
async def test_tools_are_sent_so_that_the_engine_shows_them_and_returns_raw_text(
    server, connect, caplog, engine, fields, requests
):
    be(server, engine)
    client = connect(raw_text_sampling={})
    await client.check()
    assert len(server.chats) == requests
    assert all(body["max_tokens"] == 1 for _, body in server.chats)
    await client.chat(ask(tools=TOOLS, sampling={"temperature": 1.0}))
    assert last_request(server) == {**fields, "temperature": 1.0}
    assert client.provenance["raw_text"] == {"fields": fields, "tools_in_prompt": True}
    assert not caplog.records


async def test_without_tools_nothing_is_chosen(server, connect):
    be(server, "vllm")
    client = connect(raw_text_sampling={})
    await client.check()
    await client.chat(ask())
    assert last_request(server) == {}


@pytest.mark.parametrize(
    ("engine", "fields"), [("vllm-excluding", NONE), ("plain", {})], ids=["excluded", "a template without tools"]
)
async def test_tools_that_no_field_shows_are_reported_before_the_run(server, connect, caplog, engine, fields):
    be(server, engine)
    client = connect(raw_text_sampling={})
    await client.check()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "does not show the tools to the model: it counts 9 prompt tokens" in record.getMessage()
    assert "--chat-template FILE" in record.getMessage()
    assert client.provenance["raw_text"] == {"fields": fields, "tools_in_prompt": False}


async def test_a_server_that_counts_nothing_gets_normal_requests_and_a_warning(server, connect, caplog):
    be(server, "uncounted")
    client = connect(raw_text_sampling={})
    await client.check()
    assert "counts no prompt tokens" in caplog.text
    await client.chat(ask(tools=TOOLS))
    assert last_request(server) == {}
    assert client.provenance["raw_text"] == {"fields": {}, "tools_in_prompt": None}


@pytest.mark.parametrize("place", ["raw_text_sampling", "extra_body"])
@pytest.mark.parametrize(
    ("given", "chosen"),
    [({"tool_choice": "none"}, WITH_MARKS), ({"skip_special_tokens": True}, {"tool_choice": "none"}), (NONE, {})],
)
async def test_what_the_user_chose_is_not_chosen_again_nor_written_twice(server, connect, place, given, chosen):
    raw = []

    async def respond(request):
        raw.append(await request.read())
        return web.json_response(completion() | {"usage": usage_of("vllm", server.chats[-1][1])})

    server.set_answers(respond)
    client = connect(**{"raw_text_sampling": {}, place: given})
    await client.check()
    await client.chat(ask(tools=TOOLS, sampling={} if place == "extra_body" else given))
    assert client.provenance["raw_text"]["fields"] == chosen
    keys = json.loads(raw[-1], object_pairs_hook=lambda pairs: [key for key, _ in pairs])
    assert sorted(keys) == sorted({"model", "messages", "tools", *given, *chosen})
    assert last_request(server) == {**given, **chosen}


async def test_a_probe_without_an_answer_leaves_requests_as_they_are(server, connect, caplog):
    server.set_answers((200, completion("") | {"usage": {"prompt_tokens": 9, "completion_tokens": 0}}, {}))
    client = connect(raw_text_sampling={}, max_retries=0)
    await client.check()
    assert "could not determine whether" in caplog.text
    assert client.provenance["raw_text"] == {"fields": {}, "tools_in_prompt": None}


async def test_a_probe_that_the_server_refuses_leaves_requests_as_they_are(server, connect, caplog):
    """OpenAI's newer models take no `max_tokens`."""
    server.set_answers((400, {"error": {"message": "Unsupported parameter: 'max_tokens'"}}, {}))
    client = connect(raw_text_sampling={})
    await client.check()
    assert "could not determine whether" in caplog.text
    assert "Unsupported parameter" in caplog.text
    assert client.provenance["raw_text"] == {"fields": {}, "tools_in_prompt": None}


async def test_a_refused_key_is_an_error_before_the_run(server, connect):
    server.set_answers((401, {}, {}))
    with pytest.raises(ModelAuthError):
        await connect(raw_text_sampling={}).check()


async def test_tools_that_are_refused_in_any_way_are_an_error_before_the_run(server, connect):
    async def respond(_request):
        tools = server.chats[-1][1].get("tools")
        return web.json_response({"error": "no tools"} if tools else completion(), status=400 if tools else 200)

    server.set_answers(respond)
    with pytest.raises(ModelRequestError, match="no tools"):
        await connect(raw_text_sampling={}).check()


async def test_a_vllm_that_parses_no_calls_says_what_to_type(server, connect):
    be(server, "vllm")
    with pytest.raises(ModelRequestError) as caught:
        await connect().chat(ask(tools=TOOLS))
    assert "requires --enable-auto-tool-choice and --tool-call-parser" in caught.value.message
    assert "parse the calls on the client side: --parser NAME" in caught.value.message


@pytest.mark.parametrize(("parser", "requests"), [("hermes", 2), (None, 0)])
async def test_raw_text_is_requested_when_the_run_names_a_parser(server, parser, requests):
    be(server, "vllm")
    options = {"tool_call_parser": parser, "sampling": {"temperature": 1.0}}
    client = Chat().client(ModelSettings(address=server.url, model_name="m", options=options))
    await client.check()
    assert len(server.chats) == requests
    await client.aclose()
