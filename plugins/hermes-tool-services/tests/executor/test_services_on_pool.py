"""The tool executor and its service on a slot pool with real agents on this machine as hosts."""

from __future__ import annotations

import asyncio
import shutil

import pytest
from pool_support import backend
from services_executor import terminal, until
from services_http import serve

from hermes_core.contracts.errors import SandboxLostError
from hermes_core.discovery import PluginSettings, Registry, load_plugins
from hermes_pool import SlotUnavailableError
from hermes_tool_services import ToolExecutor, ToolExecutorClient
from hermes_tool_services.executor.service import ExecutorService


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load_plugins(PluginSettings(), environ={})


async def test_four_trajectories_finish_on_two_slots(registry: Registry) -> None:
    """hermes-agent's defect: waiting calls blocked all others."""

    async def run_trajectory(executor: ToolExecutor, name: str) -> str:
        await executor.execute(name, terminal(f"echo {name} > mine"))
        found = await executor.execute(name, terminal("cat mine; ls"))
        await executor.release_trajectory(name)
        return found.output

    async with backend(max_hosts=1, slots_per_host=2) as made, asyncio.timeout(60):
        async with ToolExecutor(made, registry=registry) as executor:
            names = ["a", "b", "c", "d"]
            answers = await asyncio.gather(*(run_trajectory(executor, name) for name in names))
        assert answers == [f"{name}\nmine" for name in names]
        assert len(made.engine.hosts) == 1


async def test_a_full_pool_says_so_with_its_numbers_here_and_over_http(registry: Registry) -> None:
    """hermes-agent's defect: it waited without a limit."""
    async with (
        backend(max_hosts=1, slots_per_host=1) as made,
        ToolExecutor(made, registry=registry) as executor,
        serve(ExecutorService(executor).application()) as url,
        ToolExecutorClient(url) as client,
    ):
        await client.execute("has", terminal("true"))
        made.pool.options.acquire_timeout = 0.2
        for caller in (executor, client):
            with pytest.raises(SlotUnavailableError) as raised:
                await caller.execute("waits", terminal("true"))
            assert raised.value.retryable
            assert (raised.value.stats.total, raised.value.stats.used) == (1, 1)
        await client.release_trajectory("has")
        made.pool.options.acquire_timeout = 60
        assert (await client.execute("waits", terminal("echo now"))).output == "now"


async def test_a_call_that_got_no_slot_may_be_sent_again_under_its_id(registry: Registry) -> None:
    """The refusal was its answer for good, though it is said to be worth another try."""
    async with (
        backend(max_hosts=1, slots_per_host=1) as made,
        ToolExecutor(made, registry=registry) as executor,
    ):
        await executor.execute("has", terminal("true"))
        made.pool.options.acquire_timeout = 0.2
        with pytest.raises(SlotUnavailableError):
            await executor.execute("waits", terminal("echo ran"), execution_id="e1")
        await executor.release_trajectory("has")
        made.pool.options.acquire_timeout = 60
        for _ in range(2):
            found = await executor.execute("waits", terminal("echo ran | tee -a count"), execution_id="e1")
            assert found.output == "ran"
        assert (await executor.execute("waits", terminal("cat count"))).output == "ran"


async def test_a_cancelled_call_leaves_the_queue_of_the_pool(registry: Registry) -> None:
    """hermes-agent's defect: its slot leaked."""
    async with backend(max_hosts=1, slots_per_host=1) as made, ToolExecutor(made, registry=registry) as executor:
        await executor.execute("has", terminal("true"))
        waits = asyncio.ensure_future(executor.execute("waits", terminal("true")))
        await until(lambda: made.pool.stats().waiting == 1)
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits
        assert made.pool.stats().waiting == 0
        await executor.release_trajectory("has")
        assert made.pool.stats().used == 0


async def test_two_trajectories_never_share_a_workspace(registry: Registry) -> None:
    """hermes-agent's defect: a release wiped another's files, and a failed reset left some."""
    async with backend(max_hosts=1, slots_per_host=1) as made, ToolExecutor(made, registry=registry) as executor:
        await executor.execute("one", terminal("mkdir d; ln -s /etc d/link; echo secret > d/f"))
        await executor.release_trajectory("one", reset_workspace=True)
        assert (await executor.execute("two", terminal("ls -A"))).output == ""
        await executor.release_trajectory("one")
        assert (await executor.execute("two", terminal("echo still here"))).output == "still here"


async def test_a_lost_host_costs_its_own_trajectories_only(registry: Registry) -> None:
    async with backend(max_hosts=2, slots_per_host=1) as made, ToolExecutor(made, registry=registry) as executor:
        await executor.execute("one", terminal("true"))
        await executor.execute("two", terminal("true"))
        lost = executor.slots[0].sandbox.workspace
        made.engine.hosts[0].kill()
        with pytest.raises(SandboxLostError):
            await executor.execute("one", terminal("true"))
        assert (await executor.execute("two", terminal("echo fine"))).output == "fine"
        await executor.release_trajectory("one")
        shutil.rmtree(lost)  # with the host goes its disk
        assert (await executor.execute("three", terminal("echo new"))).output == "new"
