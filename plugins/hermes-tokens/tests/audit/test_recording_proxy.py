"""`hermes-core record`: what goes through the proxy is unchanged, and what crossed the wire is in its log."""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import os
import signal
import sys

import aiohttp
import pytest
from aiohttp import web
from token_clients import PROTOCOLS, connecting_tokens, request
from token_server import Fault, TokenServer, serving_tokens
from token_wire import SglangWire

from hermes_core.contracts.errors import ConfigError, ModelRateLimitError, ModelServerError, OutputError, UserError
from hermes_tokens.audit.record_command import RecordCommand
from hermes_tokens.audit.recording_proxy import RecordingProxy, recording
from hermes_tokens.audit.wire_log import Exchange

MAIN = (
    "import argparse, sys\n"
    "from hermes_tokens.audit.record_command import RecordCommand\n"
    "command, parser = RecordCommand(), argparse.ArgumentParser()\n"
    "command.configure(parser)\n"
    "sys.exit(command.run(parser.parse_args()))"
)


@pytest.fixture(params=PROTOCOLS)
async def server(request):
    async with serving_tokens(TokenServer(request.param)) as server:
        yield server


@pytest.fixture
async def connect():
    async with connecting_tokens() as make:
        yield make


@pytest.fixture
def log(tmp_path):
    return tmp_path / "wire.jsonl"


def read(log):
    return [json.loads(line) for line in log.read_text().splitlines()]


async def test_the_log_has_the_same_lines_as_the_servers_own(server, connect, log):
    async with recording(RecordingProxy(server.url, log)) as url:
        client = connect(server, base_url=url)
        await client.check()
        await client.generate(request(5, 6, rollout_id="task/é 0"))
        server.set_faults(Fault.named("abort"))
        await client.generate(request(7, request_id="r2", rollout_id="t-1"))
        await client.generate(request(8, sampling={"max_tokens": 2}))
    assert [{**line, "request_id": ""} for line in read(log)] == [{**line, "request_id": ""} for line in server.lines]
    assert [line["request_id"] for line in read(log)] == [line["request_id"] for line in server.lines]
    assert read(log)[0]["ids"] == [11, 12, 2]


async def test_a_line_is_on_disk_before_the_client_has_its_answer(server, connect, log):
    async with recording(RecordingProxy(server.url, log)) as url:
        client = connect(server, base_url=url)
        for number in range(1, 6):
            await client.generate(request(number))
            assert len(read(log)) == number


async def test_an_old_sglang_without_plain_ids_is_read_too(connect, log):
    async with serving_tokens(TokenServer("sglang", wire=SglangWire(old=True))) as server:
        async with recording(RecordingProxy(server.url, log)) as url:
            generated = await connect(server, base_url=url).generate(request())
        assert read(log)[0]["ids"] == list(generated.ids)


async def test_the_bytes_are_those_that_were_sent_in_both_directions(connect, log):
    """Also a spelling no JSON library would choose, a query that is quoted oddly, and a compressed body."""
    seen = []

    async def handler(request):
        seen.append((request.raw_path, await request.read(), request.headers.get("X-Own")))
        body = gzip.compress(b'{ "choices" : [{"token_ids":[4],"finish_reason":"stop","index":0}] }')
        return web.Response(body=body, headers={"Content-Encoding": "gzip", "X-Theirs": "ü"})

    async with running(handler) as upstream, recording(RecordingProxy(upstream, log)) as url:
        path = "/inference/v1/generate?a=%2fb&c=d%20e"
        sent = b'{"token_ids" : [1 ,2], "x": "\\u00e9" }'
        from yarl import URL

        async with (
            aiohttp.ClientSession(auto_decompress=False) as session,
            session.post(URL(url + path, encoded=True), data=sent, headers={"X-Own": "1"}) as response,
        ):
            body = await response.read()
            assert response.headers["X-Theirs"] == "ü"
            assert response.headers["Content-Encoding"] == "gzip"
    assert seen == [(path, sent, "1")]
    assert gzip.decompress(body) == b'{ "choices" : [{"token_ids":[4],"finish_reason":"stop","index":0}] }'
    assert (read(log)[0]["prompt_ids"], read(log)[0]["ids"]) == ([1, 2], [4])


async def test_a_stream_arrives_piece_by_piece_and_is_logged_as_one(log):
    go_on = asyncio.Event()

    async def handler(request):
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for ids, finish in (([4, 5], None), ([6], "stop")):
            content = {"content": [{"logprob": -1.0} for _ in ids]}
            choice = {"index": 0, "token_ids": ids, "logprobs": content, "finish_reason": finish}
            await response.write(b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n")
            await go_on.wait()
        await response.write(b"data: [DONE]\n\n")
        return response

    async with running(handler) as upstream, recording(RecordingProxy(upstream, log)) as url:
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{url}/inference/v1/generate", data=b'{"token_ids": [1]}') as response,
        ):
            first = await response.content.readany()
            assert b"[4, 5]" in first
            go_on.set()
            assert (await response.read()).endswith(b"[DONE]\n\n")
        assert read(log)[0]["ids"] == [4, 5, 6]
    assert read(log)[0]["logprobs"] == [-1.0, -1.0, -1.0]
    assert read(log)[0]["finish_reason"] == "stop"


async def test_a_cancelled_request_is_cancelled_behind_the_proxy_too(server, connect, log):
    server.set_faults(Fault.hang())
    async with recording(RecordingProxy(server.url, log)) as url:
        client = connect(server, base_url=url)
        task = asyncio.create_task(client.generate(request(request_id="r1")))
        await server.arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.ended.wait()
        assert server.lines[0]["aborted"] is True
        await client.aclose()
    assert [(line["aborted"], line["ids"], line["status"]) for line in read(log)] == [(True, [], None)]


