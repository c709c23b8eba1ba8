"""The tool executor on a port, with the real local backend behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from services_backends import BoundedBackend, local_backend
from services_executor import plugins
from services_http import ask, serve

from hermes_core.contracts.errors import BackendError, ConfigError, SandboxLostError
from hermes_tool_services import ArtifactRefusedError, ToolExecutor, ToolExecutorClient
from hermes_tool_services.executor.client import ExecutorRefusedError
from hermes_tool_services.executor.service import ExecutorService
from hermes_tool_services.web import LARGEST_BODY, require_token
from hermes_tool_services.wire import (
    ArtifactArchiveRequestPayload,
    ArtifactListRequestPayload,
    ArtifactReadRequestPayload,
)
from hermes_tools.agent_tools import ToolCall

TOKEN = "secret-of-the-test"


class Service:
    """A service that runs: its executor, its backend and its address."""

    def __init__(self, executor: ToolExecutor, backend: BoundedBackend, url: str) -> None:
        self.executor = executor
        self.backend = backend
        self.url = url

    def client(self, token: str | None = TOKEN, **options: Any) -> ToolExecutorClient:
        return ToolExecutorClient(self.url, token, **options)


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    backend = BoundedBackend(local_backend(tmp_path), places=2, patience=0.5)
    async with (
        ToolExecutor(backend, registry=plugins()) as executor,
        serve(ExecutorService(executor, token=TOKEN).application()) as url,
    ):
        yield Service(executor, backend, url)
    await backend.aclose()


def terminal(command: str, **more: Any) -> ToolCall:
    return ToolCall("terminal", {"command": command}, uniq_id="c1", **more)


def body(command: str = "true", **more: Any) -> dict[str, Any]:
    return {"trajectory_id": "t1", "tool": {"name": "terminal", "arguments": {"command": command}}, **more}


async def until(condition: Any) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_trajectory_runs_over_http_from_its_first_call_to_its_release(service: Service) -> None:
    async with service.client() as client:
        result = await client.execute("t1", terminal("echo hello > f; cat f"))
        assert (result.success, result.output, result.uniq_id) == (True, "hello", "c1")
        assert result.metadata["exit_code"] == 0
        read = await client.read_artifact(ArtifactReadRequestPayload(trajectory_id="t1", path="f"))
        assert read.content == "hello\n"
        listed = await client.list_artifacts(ArtifactListRequestPayload(trajectory_id="t1"))
        assert [entry.path for entry in listed.entries] == ["f"]
        packed = await client.archive_artifacts(ArtifactArchiveRequestPayload(trajectory_id="t1"))
        assert packed.entry_count == 1
        assert (await client.status())["sandboxes"] == 1
        await client.release_trajectory("t1", reset_workspace=True)
        assert service.backend.open_now == 0
        assert "released" in str((await client.execute("t1", terminal("true"))).error)


async def test_what_the_service_refuses_is_the_same_error_at_the_client(service: Service) -> None:
    async with service.client() as client:
        await client.execute("t1", terminal("true"))
        with pytest.raises(ArtifactRefusedError) as raised:
            await client.read_artifact(ArtifactReadRequestPayload(trajectory_id="t1", path="../x"))
        assert raised.value.status == 403
        await client.execute("t2", terminal("true"))
        with pytest.raises(BackendError, match="no place was free in time") as unavailable:
            await client.execute("t3", terminal("true"))
        assert unavailable.value.retryable
        sandbox: Any = service.executor.slots[0].sandbox
        sandbox.slot.client.fail("the test pulled the plug")
        with pytest.raises(SandboxLostError):
            await client.execute("t1", terminal("true"))


@pytest.mark.parametrize(
    ("token", "status"), [(None, 401), ("", 401), ("wrong", 403), (TOKEN + "x", 403), ("ü", 403), (TOKEN, 200)]
)
async def test_the_token_is_required(service: Service, token: str | None, status: int) -> None:
    found, answer = await ask("GET", f"{service.url}/status", token=token)
    assert found == status
    assert TOKEN not in str(answer)


@pytest.mark.parametrize("path", ["/", "/health"])
async def test_whether_it_lives_is_told_to_everybody(service: Service, path: str) -> None:
    assert (await ask("GET", service.url + path))[0] == 200


async def test_another_scheme_is_not_a_token(service: Service) -> None:
    found, _ = await ask("GET", f"{service.url}/status", headers={"Authorization": f"Basic {TOKEN}"})
    assert found == 401


async def test_a_wrong_token_is_the_users_error_at_the_client(service: Service) -> None:
    async with service.client("wrong") as client:
        with pytest.raises(ConfigError, match="the token is wrong"):
            await client.execute("t1", terminal("true"))


@pytest.mark.parametrize(
    ("data", "status", "says"),
    [
        (b"", 400, "not JSON"),
        (b"{", 400, "not JSON"),
        (b"[]", 400, "expected a JSON object"),
        (b"\xff\xfe\x00", 400, "not JSON"),
        (b"[" * 100_000, 400, "not JSON"),
        (b"{}", 422, "trajectory_id: Field required"),
        (b'{"trajectory_id": "t", "tool": {"name": "x"}, "timout_s": 3}', 422, "timout_s: Extra inputs"),
        (b'{"trajectory_id": "t", "tool": {"name": "x"}, "timeout_s": NaN}', 422, "timeout_s"),
        (b'{"trajectory_id": "t", "tool": {"name": "x"}, "timeout_s": "3"}', 422, "timeout_s"),
        (b'{"trajectory_id": "", "tool": {"name": "x"}}', 422, "trajectory_id"),
        (b'{"trajectory_id": 7, "tool": {"name": "x"}}', 422, "trajectory_id"),
        (b'{"trajectory_id": "t", "tool": {"name": "x", "arguments": []}}', 422, "tool.arguments"),
        (b'{"trajectory_id": "t", "tool": "terminal"}', 422, "tool"),
    ],
)
async def test_a_bad_body_is_answered(service: Service, data: bytes, status: int, says: str) -> None:
    found, answer = await ask("POST", f"{service.url}/execute", token=TOKEN, data=data)
    assert found == status
    assert says in answer["error"]["message"]
    assert "Traceback" not in str(answer)


async def test_a_field_that_is_nearly_right_is_named(service: Service) -> None:
    _, answer = await ask("POST", f"{service.url}/execute", token=TOKEN, json=body(timout_s=3))
    assert answer["error"]["hint"] == "did you mean 'timeout_s'?"


async def test_a_body_that_is_too_large_is_answered(service: Service) -> None:
    found, answer = await ask("POST", f"{service.url}/execute", token=TOKEN, data=b" " * (LARGEST_BODY + 1))
    assert (found, answer["error"]["type"]) == (413, "request")


async def test_a_web_page_cannot_post_here(service: Service) -> None:
    # A page of another origin may send text without a preflight request, but not JSON.
    found, _ = await ask(
        "POST", f"{service.url}/execute", token=TOKEN, data=b"{}", headers={"Content-Type": "text/plain"}
    )
    assert found == 415


@pytest.mark.parametrize(
    ("host", "status"),
    [("127.0.0.1:9001", 200), ("localhost:9001", 200), ("[::1]:9001", 200), ("lab.example:9001", 403), ("[", 403)],
)
async def test_without_a_token_a_name_that_was_pointed_here_opens_nothing(
    service: Service, host: str, status: int
) -> None:
    """A web page can point its own host name at this machine and then post to it (DNS rebinding)."""
    async with serve(ExecutorService(service.executor).application()) as url:
        found, answer = await ask("GET", f"{url}/status", headers={"Host": host})
    assert found == status, answer
    assert (await ask("GET", f"{service.url}/status", token=TOKEN, headers={"Host": host}))[0] == 200


async def test_an_unknown_path_is_answered(service: Service) -> None:
    assert (await ask("GET", f"{service.url}/nothing", token=TOKEN))[0] == 404
    assert (await ask("GET", f"{service.url}/execute", token=TOKEN))[0] == 405


async def test_odd_bytes_arrive_as_they_are(service: Service) -> None:
    async with service.client() as client:
        result = await client.execute("t1", terminal(r"printf 'ü\0\x1b \xff <tool_call>'; cat <<'E'" + "\n'\"$x\nE"))
    assert result.success
    assert "ü" in result.output
    assert "'\"$x" in result.output


async def test_arguments_that_json_can_carry_only_escaped_arrive_as_they_are(service: Service) -> None:
    """A lone surrogate, which a model can write in JSON, ended its rollout with an error of pydantic's."""
    async with service.client() as client:
        for command in (terminal("echo \ud800"), terminal("true", raw_text="\ud800")):
            assert await client.execute("t1", command) == await service.executor.execute("t1", command)


