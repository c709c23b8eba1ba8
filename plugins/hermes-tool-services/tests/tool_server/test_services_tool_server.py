"""The tool server: tools with secrets outside the sandbox, in process and on a port."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from services_backends import local_backend
from services_http import ask, serve

from hermes_core.contracts.errors import ConfigError
from hermes_core.discovery import PluginSettings, Registry, load_plugins
from hermes_tool_services import ToolExecutor, ToolExecutorConfig, ToolServer
from hermes_tool_services.tool_server.client import ToolServerClient
from hermes_tool_services.tool_server.service import ToolServerService
from hermes_tools.agent_tools import Tool, ToolCall, ToolRegistry, ToolResult, ToolSchema

TOKEN = "secret-of-the-test"
PLUGIN = Path(__file__).parents[1] / "support" / "external_tools.py"


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load_plugins(PluginSettings().with_options([str(PLUGIN)]), environ={})


@pytest.fixture
async def server(registry: Registry) -> AsyncIterator[ToolServer]:
    made = ToolServer(registry)
    yield made
    await made.aclose()


@pytest.fixture
async def url(server: ToolServer) -> AsyncIterator[str]:
    async with serve(ToolServerService(server, token=TOKEN).application()) as address:
        yield address


def call(name: str, query: str = "q", **arguments: Any) -> ToolCall:
    return ToolCall(name, {"query": query, **arguments}, uniq_id="c1")


def body(name: str, query: str = "q", **more: Any) -> dict[str, Any]:
    return {"tool": {"name": name, "arguments": {"query": query}}, **more}


async def test_only_external_tools_that_can_be_used_are_served(server: ToolServer) -> None:
    assert [spec.name for spec in server.specs] == ["echo", "failing", "plain", "slow"]
    assert "A_KEY_THAT_IS_NOT_SET" in server.unavailable["without_key"]
    result = await server.execute(call("without_key"))
    assert "A_KEY_THAT_IS_NOT_SET" in str(result.error)
    assert (await server.execute(call("inside"))).error == "Unknown tool: inside"


async def test_a_tool_gets_the_facts_about_its_caller_that_it_has_parameters_for(server: ToolServer) -> None:
    told = await server.execute(call("echo"), "t1", slot_id="slot_3", container_addr="c", task_id="x")
    assert (told.success, told.output, told.uniq_id) == (True, "q/t1/slot_3/t1", "c1")
    assert (await server.execute(call("plain"), "t1", slot_id="slot_3")).output == "q"


async def test_a_model_cannot_pass_for_another_trajectory(server: ToolServer) -> None:
    told = await server.execute(call("echo", trajectory_id="else", slot_id="else", allow_network=True), "t1")
    assert told.output == "q/t1//t1"


async def test_what_a_tool_does_wrong_is_an_answer(server: ToolServer) -> None:
    for query, says in (
        ("x", "failing failed: RuntimeError"),
        ("exit", "SystemExit"),
        ("nothing", "to return ToolResult"),
    ):
        result = await server.execute(call("failing", query))
        assert not result.success
        assert says in str(result.error)
    assert (await server.execute(call("failing", "error"))).error == "the tool says no"
    missing = await server.execute(ToolCall("plain", {}))
    assert "query" in str(missing.error)
    assert (server.stats.total_requests, server.stats.total_errors) == (5, 5)


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Path]:
    """A file that the tool `slow` waits for; opened at the end, since a thread cannot be ended."""
    path = tmp_path / "gate"
    yield path
    path.touch()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


async def test_a_synchronous_tool_does_not_hold_the_others_up(server: ToolServer, gate: Path) -> None:  # 2.3 number 24
    slow = asyncio.ensure_future(server.execute(call("slow", str(gate))))
    await until(lambda: server.running == 1)
    for _ in range(20):
        assert (await server.execute(call("plain"))).success
    assert not slow.done()
    gate.touch()
    assert (await slow).output == "hermes-worker"


async def test_the_servers_timeout_holds_for_a_tool_that_blocks(server: ToolServer, gate: Path) -> None:  # number 24
    result = await server.execute(call("slow", str(gate)), timeout=1)
    assert (result.error, result.metadata["timeout"]) == ("slow timed out after 1s", True)


async def test_a_limited_number_of_calls_runs_at_a_time(registry: Registry, gate: Path) -> None:
    server = ToolServer(registry, max_concurrency=2)
    calls = [asyncio.ensure_future(server.execute(call("slow", str(gate)))) for _ in range(5)]
    await until(lambda: server.running == 2)
    busy = await server.execute(call("plain"), timeout=1)
    assert "busy for 1s (2 calls at a time); plain was not run" in str(busy.error)
    assert server.running == 2
    gate.touch()
    assert all(one.success for one in await asyncio.gather(*calls))
    await server.aclose()


def test_a_concurrency_of_zero_is_refused(registry: Registry) -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        ToolServer(registry, max_concurrency=0)


# -- on a port


async def test_the_routes_are_hermes_agents(url: str) -> None:
    assert (await ask("GET", f"{url}/"))[1]["status"] == "running"
    assert (await ask("GET", f"{url}/health"))[1] == {"status": "healthy"}
    _, listed = await ask("GET", f"{url}/tools", token=TOKEN)
    assert [tool["function"]["name"] for tool in listed["tools"]] == ["echo", "failing", "plain", "slow"]
    status, answer = await ask("POST", f"{url}/execute", token=TOKEN, json=body("echo", trajectory_id="t1"))
    assert (status, answer["success"], answer["output"]) == (200, True, "q/t1//t1")


async def test_errors_of_tools_are_answered_with_200(url: str) -> None:
    for name in ("failing", "no_such_tool"):
        status, answer = await ask("POST", f"{url}/execute", token=TOKEN, json=body(name))
        assert (status, answer["success"]) == (200, False)
        assert answer["error"]


@pytest.mark.parametrize(
    "said", ['{"success": true, "output": "x", "metadata": [1]}', "[" * 100_000], ids=["metadata", "depth"]
)
async def test_an_answer_that_only_looks_like_a_result_is_the_output(url: str, said: str) -> None:
    """A tool may return any JSON, which once made the service itself fail."""
    status, answer = await ask("POST", f"{url}/execute", token=TOKEN, json=body("plain", said))
    assert (status, answer["success"], answer["output"], answer["metadata"]) == (200, True, said, {})


@pytest.mark.parametrize("path", ["/tools", "/openapi.json"])
@pytest.mark.parametrize(("token", "status"), [(None, 401), ("wrong", 403), (TOKEN, 200)])
async def test_the_token_is_required(url: str, path: str, token: str | None, status: int) -> None:
    assert (await ask("GET", url + path, token=token))[0] == status


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"{", 400),
        (b'{"tool": {"name": "plain"}, "more": 1}', 422),
        (b'{"tool": {"name": "plain"}, "slot_id": 3}', 422),
    ],
)
async def test_a_bad_body_is_answered(url: str, data: bytes, status: int) -> None:
    found, answer = await ask("POST", f"{url}/execute", token=TOKEN, data=data)
    assert (found, answer["success"]) == (status, False)


async def test_the_openapi_document_describes_every_route_and_tool(url: str) -> None:
    _, document = await ask("GET", f"{url}/openapi.json", token=TOKEN)
    assert document["openapi"].startswith("3.")
    assert set(document["paths"]) == {"/", "/health", "/tools", "/execute"}
    assert document["components"]["schemas"]["arguments_of_echo"]["required"] == ["query"]
    assert document["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    named = [one["$ref"] for one in _dictionaries(document) if "$ref" in one]
    assert named
    for reference in named:
        assert reference.removeprefix("#/components/schemas/") in document["components"]["schemas"]


def _dictionaries(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, dict):
        return [value, *(inner for item in value.values() for inner in _dictionaries(item))]
    return [inner for item in value for inner in _dictionaries(item)] if isinstance(value, list) else []


async def test_a_client_that_hangs_up_frees_its_place(server: ToolServer, url: str, gate: Path) -> None:
    waiting = asyncio.ensure_future(ask("POST", f"{url}/execute", token=TOKEN, json=body("slow", str(gate))))
    await until(lambda: server.running == 1)
    waiting.cancel()
    await asyncio.wait((waiting,))
    await until(lambda: server.running == 0)


# -- with an executor


async def test_an_executor_offers_and_runs_the_tools_of_a_server(
    registry: Registry, url: str, gate: Path, tmp_path: Path
) -> None:
    backend = local_backend(tmp_path)
    config = ToolExecutorConfig(tool_server_url=url, tool_server_token=TOKEN)
    async with ToolExecutor(backend, config=config, registry=registry) as executor:
        assert {"echo", "terminal"} <= {schema.name for schema in executor.schemas()}
        assert (await executor.execute("t1", call("echo"))).output == "q/t1//t1"
        await executor.execute("t1", ToolCall("terminal", {"command": "true"}))
        assert (await executor.execute("t1", call("echo"))).output == "q/t1/slot_0/t1"
        late = await executor.execute("t1", call("slow", str(gate)), timeout_s=1)
        assert late.error == "slow timed out after 1s"
    await backend.aclose()


async def test_an_executor_runs_plugins_external_tools_in_process(registry: Registry, tmp_path: Path) -> None:
    backend = local_backend(tmp_path)
    config = ToolExecutorConfig(tool_server_url="inprocess")
    async with ToolExecutor(backend, config=config, registry=registry) as executor:
        assert "echo" in {schema.name for schema in executor.schemas()}
        assert (await executor.execute("t1", call("echo"))).output == "q/t1//t1"
        assert executor.status()["sandboxes"] == 0
    async with ToolExecutor(backend, registry=registry) as executor:
        assert "echo" not in {schema.name for schema in executor.schemas()}
    await backend.aclose()


async def test_no_tool_server_at_the_address_stops_the_start(registry: Registry, tmp_path: Path) -> None:
    backend = local_backend(tmp_path)
    config = ToolExecutorConfig(tool_server_url="http://127.0.0.1:1")
    with pytest.raises(ConfigError, match="expected a tool server at http://127"):
        await ToolExecutor(backend, config=config, registry=registry).start()
    await backend.aclose()


async def test_the_cores_own_client_speaks_to_it(url: str) -> None:
    client = ToolServerClient(url, TOKEN)
    tools = await client.tools()
    assert [tool.schema.name for tool in tools] == ["echo", "failing", "plain", "slow"]
    assert all(tool.schema.external for tool in tools)
    assert (await client.execute(call("echo"), "t7", slot_id="slot_1")).output == "q/t7/slot_1/t7"
    await client.aclose()


class Secretive(Tool):
    """An environment's own external tool with a synchronous body."""

    @property
    def schema(self) -> ToolSchema:
        return ToolSchema("secretive", "Keep a secret.", {"x": {"type": "integer"}}, ["x"], external=True)

    def execute(self, x: int, task_id: str = "") -> Any:  # type: ignore[override]  # what environments write
        return ToolResult(success=True, output=json.dumps([x, task_id]))


async def test_an_environments_own_synchronous_tool_is_served(registry: Registry) -> None:
    tools = ToolRegistry()
    tools.register(Secretive())
    server = ToolServer(registry, tools)
    assert (await server.execute(ToolCall("secretive", {"x": "4"}), task_id="k")).output == '[4, "k"]'
    await server.aclose()
