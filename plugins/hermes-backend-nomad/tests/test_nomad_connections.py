"""How many connections to Nomad there are: its agent breaks off what one client has beyond a number."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from aiohttp import web
from pydantic import ValidationError

from hermes_backend_nomad.address import find_address
from hermes_backend_nomad.api import NomadApi
from hermes_backend_nomad.failures import NomadAnswerError, NomadConnectionsError
from hermes_backend_nomad.options import NomadOptions
from hermes_testing.watching import eventually

_CONNECTIONS = 20


class _Agent:
    """Answers requests when it is let, and keeps programs going; counts what is open."""

    def __init__(self) -> None:
        self.url = ""
        self.let = asyncio.Event()
        self.let.set()
        self.requests = self.most_requests = 0
        self.programs: set[web.WebSocketResponse] = set()
        self.refuses = False

    async def exec(self, request: web.Request) -> web.StreamResponse:
        if self.refuses:
            raise web.HTTPNotFound(text="alloc not found")
        websocket = web.WebSocketResponse()
        await websocket.prepare(request)
        self.programs.add(websocket)
        try:
            async for _ in websocket:
                pass
        finally:
            self.programs.discard(websocket)
        return websocket

    async def jobs(self, _request: web.Request) -> web.Response:
        self.requests += 1
        self.most_requests = max(self.most_requests, self.requests)
        await self.let.wait()
        self.requests -= 1
        return web.json_response([])


@pytest_asyncio.fixture
async def agent() -> AsyncIterator[_Agent]:
    made = _Agent()
    app = web.Application()
    app.add_routes([web.get("/v1/client/allocation/{id}/exec", made.exec), web.get("/v1/jobs", made.jobs)])
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


@pytest_asyncio.fixture
async def api(agent: _Agent) -> AsyncIterator[NomadApi]:
    address = find_address(NomadOptions(nomad_address=agent.url), {})
    made = NomadApi(address, timeout=30.0, max_connections=_CONNECTIONS)
    yield made
    await made.aclose()


async def test_one_program_too_many_is_said_before_nomad_breaks_it_off(agent: _Agent, api: NomadApi) -> None:
    open_ones = [await api.exec("a", "t", ["true"]) for _ in range(_CONNECTIONS - 8)]
    with pytest.raises(NomadConnectionsError, match="expected at most 12 programs at a time") as refused:
        await api.exec("a", "t", ["true"])
    assert "limits.http_max_conns_per_client" in str(refused.value.hint)
    assert "max_connections" in str(refused.value.hint)
    await open_ones.pop().close()
    open_ones.append(await api.exec("a", "t", ["true"]))
    assert len(agent.programs) >= _CONNECTIONS - 8
    for websocket in open_ones:
        await websocket.close()


async def test_requests_wait_for_one_another_and_for_no_program(agent: _Agent, api: NomadApi) -> None:
    open_ones = [await api.exec("a", "t", ["true"]) for _ in range(_CONNECTIONS - 8)]
    agent.let.clear()
    asked = [asyncio.create_task(api.jobs("")) for _ in range(50)]
    assert await eventually(lambda: agent.requests == 8)
    agent.let.set()
    assert await asyncio.gather(*asked) == [[]] * 50
    assert agent.most_requests == 8
    for websocket in open_ones:
        await websocket.close()


async def test_a_program_that_nomad_refuses_keeps_no_connection(agent: _Agent, api: NomadApi) -> None:
    agent.refuses = True
    for _ in range(3 * _CONNECTIONS):
        with pytest.raises(NomadAnswerError, match="404"):
            await api.exec("a", "t", ["true"])
    agent.refuses = False
    await (await api.exec("a", "t", ["true"])).close()


def test_more_containers_than_connections_are_refused_with_both_limits() -> None:
    assert NomadOptions(max_containers=88).max_connections == 100
    with pytest.raises(ValidationError, match="max_containers 89 is above 88") as refused:
        NomadOptions(max_containers=89)
    assert "http_max_conns_per_client" in str(refused.value)
    assert NomadOptions(max_containers=500, max_connections=512).max_containers == 500
