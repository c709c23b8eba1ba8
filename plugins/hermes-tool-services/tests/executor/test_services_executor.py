"""`ToolExecutor` on the real local backend."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from services_backends import local_backend
from services_executor import executor_on, plugins, terminal

from hermes_core.contracts.errors import SandboxRefusedError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_testing.watching import TooSoon, with_more_time
from hermes_tool_services import SandboxToolBackend, ToolExecutor, ToolExecutorConfig
from hermes_tool_services.policy import Policy, timeout_of
from hermes_tools.agent_tools import Tool, ToolCall, ToolRegistry, ToolResult, ToolSchema, build_tool_registry


@pytest.fixture
async def executor(tmp_path: Path) -> AsyncIterator[ToolExecutor]:
    async with executor_on(local_backend(tmp_path)) as made:
        yield made


# -- what a call answers


async def test_a_command_answers_its_output_under_the_calls_own_id(executor: ToolExecutor) -> None:
    result = await executor.execute("t1", terminal("echo hello"))
    assert (result.success, result.output, result.error, result.uniq_id) == (True, "hello", None, "call_1")
    assert result.metadata["exit_code"] == 0
    assert result.metadata["sandboxed"] is False


async def test_a_failed_command_says_its_exit_code(executor: ToolExecutor) -> None:
    result = await executor.execute("t1", terminal("echo out; exit 3"))
    assert (result.success, result.output, result.error) == (False, "out", "Exit code: 3")
    assert result.metadata["exit_code"] == 3


async def test_a_commands_output_is_both_streams_in_the_order_of_their_writes(executor: ToolExecutor) -> None:
    result = await executor.execute("t1", terminal("for i in {1..300}; do echo o$i; echo e$i >&2; done"))
    assert result.output.split() == [f"{stream}{number}" for number in range(1, 301) for stream in "oe"]


async def test_a_command_that_could_start_no_process_gets_the_sandboxs_limit_in_its_error(tmp_path: Path) -> None:
    backend = SandboxToolBackend(local_backend(tmp_path), owns_backend=True)
    await backend.start()
    slot = await backend.acquire("t1")
    failed = await backend.execute(slot, "terminal", {"command": "echo 'sh: 0: Cannot fork'; exit 2"})
    fine = await backend.execute(slot, "terminal", {"command": "echo 'sh: 0: Cannot fork'"})
    limit = slot.sandbox.provenance["limits"]["pids"]
    await backend.stop()
    # Root without control groups has no limit.
    assert (limit in failed.metadata.get("note", "")) is limit[:1].isdecimal()
    assert "note" not in fine.metadata


async def test_hermes_agents_names_of_the_tools_inside_work_too(executor: ToolExecutor) -> None:
    assert (await executor.execute("t1", ToolCall("bash", {"command": "echo hi"}))).output == "hi"


async def test_every_trajectory_has_a_workspace_of_its_own(executor: ToolExecutor) -> None:
    await executor.execute("a", terminal("echo a > mine.txt"))
    assert (await executor.execute("b", terminal("ls"))).output == ""
    assert (await executor.execute("a", terminal("cat mine.txt"))).output == "a"


async def test_an_unknown_tool_is_an_answer(executor: ToolExecutor) -> None:
    result = await executor.execute("t1", ToolCall("no_such_tool", {}))
    assert (result.success, result.error) == (False, "Unknown tool: no_such_tool")


async def test_background_commands_are_refused_as_they_were(executor: ToolExecutor) -> None:
    result = await executor.execute("t1", terminal("sleep 100", background=True))
    assert result.error == "terminal background execution is not supported in sandbox"


async def test_arguments_that_are_wrong_are_an_answer(executor: ToolExecutor) -> None:
    missing = await executor.execute("t1", ToolCall("terminal", {}))
    assert not missing.success
    assert "command" in str(missing.error)
    nul = await executor.execute("t1", terminal("echo \0"))
    assert not nul.success
    assert "NUL" in str(nul.error)


async def test_files_are_read_and_written_whole_and_without_line_numbers(executor: ToolExecutor) -> None:
    written = await executor.execute("t1", ToolCall("write_file", {"path": "a/b.txt", "content": "one\ntwo\n"}))
    assert written.success
    read = await executor.execute("t1", ToolCall("read_file", {"path": "a/b.txt"}))
    assert (read.output, read.metadata["size"], read.metadata["truncated"]) == ("one\ntwo\n", 8, False)


async def test_a_long_file_is_cut_and_says_so(executor: ToolExecutor) -> None:
    await executor.execute("t1", terminal("head -c 250000 /dev/zero | tr '\\0' x > big"))
    read = await executor.execute("t1", ToolCall("read_file", {"path": "big"}))
    assert read.metadata["truncated"] is True
    assert "150000 of 250000 bytes omitted" in read.output


async def test_commands_and_files_mean_the_same_workspace(executor: ToolExecutor) -> None:  # 2.3 number 15
    await executor.execute("t1", terminal("echo made > out.txt"))
    read = await executor.execute("t1", ToolCall("read_file", {"path": "/workspace/out.txt"}))
    assert (read.success, read.output) == (True, "made\n")
    (slot,) = executor.slots
    assert slot.sandbox.workspace not in str(read.metadata)
    inside = await executor.execute("t1", terminal("ls", workdir="/workspace"))
    assert inside.output == "out.txt"


async def test_other_installed_tools_run_in_the_same_sandbox(executor: ToolExecutor) -> None:
    await executor.execute("t1", ToolCall("write_file", {"path": "x.py", "content": "alpha\nbeta\n"}))
    found = await executor.execute("t1", ToolCall("search_files", {"pattern": "bet", "path": "/workspace"}))
    assert found.success
    assert "x.py" in found.output


async def test_long_output_keeps_its_end(executor: ToolExecutor) -> None:  # 2.3 number 14
    result = await executor.execute("t1", terminal("seq 1 100000; echo THE END"))
    assert result.output.endswith("THE END")
    assert "omitted" in result.output


# -- policy


@pytest.mark.component("bwrap")
async def test_policy_words_of_a_model_change_nothing(tmp_path: Path) -> None:
    arguments = {"allow_network": True, "require_sandbox": False, "require_stateful_sandbox": False}
    async with executor_on(local_backend(tmp_path), require_sandbox=True, allow_network=False) as executor:
        result = await executor.execute("t1", terminal("tail -n +3 /proc/net/dev | cut -d: -f1", **arguments))
    assert result.success, result.error
    assert result.metadata["sandboxed"] is True
    assert result.metadata["network_isolated"] is True
    assert result.output.split() == ["lo"]


async def test_a_required_isolation_that_is_not_to_be_had_stops_the_start(tmp_path: Path) -> None:
    backend = local_backend(tmp_path)
    executor = ToolExecutor(backend, None, ToolExecutorConfig(require_sandbox=True), spec=SandboxSpec(isolation="none"))
    with pytest.raises(SandboxRefusedError, match="isolation is required"):
        await executor.start()
    await executor.close()
    await backend.aclose()


async def test_nothing_runs_in_a_sandbox_that_falls_short_of_the_policy(tmp_path: Path) -> None:
    class Careless:
        """A backend that never isolates."""

        def __init__(self) -> None:
            self.inner = local_backend(tmp_path)

        async def check(self, spec: SandboxSpec) -> None:
            pass

        async def open(self, spec: SandboxSpec) -> Any:
            return await self.inner.open(SandboxSpec(rollout_id=spec.rollout_id))

        async def aclose(self) -> None:
            await self.inner.aclose()

    mark = tmp_path / "should-not-be-there"
    async with executor_on(Careless(), require_sandbox=True) as executor:
        result = await executor.execute("t1", terminal(f"touch {mark}"))
    assert not result.success
    assert result.metadata["requires_bwrap"] is True
    assert not mark.exists()


@pytest.mark.parametrize(
    ("given", "asked", "expected"),
    [
        (None, None, 30.0),
        (5, 100, 5.0),
        (None, 100, 100.0),
        (None, 10_000, 600.0),
        (None, 0, 1.0),
        (0.2, None, 1.0),
        (None, "soon", 30.0),
        (None, True, 30.0),
        (None, float("nan"), 30.0),
        (None, float("inf"), 30.0),
        (None, -5, 1.0),
    ],
)
def test_a_timeout_is_the_arguments_or_the_models_or_the_default(given: Any, asked: Any, expected: float) -> None:
    assert timeout_of(given, asked, 30.0) == expected


@pytest.fixture
def begin_mark(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that a command creates when it starts, outside the sandbox's folder."""
    return tmp_path_factory.mktemp("begun") / "begun"