async def test_refusals_pass_with_their_headers_and_are_logged(server, connect, log):
    server.set_faults(Fault.refuse(429, "busy", Retry_After="7"))
    async with recording(RecordingProxy(server.url, log)) as url:
        with pytest.raises(ModelRateLimitError, match="busy") as caught:
            await connect(server, base_url=url, max_retries=0).generate(request(5))
    assert caught.value.retry_after == 7
    assert [(line["status"], line["prompt_ids"], line["ids"]) for line in read(log)] == [(429, [5], [])]


async def test_a_server_that_breaks_off_breaks_off_for_the_client(server, connect, log):
    server.set_faults(Fault.drop())
    async with recording(RecordingProxy(server.url, log)) as url:
        with pytest.raises(ModelServerError, match="broke off"):
            await connect(server, base_url=url, max_retries=0).generate(request(5))
    assert [(line["status"], line["ids"]) for line in read(log)] == [(200, [])]


async def test_a_server_that_is_not_there_is_a_502(connect, log):
    async with serving_tokens(TokenServer("vllm")) as server:
        pass
    async with recording(RecordingProxy(server.url, log)) as url:
        with pytest.raises(ModelServerError, match=r"answered 502: the recorded server http://127"):
            await connect(server, base_url=url, max_retries=0).generate(request(5))
    assert read(log)[0]["status"] == 502


async def test_a_chat_is_logged_with_the_ids_it_carries(log):
    async def handler(_request):
        choices = [
            {"index": index, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop", **more}
            for index, more in enumerate(({"token_ids": [4, 5]}, {}))
        ]
        return web.json_response({"choices": choices})

    async with (
        running(handler) as upstream,
        recording(RecordingProxy(f"{upstream}/v1", log)) as url,
        aiohttp.ClientSession() as session,
        session.post(f"{url}/v1/chat/completions", json={"messages": []}) as response,
    ):
        assert response.status == 200
    assert [(line["protocol"], line["ids"]) for line in read(log)] == [("chat", [4, 5]), ("chat", [])]


async def test_credentials_in_the_upstream_url_are_sent_there(log):
    async def handler(request):
        return web.json_response([request.headers.get("Authorization"), request.query_string])

    async with running(handler) as upstream:
        known = upstream.replace("http://", "http://ann:cret@") + "?token=t0ken"
        async with (
            recording(RecordingProxy(known, log)) as url,
            aiohttp.ClientSession() as session,
            session.get(f"{url}/v1/models?a=1") as response,
        ):
            assert await response.json() == ["Basic YW5uOmNyZXQ=", "a=1&token=t0ken"]


@pytest.mark.parametrize("answer", [b"", b"{", b"[]", b'{"choices": 3}', b'{"meta_info": null}', b"[" * 99_999])
@pytest.mark.parametrize("asked", [b'{"token_ids": 3}', b'{"prompt": {}}', b"[]", b"\xff"])
@pytest.mark.parametrize("path", ["/inference/v1/generate", "/generate", "/chat/completions"])
def test_unreadable_data_is_logged_as_empty_and_never_an_error(path, asked, answer):
    exchange = Exchange(path=path, headers={}, request=asked, status=200, answer=bytearray(answer), complete=True)
    assert [line["ids"] for line in exchange.lines()] == [[]]


def test_other_paths_are_not_logged():
    assert Exchange(path="/health", headers={}, request=b"", status=200).lines() == []


async def test_many_rollouts_at_a_time_have_each_a_whole_line(server, connect, log):
    async with recording(RecordingProxy(server.url, log)) as url:
        client = connect(server, base_url=url)
        await asyncio.gather(*[client.generate(request(*range(number + 1))) for number in range(1, 41)])
    assert sorted(len(line["prompt_ids"]) for line in read(log)) == list(range(2, 42))


def test_a_log_that_cannot_be_written_is_said_before_anything_runs(tmp_path):
    with pytest.raises(OutputError, match="--log FILE"):
        RecordingProxy("http://h:1", tmp_path / "no" / "wire.jsonl")


def test_an_invalid_upstream_url_is_reported_before_anything_runs(log):
    with pytest.raises(ConfigError, match="http://HOST:PORT"):
        RecordingProxy("h:1", log)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_the_command_says_where_it_listens_and_ends_cleanly_on_a_signal(number, connect, log):
    async with serving_tokens(TokenServer("vllm")) as server:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", MAIN, "--upstream", server.url, "--log", str(log),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=dict(os.environ),
        )  # fmt: skip
        assert process.stdout is not None
        line = (await process.stdout.readline()).decode()
        assert line.startswith("listening on http://127.0.0.1:")
        await connect(server, base_url=line.split()[-1]).generate(request())
        process.send_signal(number)
        rest, complaints = await process.communicate()
    assert (process.returncode, rest, complaints) == (0, b"", b"")
    assert read(log)[0]["ids"] == [18, 19, 2]


def test_a_port_that_does_not_exist_is_said(log):
    parser = argparse.ArgumentParser()
    RecordCommand().configure(parser)
    arguments = parser.parse_args(["--upstream", "http://h:1", "--log", str(log), "--port", "70000"])
    with pytest.raises(UserError, match=r"cannot listen on 127\.0\.0\.1:70000"):
        RecordCommand().run(arguments)


class running:  # noqa: N801 - reads as a verb where it is used
    """A server with one handler for every path."""

    def __init__(self, handler):
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handler)
        self.runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)

    async def __aenter__(self):
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{self.runner.addresses[0][1]}"

    async def __aexit__(self, *_exception):
        await self.runner.cleanup()
