"""How the kit waits and measures: a busy machine changes no verdict, and a defect is seen on any."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time

import pytest

from hermes_core.contracts.sandbox import SandboxSpec
from hermes_sandbox.local.backend import LocalBackend, LocalOptions
from hermes_testing.watching import MORE_TIME, begin, exists, longest_stall, times_as_long, with_more_time


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
        assert seconds > 1
        return "passed"

    assert await with_more_time(attempt) == "passed"
    assert tried == list(MORE_TIME[:2])


async def test_a_defect_fails_with_any_time():
    tried = []

    async def attempt(seconds):
        tried.append(seconds)
        raise AssertionError(f"broken at {seconds}")

    with pytest.raises(AssertionError, match=f"broken at {MORE_TIME[-1]}"):
        await with_more_time(attempt)
    assert tried == list(MORE_TIME)


async def test_what_is_no_verdict_is_not_tried_again():
    async def attempt(seconds):
        raise OSError(f"no disk at {seconds}")

    with pytest.raises(OSError, match=f"no disk at {MORE_TIME[0]}"):
        await with_more_time(attempt)


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
    with pytest.raises(AssertionError, match="did not begin within"):
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
    assert (await longest_stall(compute()))[1] > 0.2


async def test_a_loop_without_a_processor_is_no_stall():
    """Beside four programs on its processor, all of which go before it."""
    processors, rank = os.sched_getaffinity(0), os.sched_getscheduler(0)
    crowd = [subprocess.Popen(["timeout", "20", "sh", "-c", "while :; do :; done"]) for _ in range(4)]
    try:
        for pid in (0, *(program.pid for program in crowd)):
            os.sched_setaffinity(pid, {min(processors)})
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        _, stall = await longest_stall(asyncio.sleep(3))
    finally:
        os.sched_setscheduler(0, rank, os.sched_param(0))
        os.sched_setaffinity(0, processors)
        for program in crowd:
            program.terminate()
            program.wait()
    assert stall < 0.5


async def test_the_time_of_one_thing_is_that_of_several_of_another():
    async def once():
        sum(range(200_000))

    async def ten_times():
        for _ in range(10):
            await once()

    assert 4 < await times_as_long(ten_times, once, rounds=9) < 25
