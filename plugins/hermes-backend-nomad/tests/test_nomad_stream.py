"""The websocket of `alloc exec` as an agent's stream."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from hermes_backend_nomad.stream import ExecStream, run
from hermes_testing.watching import eventually

Serve = Callable[[web.WebSocketResponse], Awaitable[None]]


async def _nothing() -> str | None:
    return None


async def _loss_reason() -> str | None:
    return "allocation 12 is complete"


def _output(data: bytes, name: str = "stdout") -> str:
    return json.dumps({name: {"data": base64.b64encode(data).decode()}})


@asynccontextmanager
async def _stream(serve: Serve, explain: Any = _nothing, **options: Any) -> AsyncIterator[ExecStream]:
    async def handle(request: web.Request) -> web.WebSocketResponse:
        websocket = web.WebSocketResponse()
        await websocket.prepare(request)
        await serve(websocket)
        return websocket

    app = web.Application()
    app.add_routes([web.get("/", handle)])
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with aiohttp.ClientSession() as session:
        websocket = await session.ws_connect(f"http://127.0.0.1:{runner.addresses[0][1]}/")
        stream = ExecStream(websocket, explain, **options)
        try:
            yield stream
        finally:
            stream.abort()
            await stream.wait_closed()
    await runner.cleanup()


async def test_what_is_written_arrives_in_frames_of_limited_size() -> None:
    got: list[bytes] = []
    closed = asyncio.Event()

    async def serve(websocket: web.WebSocketResponse) -> None:
        async for message in websocket:
            stdin = json.loads(message.data)["stdin"]
            if stdin.get("close"):
                closed.set()
                break
            got.append(base64.b64decode(stdin["data"]))
        await websocket.send_str('{"exited":true,"result":{}}')

    async with _stream(serve) as stream:
        data = bytes(range(256)) * 1000
        stream.write(data)
        stream.write(memoryview(b"more"))
        stream.close()
        await asyncio.wait_for(closed.wait(), 60)
        assert b"".join(got) == data + b"more"
        assert max(map(len, got)) <= 1 << 15
        with pytest.raises(asyncio.IncompleteReadError):
            await stream.reader.readexactly(1)
        assert stream.exit_code == 0


async def test_who_writes_waits_for_one_who_does_not_read() -> None:
    reading = asyncio.Event()
    got = 0

    async def serve(websocket: web.WebSocketResponse) -> None:
        nonlocal got
        await reading.wait()
        async for message in websocket:
            got += len(base64.b64decode(json.loads(message.data)["stdin"]["data"]))

    async with _stream(serve) as stream:
        written = 0

        async def write() -> None:
            nonlocal written
            while True:
                stream.write(bytes(100_000))
                written += 100_000
                await stream.drain()

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(write(), 1)
        assert written < 50_000_000
        reading.set()

        async def all_there() -> bool:
            return got == written

        assert await eventually(all_there, seconds=60)


async def test_unread_data_stays_in_the_connection() -> None:
    sent = 0

    async def serve(websocket: web.WebSocketResponse) -> None:
        nonlocal sent
        while sent < 200_000_000:
            await websocket.send_str(_output(bytes(30_000)))
            sent += 30_000

    async with _stream(serve) as stream:
        previous = -1

        async def stands_still() -> bool:
            nonlocal previous
            before, previous = previous, sent
            await asyncio.sleep(0.2)
            return before == sent > 0

        assert await eventually(stands_still, seconds=60)
        assert sent < 50_000_000
        more = sent + 3_000_000
        assert (await stream.reader.readexactly(more)).count(0) == more


async def test_silence_is_broken_by_empty_frames() -> None:
    heard: list[str] = []
    enough = asyncio.Event()

    async def serve(websocket: web.WebSocketResponse) -> None:
        async for message in websocket:
            heard.append(message.data)
            if len(heard) == 3:
                enough.set()

    async with _stream(serve, heartbeat=0.01):
        await asyncio.wait_for(enough.wait(), 60)
    assert set(heard) == {"{}"}


async def test_a_window_gathers_what_is_written() -> None:
    frames: list[bytes] = []
    arrived = asyncio.Event()

    async def serve(websocket: web.WebSocketResponse) -> None:
        async for message in websocket:
            frames.append(base64.b64decode(json.loads(message.data)["stdin"]["data"]))
            arrived.set()

    async with _stream(serve, window=1.0) as stream:
        for piece in (b"a", b"b", b"c"):
            stream.write(piece)
            await asyncio.sleep(0)
        await asyncio.wait_for(arrived.wait(), 60)
    assert frames == [b"abc"]


@pytest.mark.parametrize(
    ("frames", "said"),
    [
        (["no json"], "expected a frame of alloc exec from Nomad"),
        (["[1]"], "expected a frame of alloc exec from Nomad"),
        ([json.dumps({"stdout": {"data": "*"}})], "expected a frame of alloc exec from Nomad"),
        ([json.dumps({"exited": True, "result": {"exit_code": 3}})], "it ended with exit code 3"),
        (
            [_output(b"Traceback: no", "stderr"), json.dumps({"exited": True, "result": {"exit_code": 1}})],
            "exit code 1: Traceback: no",
        ),
        ([], "closed with code 1000"),
    ],
)
async def test_an_abnormal_end_reports_its_reason(frames: list[str], said: str) -> None:
    async def serve(websocket: web.WebSocketResponse) -> None:
        for frame in frames:
            await websocket.send_str(frame)
        await websocket.close()

    async with _stream(serve) as stream:
        with pytest.raises(ConnectionAbortedError, match=said):
            await asyncio.wait_for(stream.reader.readexactly(1), 60)
        # No writer waits for room that will never come.
        stream.write(bytes(1 << 20))
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(stream.drain(), 60)


async def test_what_an_agent_says_is_never_taken_for_the_engine_s_own_words() -> None:
    async def serve(websocket: web.WebSocketResponse) -> None:
        for said in (b"first", b"OCI runtime exec failed: not at all", b" and on"):
            await websocket.send_str(_output(said))
        await websocket.send_str('{"exited":true,"result":{}}')

    async with _stream(serve) as stream:
        wanted = b"firstOCI runtime exec failed: not at all and on"
        assert await asyncio.wait_for(stream.reader.readexactly(len(wanted)), 60) == wanted
        assert await stream.last_words() == ""


async def test_of_the_engine_s_own_words_the_end_is_kept() -> None:
    async def serve(websocket: web.WebSocketResponse) -> None:
        await websocket.send_str(_output(b"OCI runtime exec failed: "))
        for _ in range(100):
            await websocket.send_str(_output(bytes(30_000)))
        await websocket.send_str(_output(b" no such program"))
        await websocket.send_str('{"exited":true,"result":{"exit_code":127}}')

    async with _stream(serve) as stream:
        with pytest.raises(ConnectionAbortedError, match="no such program"):
            await asyncio.wait_for(stream.reader.readexactly(1), 60)
        assert len(await stream.last_words()) <= 8192


async def test_a_connection_that_ends_with_its_allocation_says_what_became_of_that() -> None:
    async def serve(websocket: web.WebSocketResponse) -> None:
        await websocket.close(code=1011, message=b"gone")

    async with _stream(serve, _loss_reason) as stream:
        with pytest.raises(ConnectionAbortedError, match="allocation 12 is complete"):
            await asyncio.wait_for(stream.reader.readexactly(1), 60)


async def test_a_program_without_input_is_waited_for_with_its_output() -> None:
    async def handle(request: web.Request) -> web.WebSocketResponse:
        websocket = web.WebSocketResponse()
        await websocket.prepare(request)
        assert json.loads((await websocket.receive()).data) == {"stdin": {"close": True}}
        await websocket.send_str(_output(b"out "))
        await websocket.send_str(_output(b"err", "stderr"))
        await websocket.send_str('{"exited":true,"result":{"exit_code":4}}')
        await websocket.close()
        return websocket

    app = web.Application()
    app.add_routes([web.get("/", handle)])
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with aiohttp.ClientSession() as session:
        websocket = await session.ws_connect(f"http://127.0.0.1:{runner.addresses[0][1]}/")
        assert await run(websocket, _nothing, timeout=60) == (4, "out err")
    await runner.cleanup()
