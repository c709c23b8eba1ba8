"""Defects of hermes-agent's executor, each tried on the real local backend."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from services_backends import BoundedBackend, local_backend
from services_executor import executor_on, terminal, until

from hermes_core.contracts.errors import BackendError, SandboxLostError
from hermes_sandbox import LeaseBook
from hermes_tool_services import SandboxToolBackend, ToolExecutor, ToolExecutorConfig


@pytest.fixture
async def executor(tmp_path: Path) -> AsyncIterator[ToolExecutor]:
    async with executor_on(local_backend(tmp_path)) as made:
        yield made


async def test_more_trajectories_than_places_all_finish(tmp_path: Path) -> None:  # 2.3 number 1
    backend = BoundedBackend(local_backend(tmp_path), places=2)

    async def run_trajectory(executor: ToolExecutor, name: str) -> str:
        first = await executor.execute(name, terminal(f"echo {name} > f"))
        second = await executor.execute(name, terminal("cat f"))
        await executor.release_trajectory(name, reset_workspace=True)
        assert first.success
        return second.output

    async with executor_on(backend) as bounded, asyncio.timeout(60):
        names = [f"t{number}" for number in range(6)]
        assert await asyncio.gather(*(run_trajectory(bounded, name) for name in names)) == names
        assert backend.most_open <= 2
        assert backend.open_now == 0


async def test_a_fast_call_does_not_wait_for_a_slow_one(executor: ToolExecutor) -> None:  # 2.3 number 2
    await asyncio.gather(*(executor.execute(name, terminal("true")) for name in ("slow", "fast")))
    slow = asyncio.ensure_future(executor.execute("slow", terminal("until [ -e go ]; do sleep 0.05; done")))
    for _ in range(5):
        assert (await executor.execute("fast", terminal("echo quick"), timeout_s=60)).output == "quick"
    assert not slow.done()
    await executor.release_trajectory("slow")
    assert not (await slow).success


async def test_a_trajectory_that_waits_for_a_slot_blocks_no_other(tmp_path: Path) -> None:  # 2.3 numbers 1, 2
    backend = BoundedBackend(local_backend(tmp_path), places=1)
    async with executor_on(backend) as executor:
        await executor.execute("has", terminal("true"))
        waits = asyncio.ensure_future(executor.execute("waits", terminal("echo mine")))
        await until(lambda: executor.queue_size() == 1)
        assert (await executor.execute("has", terminal("echo still"))).output == "still"
        assert not waits.done()
        await executor.release_trajectory("has")
        assert (await waits).output == "mine"


async def test_calls_of_one_trajectory_keep_their_order(executor: ToolExecutor) -> None:
    calls = [executor.execute("t1", terminal(f"echo {number} >> order")) for number in range(8)]
    await asyncio.gather(*calls)
    assert (await executor.execute("t1", terminal("paste -sd, order"))).output == "0,1,2,3,4,5,6,7"


async def test_a_call_after_the_release_opens_nothing(tmp_path: Path) -> None:  # 2.3 number 3
    backend = BoundedBackend(local_backend(tmp_path), places=2)
    async with executor_on(backend) as executor:
        await executor.execute("t1", terminal("true"))
        await executor.release_trajectory("t1")
        late = await executor.execute("t1", terminal("echo late"))
        assert (late.success, late.output) == (False, "")
        assert "released" in str(late.error)
        assert backend.open_now == 0


async def test_a_queued_call_of_a_released_trajectory_takes_no_slot_again(tmp_path: Path) -> None:  # 2.3 number 3
    backend = BoundedBackend(local_backend(tmp_path), places=1)
    async with executor_on(backend) as executor:
        await executor.execute("has", terminal("true"))
        queued = [asyncio.ensure_future(executor.execute("waits", terminal("echo x"))) for _ in range(3)]
        await until(lambda: executor.queue_size() == 3)
        await executor.release_trajectory("waits")
        results = await asyncio.gather(*queued)
        assert all("released" in str(result.error) for result in results)
        await executor.release_trajectory("has")
        assert backend.open_now == 0
        # The place is there for somebody else.
        assert (await executor.execute("next", terminal("echo ok"))).output == "ok"


async def test_a_trajectory_that_is_never_released_gives_its_slot_back(tmp_path: Path) -> None:  # 2.3 number 3
    backend = BoundedBackend(local_backend(tmp_path), places=1)
    async with executor_on(backend, idle_timeout_s=0.3) as executor:
        await executor.execute("dead", terminal("sleep 0.5"))
        assert (await executor.execute("next", terminal("echo mine"))).output == "mine"
        assert "released" in str((await executor.execute("dead", terminal("true"))).error)
        await until(lambda: backend.open_now == 0)


async def test_a_cancelled_call_that_waits_keeps_no_slot(tmp_path: Path) -> None:  # 2.3 number 3
    backend = BoundedBackend(local_backend(tmp_path), places=1)
    async with executor_on(backend) as executor:
        await executor.execute("has", terminal("true"))
        waits = asyncio.ensure_future(executor.execute("waits", terminal("echo x")))
        await until(lambda: executor.queue_size() == 1)
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits
        await executor.release_trajectory("has")
        assert backend.open_now == 0
        assert executor.queue_size() == 0


async def test_a_cancelled_call_ends_its_command(executor: ToolExecutor, tmp_path: Path) -> None:  # 2.3 numbers 3, 6
    mark = tmp_path / "running"
    call = asyncio.ensure_future(
        executor.execute("t1", terminal(f"echo $BASHPID > {mark}.tmp; mv {mark}.tmp {mark}; exec sleep 600"))
    )
    await until(mark.exists)
    pid = int(mark.read_text())
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert not _is_alive(pid)
    assert (await executor.execute("t1", terminal("echo on"))).output == "on"


async def test_releasing_ends_what_runs_and_the_caller_is_told(executor: ToolExecutor, tmp_path: Path) -> None:
    mark = tmp_path / "running"
    call = asyncio.ensure_future(
        executor.execute("t1", terminal(f"echo $BASHPID > {mark}.tmp; mv {mark}.tmp {mark}; exec sleep 600"))
    )
    await until(mark.exists)
    await executor.release_trajectory("t1")
    result = await call
    assert "released" in str(result.error)
    assert not _is_alive(int(mark.read_text()))


async def test_a_repeated_execution_id_runs_nothing_again(executor: ToolExecutor) -> None:  # 2.3 number 7
    first, second = await asyncio.gather(
        *(executor.execute("t1", terminal("echo x >> count; sleep 0.2"), execution_id="e1") for _ in range(2))
    )
    third = await executor.execute("t1", terminal("echo x >> count"), execution_id="e1")
    assert first.success
    assert first == second == third
    assert (await executor.execute("t1", terminal("wc -l < count"))).output == "1"


async def test_a_cancelled_call_is_not_run_a_second_time(executor: ToolExecutor, tmp_path: Path) -> None:  # number 7
    mark = tmp_path / "running"
    call = asyncio.ensure_future(
        executor.execute("t1", terminal(f"echo x >> count; touch {mark}; sleep 600"), execution_id="e1")
    )
    await until(mark.exists)
    call.cancel()
    await asyncio.wait((call,))
    again = await executor.execute("t1", terminal("echo x >> count"), execution_id="e1")
    assert "not run a second time" in str(again.error)
    assert (await executor.execute("t1", terminal("wc -l < count"))).output == "1"


async def test_one_of_two_who_wait_for_a_call_may_leave(executor: ToolExecutor, tmp_path: Path) -> None:
    mark = tmp_path / "running"
    command = terminal(f"touch {mark}; until [ -e {tmp_path}/go ]; do sleep 0.05; done; echo done")
    leaves, stays = (asyncio.ensure_future(executor.execute("t1", command, execution_id="e1")) for _ in range(2))
    await until(mark.exists)
    leaves.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaves
    (tmp_path / "go").touch()
    assert (await stays).output == "done"


async def test_closing_ends_what_runs_and_leaves_nothing(tmp_path: Path) -> None:  # 2.3 number 4
    backend = local_backend(tmp_path)
    mark = tmp_path / "running"
    executor = ToolExecutor(backend)
    await executor.start()
    call = asyncio.ensure_future(executor.execute("t1", terminal(f"touch {mark}; sleep 600")))
    await until(mark.exists)
    async with asyncio.timeout(60):
        await executor.close()
    assert not (await call).success
    assert (await executor.execute("t2", terminal("true"))).error == "the executor is closed"
    assert LeaseBook(tmp_path / "leases").read() == ([], [])
    await backend.aclose()


async def test_closing_does_not_wait_for_ever(tmp_path: Path) -> None:  # 2.3 number 4
    class Stuck(SandboxToolBackend):  # type: ignore[misc]  # final for everybody else
        async def release(self, slot: Any, *, reset_workspace: bool = False) -> None:
            await asyncio.Event().wait()

    inner = local_backend(tmp_path)
    backend = Stuck(inner)
    await backend.start()
    executor = ToolExecutor(backend, None, ToolExecutorConfig(close_timeout_s=0.3))
    await executor.start()
    await executor.execute("t1", terminal("true"))
    with pytest.raises(BackendError, match=r"1 of 1 trajectories were not released within 0\.3 s"):
        await executor.close()
    await inner.aclose()


async def test_a_release_whose_caller_leaves_is_completed_and_keeps_no_record(tmp_path: Path) -> None:
    class Slow(SandboxToolBackend):  # type: ignore[misc]  # final for everybody else
        async def release(self, slot: Any, *, reset_workspace: bool = False) -> None:
            going.set()
            await gate.wait()
            await super().release(slot, reset_workspace=reset_workspace)

    going, gate = asyncio.Event(), asyncio.Event()
    inner = local_backend(tmp_path)
    backend = Slow(inner)
    await backend.start()
    executor = ToolExecutor(backend)
    await executor.start()
    await executor.execute("t1", terminal("true"))
    releasing = asyncio.ensure_future(executor.release_trajectory("t1"))
    await going.wait()
    releasing.cancel()
    await asyncio.wait((releasing,))
    gate.set()
    await until(lambda: executor.status()["trajectories"] == 0)
    await executor.close()
    await inner.aclose()


async def test_no_slot_in_time_is_the_backends_error_and_not_a_tool_result(tmp_path: Path) -> None:  # number 5
    backend = BoundedBackend(local_backend(tmp_path), places=1, patience=0.2)
    async with executor_on(backend) as executor:
        await executor.execute("has", terminal("true"))
        with pytest.raises(BackendError, match="no place was free in time"):
            await executor.execute("waits", terminal("true"))
        await executor.release_trajectory("has")
        assert (await executor.execute("waits", terminal("echo now"))).output == "now"


async def test_a_lost_sandbox_is_raised(executor: ToolExecutor) -> None:
    await executor.execute("t1", terminal("true"))
    (slot,) = executor.slots
    sandbox: Any = slot.sandbox
    sandbox.slot.client.fail("the test pulled the plug")
    with pytest.raises(SandboxLostError):
        await executor.execute("t1", terminal("true"))
    await executor.release_trajectory("t1")
    assert (await executor.execute("t2", terminal("echo fine"))).output == "fine"


@pytest.mark.component("bwrap")
async def test_a_command_cannot_switch_isolation_off_by_what_it_prints(tmp_path: Path) -> None:  # 2.3 number 11
    async with executor_on(local_backend(tmp_path), require_sandbox=True) as executor:
        printed = await executor.execute(
            "a", terminal("echo ran >> n; echo no permissions to create new namespace; exit 1")
        )
        assert printed.error == "Exit code: 1"
        after = await executor.execute("a", terminal("wc -l < n"))
        other = await executor.execute("b", terminal("true"))
    assert after.output == "1"
    assert after.metadata["sandboxed"] is other.metadata["sandboxed"] is True


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