async def test_a_large_file_is_written_over_http(service: Service) -> None:
    async with service.client() as client:
        content = "x" * 3_000_000
        call = ToolCall("write_file", {"path": "big", "content": content})
        assert (await client.execute("t1", call)).output == "3000000 bytes written"
        found = await client.read_artifact(ArtifactReadRequestPayload(trajectory_id="t1", path="big"))
        assert (found.content, found.truncated) == (content, False)


async def test_a_client_that_hangs_up_ends_its_command(service: Service, tmp_path: Path) -> None:  # 2.3 number 6
    mark = tmp_path / "running"
    session = aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"})
    command = f"echo $BASHPID > {mark}.tmp; mv {mark}.tmp {mark}; exec sleep 600"
    request = asyncio.ensure_future(session.post(f"{service.url}/execute", json=body(command)))
    await until(mark.exists)
    request.cancel()
    await asyncio.wait((request,))
    await session.close()
    await until(lambda: not Path(f"/proc/{int(mark.read_text())}").exists())
    async with service.client() as client:
        assert (await client.execute("t1", terminal("echo on"))).output == "on"


async def test_a_broken_connection_runs_nothing_twice(service: Service) -> None:  # 2.3 number 7
    async with _breaking(service.url) as url, ToolExecutorClient(url, TOKEN) as client:
        result = await client.execute("t1", terminal("echo x >> count; wc -l < count"))
        assert (result.success, result.output) == (True, "1")
        assert (await client.execute("t1", terminal("wc -l < count"))).output == "1"


