"""Tools that fail, hang or leak secrets, and closing while something hangs."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from external_tools import SECRET
from services_backends import BoundedBackend, local_backend
from services_executor import executor_on, plugins, terminal, until
from services_http import serve

from hermes_core.contracts.errors import BackendError
from hermes_core.discovery import PluginSettings, Registry, load_plugins
from hermes_testing.watching import TooSoon, with_more_time
from hermes_tool_services import SandboxToolBackend, ToolExecutor, ToolExecutorConfig, ToolServer
from hermes_tool_services.tool_server.client import ToolServerClient
from hermes_tool_services.tool_server.service import ToolServerService
from hermes_tools.agent_tools import Tool, ToolCall, ToolRegistry, ToolResult, ToolSchema

PLUGIN = Path(__file__).parent / "support" / "external_tools.py"
PARTS = ("hunter2", "abc123", "db.internal", ".netrc", "https://")


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load_plugins(PluginSettings().with_options([str(PLUGIN)]), environ={})


def call(name: str, query: str = "q") -> ToolCall:
    return ToolCall(name, {"query": query}, uniq_id="c1")


def assert_told(result: ToolResult, kind: str, log: pytest.LogCaptureFixture, name: str = "failing") -> None:
    """The model gets the tool's name and the exception's type, the log its text."""
    assert not result.success
    assert result.error is not None
    assert result.error.startswith(f"{name} failed: {kind} ")
    assert not any(part in str(result) for part in PARTS)
    assert SECRET in log.text
    assert f"tool {name} failed in call 'c1' of t1" in log.text


@pytest.mark.parametrize(("query", "kind"), [("secret", "ConnectionError"), ("ours", "ConfigError")])
async def test_what_an_external_tool_raises_is_the_logs_and_not_the_models(
    registry: Registry, query: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Tokens, addresses with passwords and paths of the host went into the prompt."""
    server = ToolServer(registry)
    assert_told(await server.execute(call("failing", query), "t1"), kind, caplog)
    await server.aclose()


class Leaky(Tool):
    """An environment's own tool with secrets in its exceptions."""

    def __init__(self, *, external: bool) -> None:
        self._external = external

    @property
    def schema(self) -> ToolSchema:
        return ToolSchema("leaky", "Fail.", {"query": {"type": "string"}}, [], external=self._external)

    async def execute(self, query: str = "", trajectory_id: str = "") -> ToolResult:
        raise PermissionError(SECRET)


@pytest.mark.parametrize("external", [True, False], ids=["external", "in this process"])
async def test_what_an_environments_own_tool_raises_is_the_logs_as_well(
    *, external: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tools = ToolRegistry()
    tools.register(Leaky(external=external))
    async with executor_on(local_backend(tmp_path), tools, tool_server_url="inprocess") as executor:
        assert_told(await executor.execute("t1", call("leaky")), "PermissionError", caplog, "leaky")


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Path]:
    """A file that the tool `slow` waits for; opened at the end, since a thread cannot be ended."""
    path = tmp_path / "gate"
    yield path
    path.touch()


async def test_a_tool_whose_threads_never_end_gets_no_more_of_them(registry: Registry, gate: Path) -> None:
    """Each call that timed out left another thread behind."""
    server = ToolServer(registry, max_concurrency=2)
    calls = [asyncio.ensure_future(server.execute(call("slow", str(gate)))) for _ in range(2)]
    await until(lambda: len(list(gate.parent.glob("gate.begun-*"))) == 2)
    for one in calls:  # the caller leaves, as on a timeout
        one.cancel()
    await asyncio.wait(calls)
    assert server.left_threads == {"slow": 2}
    refused = await server.execute(call("slow", str(gate)))
    assert refused.error == "slow was not run: 2 of its calls timed out and still run in their threads"
    assert server.left_threads == {"slow": 2}
    assert (await server.execute(call("plain"))).success
    gate.touch()
    await until(lambda: server.left_threads == {})
    assert (await server.execute(call("slow", str(gate)))).success
    await server.aclose()


# -- closing


