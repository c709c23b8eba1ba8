"""Checks of the chat client before a run: the server's models, credentials, addresses and unusable fields."""

from __future__ import annotations

import asyncio
import logging

import aiohttp
import pytest
from aiohttp import web
from chat_server import ask, completion

from hermes_core.contracts.errors import (
    ConfigError,
    ModelAuthError,
    ModelError,
    ModelRequestError,
    ModelUnreachableError,
)
from hermes_models.clients.address import ServerAddress
from hermes_models.clients.http_errors import of_transport
from hermes_models.clients.openai import OpenAIChatClient
from hermes_testing.servers import unreachable_url

KEY = "sk-very-secret-0123456789"


async def test_the_check_lists_models_and_never_samples(server, connect):
    """Peers' defect 19: the health check was a chat completion every second, without an end."""
    await connect().check()
    assert (server.lists, server.chats) == (1, [])


UNLISTED = [
    (web.Response(status=500, text="Internal Server Error"), "answered 500: Internal Server Error"),
    (web.Response(status=502, text="<p>Bad gateway"), "answered 502: <p>Bad gateway"),
    *((web.Response(status=status), f"answered {status}") for status in (400, 404, 405, 422, 429, 501, 503)),
    (web.json_response({"data": []}), "answered with an empty list"),
    (web.Response(text="<p>Welcome"), "its list of models is not JSON: <p>Welcome"),
    (web.Response(body=b""), "its list of models is not JSON: an empty body"),
    *((web.json_response(body), "it is not a list of models") for body in ({"models": ["x"]}, [], "x", None)),
    (web.json_response({"data": [{"name": "x"}]}), "it is not a list of models"),
]


@pytest.mark.parametrize(("answer", "found"), UNLISTED, ids=lambda value: value if isinstance(value, str) else "")
@pytest.mark.parametrize(("given", "name"), [("m", "m"), ("", "default")], ids=["named", "nameless"])
async def test_a_server_that_lists_no_models_is_used_with_a_warning(
    server, connect, caplog, answer, found, given, name
):
    """`transformers serve` answers 500 or an empty list, and works well otherwise."""
    server.models = answer
    server.set_answers(completion())
    client = connect(model_name=given)
    await client.check()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert found in record.getMessage()
    assert f"the model {name!r}" in record.getMessage()
    await client.chat(ask())
    assert (server.lists, server.chats[-1][1]["model"]) == (1, name)


async def test_a_list_that_does_not_come_in_time_is_a_warning(server, connect, caplog):
    async def never(_request):
        await asyncio.Event().wait()

    server.lists_with = never
    await connect(timeout=0.2).check()
    assert "did not answer within 0.2 s" in caplog.text


@pytest.mark.parametrize("listed", ["m:latest", "models/m", "m"])
async def test_the_names_servers_add_to_are_the_same_model(server, connect, listed):
    server.models = web.json_response({"data": [{"id": "other"}, {"id": listed}]})
    await connect().check()


async def test_a_wrong_model_name_is_found_by_the_check_which_names_the_others(server, connect):
    server.models = web.json_response({"data": [{"id": "qwen"}, {"id": "llama"}]})
    with pytest.raises(ModelRequestError, match="got qwen, llama") as caught:
        await connect().check()
    assert "--model-name qwen" in str(caught.value)


async def test_a_model_that_the_server_does_not_list_is_asked_for_where_the_user_says_so(server, connect, caplog):
    """LoRA adapters and models behind a proxy are often not listed."""
    server.models = web.json_response({"data": [{"id": "qwen"}]})
    server.set_answers(completion())
    with pytest.raises(ModelRequestError, match="--allow-unlisted-model"):
        await connect(model_name="my-adapter").check()
    client = connect(model_name="my-adapter", allow_unlisted_model=True)
    await client.check()
    assert "does not list the model 'my-adapter'" in caplog.text
    await client.chat(ask())
    assert server.chats[-1][1]["model"] == "my-adapter"


@pytest.mark.parametrize(
    ("models", "name"), [([{"id": "qwen"}], "qwen"), ([], "default")], ids=["the only one", "an empty list"]
)
async def test_a_client_without_a_models_name_takes_what_there_is(server, connect, models, name):
    server.models = web.json_response({"data": models})
    server.set_answers(completion())
    client = connect(model_name="", base_url=server.url.removesuffix("/v1"))
    await client.check()
    assert client.provenance["model_name"] == name
    await client.chat(ask())
    assert server.chats[-1][1]["model"] == name


