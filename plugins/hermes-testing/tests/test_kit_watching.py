"""How the kit waits and measures: a busy machine changes no verdict, and a defect is found on any machine."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest

from hermes_core.contracts.sandbox import SandboxSpec
from hermes_sandbox.local import LocalBackend, LocalOptions
from hermes_testing import watching
from hermes_testing.watching import (
    MORE_TIME,
    TooSoon,
    begin,
    eventually,
    exists,
    longest_stall,
    times_as_long,
    with_more_time,
)


@pytest.fixture
async def sandbox(tmp_path):
    backend = LocalBackend(LocalOptions(root_dir=tmp_path))
    backend.lease_dir = tmp_path / "leases"
    async with await backend.open(SandboxSpec(isolation="none")) as opened:
        yield opened
    await backend.aclose()


async def test_an_attempt_gets_more_time_until_it_passes():
    tried = []

    async def attempt(seconds):
        tried.append(seconds)
        TooSoon.unless(seconds > 1, "nothing was done")
        return "passed"

    assert await with_more_time(attempt) == "passed"
    assert tried == list(MORE_TIME[:2])


async def test_what_no_time_is_enough_for_fails():
    tried = []

    async def attempt(seconds):
        tried.append(seconds)
        raise TooSoon(f"not done in {seconds}")

    with pytest.raises(AssertionError, match=f"not done in {MORE_TIME[-1]}"):
        await with_more_time(attempt)
    assert tried == list(MORE_TIME)


@pytest.mark.parametrize("verdict", [AssertionError, OSError])
async def test_a_verdict_is_not_tried_again(verdict):
    async def attempt(seconds):
        raise verdict(f"broken at {seconds}")

    with pytest.raises(verdict, match=f"broken at {MORE_TIME[0]}"):
        await with_more_time(attempt)


async def test_a_condition_that_hangs_never_held():
    looked = asyncio.Event()

    async def hang():
        looked.set()
        await asyncio.Event().wait()

    waiting = asyncio.create_task(eventually(hang, seconds=-59.9))
    assert not await waiting
    assert looked.is_set()


async def test_a_condition_s_own_timeout_is_its_error():
    async def late():
        raise TimeoutError("of the condition itself")

    with pytest.raises(TimeoutError, match="of the condition itself"):
        await eventually(late)


async def test_a_call_is_handed_over_when_its_command_has_begun(sandbox):
    call = await begin(sandbox, "echo before > said; touch begun; sleep 600")
    assert await sandbox.read_file("said") == b"before\n"
    assert not call.done()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_a_command_without_the_file_begins_with_it(sandbox):
    call = await begin(sandbox, "echo done")
    assert (await call).output == "done\n"
    assert await exists(sandbox, "begun")


async def test_a_command_that_ends_before_it_begins_is_told(sandbox):
    with pytest.raises(AssertionError, match="ended before it made the file"):
        await begin(sandbox, "exit 3; touch begun")


async def test_a_command_that_does_not_begin_is_cancelled(sandbox):
    with pytest.raises(AssertionError, match=r"did not begin within|no look for"):
        await begin(sandbox, "sleep 600; touch begun", seconds=0.1)
    assert (await sandbox.exec("echo free")).output == "free\n"


async def test_a_blocked_loop_is_a_stall_however_it_is_blocked():
    async def block():
        time.sleep(0.5)

    async def compute():
        end = time.thread_time() + 0.3
        while time.thread_time() < end:
            pass

    assert (await longest_stall(block()))[1] > 0.3
    assert (await longest_stall(compute()))[1] > 0.1


async def test_time_without_a_processor_is_no_stall(monkeypatch):
    """Times as the kernel reports them for each thread; here for a second in which the loop was blocked."""
    own = str(threading.get_native_id())
    waits = {own: 3.0, "worker": 5.0, "another": 1.0}
    monkeypatch.setattr(watching, "_waits_for_a_processor", lambda: dict(waits))

    async def block(**waited):
        time.sleep(1)
        for thread, seconds in waited.items():
            waits[thread] = waits.get(thread, 0.0) + seconds

    assert (await longest_stall(block(**{own: 30.0})))[1] < 0.5
    assert (await longest_stall(block(worker=30.0, started_since=1.0)))[1] < 0.5
    # Several concurrent waiters delay the loop no longer than one.
    assert (await longest_stall(block(worker=0.4, another=0.4, started_since=0.4)))[1] > 0.5
    assert (await longest_stall(block()))[1] > 0.9


def test_the_kernel_is_asked_for_every_thread():
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    waits = watching._waits_for_a_processor()
    over.set()
    thread.join()
    if not Path("/proc/self/schedstat").exists():
        pytest.skip("this kernel does not count for how long a thread waits for a processor")
    assert {str(threading.get_native_id()), str(thread.native_id)} <= set(waits)
    assert all(wait >= 0 for wait in waits.values())


@pytest.mark.parametrize("lost", [0.0, 8.0])
async def test_the_time_of_one_thing_is_that_of_several_of_another(monkeypatch, lost):
    """Even if another program gets the processor for this many seconds per four seconds of work."""
    worked = 0.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: worked + lost * (worked // 4))

    async def once():
        nonlocal worked
        worked += 1

    async def ten_times():
        for _ in range(10):
            await once()

    assert 8 < await times_as_long(ten_times, once) < 12
    assert 8 < 1 / await times_as_long(once, ten_times) < 12