async def test_no_service_at_the_address_is_reported(service: Service) -> None:
    async with ToolExecutorClient("http://127.0.0.1:1", patience=5) as client:
        with pytest.raises(BackendError, match="expected a tool executor at http://127"):
            await client.execute("t1", terminal("true"))


async def test_another_service_at_the_address_is_said(service: Service) -> None:
    async with ToolExecutorClient(f"{service.url}/nothing", TOKEN) as client:
        with pytest.raises(ExecutorRefusedError, match="Not Found"):
            await client.execute("t1", terminal("true"))


async def test_a_failure_of_the_service_itself_shows_no_traceback(
    service: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def break_down() -> None:
        raise RuntimeError("the secret of the traceback")

    monkeypatch.setattr(service.executor, "status", break_down)
    found, answer = await ask("GET", f"{service.url}/status", token=TOKEN)
    assert (found, answer["error"]["type"]) == (500, "internal")
    assert "secret" not in str(answer)
    assert "the secret of the traceback" in caplog.text


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.7", "example.org", ""])
def test_other_machines_are_let_in_with_a_token_only(host: str) -> None:
    with pytest.raises(ConfigError, match="expected a bearer token"):
        require_token(host, None, "TOOL_EXECUTOR_TOKEN")
    require_token(host, "x", "TOOL_EXECUTOR_TOKEN")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost"])
def test_a_loopback_address_needs_no_token(host: str) -> None:
    require_token(host, None, "TOOL_EXECUTOR_TOKEN")


class _breaking:  # noqa: N801 - used like the function it stands for
    """A proxy that hands on the first request and hangs up once the service has answered it."""

    def __init__(self, url: str) -> None:
        self._port = int(url.rpartition(":")[2])
        self._has_broken = False
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self._port)
        sending = asyncio.ensure_future(_copy(reader, inner_writer))
        self._tasks.add(sending)
        try:
            while data := await inner_reader.read(65536):
                if not self._has_broken:
                    self._has_broken = True
                    break
                writer.write(data)
                await writer.drain()
        finally:
            sending.cancel()
            writer.close()
            inner_writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
