"""The subcommands `tool-executor serve` and `tool-server serve`, and what they read from the environment."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from services_http import ask

from hermes_core.cli import main
from hermes_core.contracts.errors import ConfigError
from hermes_sandbox import LeaseBook
from hermes_tool_services import ToolExecutorClient
from hermes_tool_services.settings import executor_settings, positive
from hermes_tools.agent_tools import ToolCall

PLUGIN = Path(__file__).parent / "support" / "external_tools.py"


@asynccontextmanager
async def running(*arguments: str, **environment: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """Start `hermes-core` in a separate process and wait until it listens."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "hermes_core.cli",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **environment},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        line = (await process.stdout.readline()).decode()
        assert line.startswith("listening on "), (await process.stderr.read()).decode()
        yield process, line.split()[-1]
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_the_executor_serves_until_a_signal_and_leaves_nothing(tmp_path: Path) -> None:
    leases = tmp_path / "leases"
    arguments = ("tool-executor", "serve", "--port", "0", "--lease-dir", str(leases), "--purge")
    async with running(*arguments, TOOL_EXECUTOR_TOKEN="s3cret") as (process, url):
        assert (await ask("GET", f"{url}/status"))[0] == 401
        async with ToolExecutorClient(url, "s3cret") as client:
            pid = int((await client.execute("t1", ToolCall("terminal", {"command": "echo $$; touch f"}))).output)
            busy = asyncio.ensure_future(client.execute("t1", ToolCall("terminal", {"command": "sleep 600"})))
            while (await client.status())["running"] < 1:
                await asyncio.sleep(0.02)
            assert len(LeaseBook(leases).read()[0]) == 1
            process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(process.wait(), 60) == 0
            await asyncio.wait((busy,))
            busy.exception()
    assert LeaseBook(leases).read() == ([], [])
    assert not Path(f"/proc/{pid}").exists()


async def test_what_a_killed_executor_leaves_is_found_and_removed(tmp_path: Path) -> None:
    leases = tmp_path / "leases"
    arguments = ("tool-executor", "serve", "--port", "0", "--lease-dir", str(leases), "--idle-timeout", "600")
    # A separate folder for temporary files: leftovers in /tmp belong to other tests.
    variables = {"TOOL_EXECUTOR_TOKEN": "s3cret", "TMPDIR": str(tmp_path)}
    async with running(*arguments, **variables) as (process, url):
        async with ToolExecutorClient(url, "s3cret") as client:
            answer = await client.execute("t1", ToolCall("terminal", {"command": "pwd"}))
        process.kill()
        await process.wait()
    assert len(LeaseBook(leases).read()[0]) == 1
    collecting = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hermes_core.cli", "sandboxes", "gc", "--lease-dir", str(leases)),
        env={**os.environ, **variables},
    )
    assert await asyncio.wait_for(collecting.wait(), 60) == 0
    assert LeaseBook(leases).read() == ([], [])
    assert not Path(answer.output).exists()


async def test_the_tool_server_serves_until_a_signal(tmp_path: Path) -> None:
    arguments = ("-p", str(PLUGIN), "tool-server", "serve", "--port", "0")
    async with running(*arguments, TOOL_SERVER_TOKEN="s3cret", TOOL_SERVER_MAX_CONCURRENCY="2") as (process, url):
        assert (await ask("GET", f"{url}/tools", token="wrong"))[0] == 403
        request = {"tool": {"name": "echo", "arguments": {"query": "q"}}, "trajectory_id": "t1"}
        _, answer = await ask("POST", f"{url}/execute", token="s3cret", json=request)
        assert answer["output"] == "q/t1//t1"
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 60) == 0