async def test_a_command_ends_at_its_timeout_and_the_trajectory_continues(
    executor: ToolExecutor, begin_mark: Path
) -> None:
    async def attempt(seconds: float) -> None:
        begin_mark.unlink(missing_ok=True)
        limit = max(1.0, seconds)  # the minimum
        command = terminal(f"echo begun; touch {begin_mark}; sleep 600", timeout=600)
        result = await executor.execute("t1", command, timeout_s=limit)
        TooSoon.unless(begin_mark.exists(), "the command had not begun")
        assert (result.success, result.output) == (False, "begun")
        assert result.error == f"Command timed out after {limit:g}s"
        assert (result.metadata["timeout"], result.metadata["exit_code"]) == (True, 124)

    await with_more_time(attempt)
    assert (await executor.execute("t1", terminal("echo on"))).output == "on"


async def test_a_stateful_command_gets_the_calls_timeout(executor: ToolExecutor, begin_mark: Path) -> None:
    async def attempt(seconds: float) -> str:
        begin_mark.unlink(missing_ok=True)
        limit = max(1.0, seconds)  # the minimum
        trajectory = f"t{limit:g}"  # with a terminal that no earlier attempt has used
        call = ToolCall("bash_stateful", {"command": f"touch {begin_mark}; sleep 600"})
        result = await executor.execute(trajectory, call, timeout_s=limit)
        TooSoon.unless(begin_mark.exists(), "the command had not begun")
        assert not result.success
        assert f"after {limit:g} seconds" in str(result.error)
        assert result.metadata["stateful"] is True
        return trajectory

    used = await with_more_time(attempt)
    assert (await executor.execute(used, ToolCall("terminal_stateful", {"command": "echo on"}))).success