class StuckSandboxes(BoundedBackend):
    """Its sandboxes are not closed before the gate is open."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner, places=4)
        self.gate = asyncio.Event()

    async def open(self, spec: Any) -> Any:
        sandbox: Any = await super().open(spec)
        end = sandbox.aclose

        async def slow() -> None:
            await self.gate.wait()
            await end()

        sandbox.aclose = slow
        return sandbox


class Closing:
    """Counts the objects of a class that began to be closed, and those that were."""

    def __init__(self, patch: pytest.MonkeyPatch, kind: type, method: str) -> None:
        self.begun = self.done = 0
        end = getattr(kind, method)

        async def count_and_end(one: Any) -> None:
            self.begun += 1
            await end(one)
            self.done += 1

        patch.setattr(kind, method, count_and_end)


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> Closing:
    """The clients of tool servers, with a session to close."""
    return Closing(monkeypatch, ToolServerClient, "aclose")


async def test_closing_closes_the_tool_servers_session_although_a_sandbox_hangs(
    registry: Registry, tmp_path: Path, clients: Closing
) -> None:
    """2.3 number 4: if one part hangs, the others are still closed, within the time limit."""

    async def attempt(seconds: float) -> None:
        clients.begun = clients.done = 0
        server = ToolServer(registry)
        backend = StuckSandboxes(local_backend(tmp_path))
        try:
            async with serve(ToolServerService(server).application()) as url:
                config = ToolExecutorConfig(tool_server_url=url, close_timeout_s=seconds)
                executor = ToolExecutor(backend, None, config, registry=plugins())
                await executor.start()
                await executor.execute("t1", terminal("true"))
                late = re.escape(f"1 of 1 trajectories were not released within {seconds:g} s")
                with pytest.raises(BackendError, match=late):
                    await asyncio.wait_for(executor.close(), 60 + seconds)
                TooSoon.unless(clients.done == clients.begun, "the session was being closed")
                assert clients.done == 1
                assert (await executor.execute("t2", terminal("true"))).error == "the executor is closed"
        finally:
            backend.gate.set()
            await until(lambda: backend.open_now == 0)
            await server.aclose()
            await backend.aclose()

    await with_more_time(attempt)


async def test_closing_does_not_wait_for_ever_for_a_tool_server(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = asyncio.Event()

    async def hang(_self: ToolServer) -> None:
        await gate.wait()

    async def attempt(seconds: float) -> None:
        backend = local_backend(tmp_path)
        config = ToolExecutorConfig(tool_server_url="inprocess", close_timeout_s=seconds)
        executor = ToolExecutor(backend, None, config, registry=registry)
        try:
            await executor.start()
            with monkeypatch.context() as patch:
                patch.setattr(ToolServer, "aclose", hang)
                others = Closing(patch, SandboxToolBackend, "stop")
                with pytest.raises(BackendError) as raised:
                    await asyncio.wait_for(executor.close(), 60 + seconds)
        finally:
            await backend.aclose()
        TooSoon.unless(others.done == others.begun, "the part that does not hang was being closed")
        assert f"1 parts of the executor were not closed within {seconds:g} s" in str(raised.value)

    await with_more_time(attempt)


async def test_closing_is_done_to_the_end_although_a_release_fails(
    registry: Registry, tmp_path: Path, clients: Closing
) -> None:
    class Broken(SandboxToolBackend):  # type: ignore[misc]  # final for everybody else
        async def release(self, slot: Any, *, reset_workspace: bool = False) -> None:
            await super().release(slot, reset_workspace=reset_workspace)
            raise BackendError("the engine does not answer")

    server = ToolServer(registry)
    inner = local_backend(tmp_path)
    backend = Broken(inner)
    await backend.start(plugins())
    async with serve(ToolServerService(server).application()) as url:
        executor = ToolExecutor(backend, None, ToolExecutorConfig(tool_server_url=url), registry=plugins())
        await executor.start()
        await executor.execute("t1", terminal("true"))
        with pytest.raises(BackendError, match="the engine does not answer"):
            await executor.close()
    assert clients.done == 1
    await server.aclose()
    await inner.aclose()


# -- hermes-agent's options without effect


@pytest.mark.parametrize(
    ("given", "noted"),
    [
        ({}, []),
        ({"batch_window_ms": 0}, []),
        ({"batch_window_ms": 20}, ["batch_window_ms: 20 has no effect"]),
        ({"batch_window_ms": 5, "max_batch_size": 7}, ["batch_window_ms: 5 has", "max_batch_size: 7 has"]),
    ],
)
def test_words_of_batches_are_noted_as_without_effect(
    given: dict[str, int], noted: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        ToolExecutorConfig(**given)
    assert len(caplog.messages) == len(noted)
    for message, words in zip(caplog.messages, noted, strict=True):
        assert words in message
        assert "remove it" in message