@pytest.mark.parametrize("command", ["tool-executor", "tool-server"])
def test_other_machines_are_not_let_in_without_a_token(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOOL_EXECUTOR_TOKEN", raising=False)
    monkeypatch.delenv("TOOL_SERVER_TOKEN", raising=False)
    assert main([command, "serve", "--host", "0.0.0.0"]) == 2
    said = capsys.readouterr().err
    assert "expected a bearer token to listen on 0.0.0.0" in said
    assert "export TOOL_" in said


def test_a_backend_that_is_not_there_is_the_users_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tool-executor", "serve", "--backend", "lokal"]) == 2
    assert "local" in capsys.readouterr().err


def test_a_port_that_is_taken_is_the_users_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tool-server", "serve", "--port", "70000"]) == 2
    assert "cannot listen on 127.0.0.1:70000" in capsys.readouterr().err


def test_hermes_agents_variables_select_nomad() -> None:
    settings = executor_settings(
        {
            "TOOL_EXECUTOR_NOMAD_ADDRESS": "http://nomad:4646",
            "TOOL_EXECUTOR_JOB_ID": "job",
            "TOOL_EXECUTOR_IMAGE": "image:1",
            "TOOL_EXECUTOR_SLOTS": "5",
            "TOOL_EXECUTOR_MIN_CONTAINERS": "2",
            "TOOL_EXECUTOR_MAX_CONTAINERS": "7",
            "TOOL_EXECUTOR_PRIVILEGED": "true",
            "TOOL_EXECUTOR_ACQUIRE_TIMEOUT_S": "12.5",
            "TOOL_EXECUTOR_PURGE_JOB_ON_SHUTDOWN": "0",
            "TOOL_EXECUTOR_BATCH_WINDOW_MS": "10",
            "TOOL_EXECUTOR_MAX_BATCH_SIZE": "20",
            "TOOL_EXECUTOR_ALLOW_NETWORK": "false",
            "TOOL_EXECUTOR_TOOL_SERVER_URL": "http://tools:9002",
            "TOOL_EXECUTOR_TOOL_SERVER_TOKEN": "t",
            "TOOL_EXECUTOR_TOKEN": "own",
            "UNRELATED": "x",
        }
    )
    assert (settings.backend.name, dict(settings.backend.options)) == (
        "nomad",
        {
            "nomad_address": "http://nomad:4646",
            "sandbox_job_id": "job",
            "sandbox_image": "image:1",
            "slots_per_container": 5,
            "min_containers": 2,
            "max_containers": 7,
            "privileged": True,
            "acquire_timeout_s": 12.5,
            "purge_job_on_shutdown": False,
        },
    )
    config = settings.config
    assert (config.batch_window_ms, config.max_batch_size, config.allow_network) == (10, 20, False)
    assert (config.tool_server_url, config.tool_server_token, settings.token) == ("http://tools:9002", "t", "own")


def test_without_them_it_is_this_machine() -> None:
    settings = executor_settings({"TOOL_EXECUTOR_IMAGE": "python:3.12"}, sandbox='{"pids": 64}')
    assert (settings.backend.name, settings.spec.image, settings.spec.pids) == ("local", "python:3.12", 64)


@pytest.mark.parametrize(
    ("environ", "options", "says"),
    [
        ({"TOOL_EXECUTOR_SLOTS": "many"}, {}, "TOOL_EXECUTOR_SLOTS: expected a whole number, got 'many'"),
        ({"TOOL_EXECUTOR_ACQUIRE_TIMEOUT_S": "x"}, {}, "TOOL_EXECUTOR_ACQUIRE_TIMEOUT_S: expected a number, got 'x'"),
        ({"TOOL_EXECUTOR_ALLOW_NETWORK": "perhaps"}, {}, "expected true or false"),
        ({"TOOL_EXECUTOR_ADDRES": "x"}, {}, "no variable TOOL_EXECUTOR_ADDRES"),
        ({"TOOL_EXECUTOR_SLOT": "3"}, {}, "did you mean TOOL_EXECUTOR_SLOTS?"),
        ({"TOOL_EXECUTOR_SLOTS": "3"}, {"backend": "docker"}, "contradict each other"),
        ({"TOOL_EXECUTOR_MAX_BATCH_SIZE": "0"}, {}, "max_batch_size"),
        ({}, {"backend_options": "[]"}, "expected a JSON object"),
        ({}, {"backend_options": "{"}, "expected a JSON object"),
        ({}, {"sandbox": '{"memory": 3}'}, "did you mean 'memory_mb'?"),
        ({}, {"sandbox": '{"pids": "x"}'}, "pids"),
    ],
)
def test_a_wrong_setting_names_itself(environ: dict[str, str], options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        executor_settings(environ, **options)
    assert says in str(raised.value)


def test_an_invalid_number_of_calls_is_refused() -> None:
    assert positive({}, "TOOL_SERVER_MAX_CONCURRENCY", 16) == 16
    assert positive({"TOOL_SERVER_MAX_CONCURRENCY": "4"}, "TOOL_SERVER_MAX_CONCURRENCY", 16) == 4
    for text in ("0", "-1", "x", "1.5"):
        with pytest.raises(ConfigError, match="above 0"):
            positive({"TOOL_SERVER_MAX_CONCURRENCY": text}, "TOOL_SERVER_MAX_CONCURRENCY", 16)