# -- numbers


async def test_stats_count_and_stay_small(executor: ToolExecutor) -> None:  # 2.3 number 19
    for _ in range(3):
        await executor.execute("t1", terminal("true"))
    await executor.execute("t1", terminal("false"))
    assert (executor.stats.total_requests, executor.stats.total_errors) == (4, 1)
    assert len(executor.stats.latencies_s) == 4
    for _ in range(5000):
        await executor.execute("t1", ToolCall("no_such_tool", {}))
    assert len(executor.stats.latencies_s) == 1024
    status = executor.status()
    assert (status["total_requests"], status["sandboxes"], status["queue_size"]) == (5004, 1, 0)


# -- tools that are not the sandbox's


class Weather(Tool):
    """An environment's own tool, external or not."""

    def __init__(self, *, external: bool) -> None:
        self._external = external
        self.seen: list[Mapping[str, Any]] = []

    @property
    def schema(self) -> ToolSchema:
        return ToolSchema("weather", "Tell the weather.", {"city": {"type": "string"}}, ["city"], self._external)

    async def execute(  # type: ignore[override]  # as environments write them
        self, city: str, trajectory_id: str = "", **more: Any
    ) -> ToolResult:
        self.seen.append({"city": city, "trajectory_id": trajectory_id, **more})
        return ToolResult(success=True, output=f"sunny in {city}")


def weather(**arguments: Any) -> ToolCall:
    return ToolCall("weather", {"city": "Paris", **arguments})


def registry_of(*tools: Tool) -> ToolRegistry:
    registry = build_tool_registry(registry=plugins())
    for tool in tools:
        registry.register(tool)
    return registry


async def test_an_environments_own_tool_runs_in_this_process_without_a_sandbox(tmp_path: Path) -> None:
    tool = Weather(external=False)
    async with executor_on(local_backend(tmp_path), registry_of(tool)) as executor:
        result = await executor.execute("t1", weather(allow_network=True))
        assert (result.output, executor.status()["sandboxes"]) == ("sunny in Paris", 0)
    assert tool.seen == [{"city": "Paris", "trajectory_id": "t1"}]


async def test_an_external_tool_without_a_server_is_refused_and_not_offered(tmp_path: Path) -> None:
    async with executor_on(local_backend(tmp_path), registry_of(Weather(external=True))) as executor:
        assert "weather" not in [schema.name for schema in executor.schemas()]
        result = await executor.execute("t1", weather())
    assert result.error == "External tool not available (ToolServer not configured): weather"


async def test_an_external_tool_runs_in_process_on_request(tmp_path: Path) -> None:
    tool = Weather(external=True)
    async with executor_on(local_backend(tmp_path), registry_of(tool), tool_server_url="inprocess") as executor:
        assert "weather" in [schema.name for schema in executor.schemas()]
        result = await executor.execute("t1", weather(trajectory_id="somebody-else"))
    assert result.output == "sunny in Paris"
    assert tool.seen == [{"city": "Paris", "trajectory_id": "t1"}]


# -- hermes-agent's tool backend


async def test_a_batch_is_answered_in_order_and_its_places_do_not_wait_for_each_other(tmp_path: Path) -> None:
    inner = local_backend(tmp_path)
    backend = SandboxToolBackend(inner, owns_backend=True)
    await backend.start()
    one, two = await asyncio.gather(backend.acquire("one"), backend.acquire("two"))
    results = await backend.execute_batch(
        [
            (one, "terminal", {"command": "until [ -e go ]; do sleep 0.02; done; echo a"}),
            (two, "bash", {"command": f"touch {one.sandbox.workspace}/go; echo b"}),
            (one, "terminal", {"command": "echo c"}),
            (two, "no_such_tool", {}),
        ],
        timeout_s=60,
    )
    assert [result.output for result in results] == ["a", "b", "c", ""]
    assert results[3].error == "Unknown tool: no_such_tool"
    await backend.stop()


async def test_the_policy_of_a_backend_is_its_own(tmp_path: Path) -> None:
    backend = SandboxToolBackend(local_backend(tmp_path), policy=Policy(allow_network=False), owns_backend=True)
    assert (backend.spec.network, backend.spec.isolation) == ("none", "bwrap")
    await backend.stop()