async def test_a_client_without_a_models_name_chooses_none_of_several(server, connect):
    server.models = web.json_response({"data": [{"id": "qwen"}, {"id": "llama"}]})
    with pytest.raises(ModelRequestError, match="to list one model, got qwen, llama"):
        await connect(model_name="").check()


@pytest.mark.parametrize(
    ("status", "kind"), [(401, ModelAuthError), (402, ModelAuthError), (403, ModelAuthError), (307, ModelRequestError)]
)
async def test_the_check_reports_what_a_run_would_stumble_over(server, connect, status, kind):
    server.models = web.Response(status=status, headers={"Location": "http://other/v1"} if status == 307 else {})
    with pytest.raises(kind):
        await connect().check()
    assert server.lists == 1


async def test_a_refused_connection_stays_an_error(connect):
    async with unreachable_url() as url:
        with pytest.raises(ModelUnreachableError):
            await connect(base_url=url).check()


async def test_the_key_is_sent_and_shown_nowhere(server, connect):
    server.set_answers((401, {"error": {"message": f"Incorrect API key provided: {KEY}"}}, {}))
    client = connect(api_key=f" {KEY}\n")
    with pytest.raises(ModelError) as caught:
        await client.chat(ask())
    assert server.chats[0][0]["Authorization"] == f"Bearer {KEY}"
    shown = f"{caught.value} {caught.value!r} {client!r} {client.provenance}"
    assert KEY not in shown
    assert "Incorrect API key provided: ***" in shown


async def test_a_password_in_the_url_is_sent_and_shown_nowhere(server, connect):
    server.set_answers(completion())
    url = server.url.replace("http://", "http://ann:s%40cret@") + "?token=t0ken"
    client = connect(base_url=url)
    await client.chat(ask())
    assert server.chats[0][0]["Authorization"] == "Basic YW5uOnNAY3JldA=="
    assert client.provenance == {"protocol": "openai-chat", "base_url": server.url, "model_name": "m"}
    assert "cret" not in repr(client)
    with pytest.raises(ConfigError, match="one way to log in"):
        connect(base_url=url, api_key=KEY)


def test_a_connection_that_is_never_accepted_is_said_without_the_urls_secrets():
    """Made by hand: no address on the loopback interface swallows connections reliably."""
    address = ServerAddress.parse("http://h/v1?token=t0ken")
    raised = aiohttp.ConnectionTimeoutError(f"Connection timeout to host {address.chat}")
    error = of_transport(raised, address=address, seconds=1.0).error()
    assert type(error) is ModelUnreachableError
    assert "no server answers at http://h/v1: the connection was not accepted in time" in str(error)
    assert "t0ken" not in f"{error} {error.__cause__}"


@pytest.mark.parametrize("key", ["", "  ", "two\nlines", "ключ"])
def test_a_key_no_header_can_carry_is_refused_without_showing_it(key):
    with pytest.raises(ConfigError, match="expected an API key") as caught:
        OpenAIChatClient(base_url="http://h/v1", model_name="m", api_key=key)
    assert "lines" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("http://h:80/v1/chat/completions", "--model http://h:80/v1"),
        ("ftp://h/v1", "http://HOST:PORT/v1"),
        ("http://", "http://HOST:PORT/v1"),
        ("http://user:pass@h:nonsense/v1", "http://HOST:PORT/v1"),
    ],
)
def test_a_url_that_cannot_work_is_refused_at_once(url, hint):
    with pytest.raises(ConfigError) as caught:
        OpenAIChatClient(base_url=url, model_name="m")
    assert hint in str(caught.value)
    assert "pass" not in str(caught.value)


@pytest.mark.parametrize("field", ["messages", "model", "stream", "n", "tools", "extra_body"])
async def test_fields_the_client_sets_itself_cannot_be_passed_in(connect, field):
    with pytest.raises(ConfigError, match=field):
        OpenAIChatClient(base_url="http://h/v1", model_name="m", extra_body={field: 1})
    with pytest.raises(ConfigError, match=field):
        await connect().chat(ask(sampling={field: 1}))
