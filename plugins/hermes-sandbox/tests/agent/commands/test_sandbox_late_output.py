"""Output that processes still write after the shell of a command has ended: whether and how long the answer waits."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from sandbox_support import sandbox as open_one

from hermes_testing.watching import TooSoon, eventually, with_more_time

# It works for 0.06 s by the clock, three times as long as any output is waited for. It uses less processor time than
# filters are allowed to.
SLOW = "end=$((${EPOCHREALTIME/./} + 60000)); while ((${EPOCHREALTIME/./} < end)); do :; done"
FILTERS = ["cat", "cat; echo end", "tr a a | sort | cat", f"{SLOW}; cat"]
sessions = pytest.mark.parametrize("session", ["robust", "live"])


@sessions
@pytest.mark.parametrize("following", FILTERS)
async def test_output_is_waited_for_as_long_as_what_passes_it_on_works(set_constants, session, following):
    """It used to have 20 ms, which a busy machine needs to start it. Here it has none, so only its work counts."""
    set_constants("commands.late_output", LATE_OUTPUT=0.0)
    async with open_one(session=session) as sandbox:
        for _ in range(5):
            result = await sandbox.exec(f"echo through > >({following})")
            assert result.stdout == b"through\n" + b"end\n" * following.endswith("echo end")


async def test_errors_that_are_passed_on_are_waited_for(set_constants):
    set_constants("commands.late_output", LATE_OUTPUT=0.0)
    async with open_one() as sandbox:
        result = await sandbox.exec(f"echo through 2> >({SLOW}; cat >&2) >&2")
    assert result.stderr == b"through\n"


@pytest.mark.parametrize("following", FILTERS)
async def test_the_end_of_a_background_process_waits_for_what_passes_on_its_output(set_constants, following):
    set_constants("commands.late_output", LATE_OUTPUT=0.0)
    async with open_one() as sandbox:
        started = await sandbox.processes.start(f"echo through > >({following})")
        assert not (await sandbox.processes.wait(started.id, timeout=60)).running
        found = (await sandbox.processes.read(started.id)).data
    assert found == b"through\n" + b"end\n" * following.endswith("echo end")


@sessions
@pytest.mark.parametrize(
    "idle", ["sleep 300 & echo x", "tail -f /dev/null | cat & echo x", "exec 3> >(cat); sleep 300 >&3 & echo x"]
)
async def test_what_has_nothing_to_pass_on_does_not_hold_the_answer(set_constants, session, idle):
    set_constants("commands.late_output", _FILTERS_LONGEST=600.0, _FILTERS_BUDGET=600.0)
    async with open_one(session=session) as sandbox, asyncio.timeout(60):
        assert (await sandbox.exec(idle)).stdout == b"x\n"


@sessions
@pytest.mark.parametrize("endless", ["yes | cat &", "yes &", "while :; do :; done | cat &"])
@pytest.mark.parametrize("unbounded", ["_FILTERS_LONGEST", "_FILTERS_BUDGET"])
async def test_what_works_without_end_does_not_hold_the_answer(set_constants, session, endless, unbounded):
    """The wait is limited by time and by processor time, of which a busy machine gives it little."""
    set_constants("commands.late_output", **{unbounded: 600.0})
    async with open_one(session=session) as sandbox, asyncio.timeout(60):
        result = await sandbox.exec(f"echo started; {endless}")
    assert result.stdout.startswith(b"started\n")


@sessions
async def test_a_command_whose_shell_has_gone_is_answered_when_its_time_is_over(set_constants, session):
    set_constants("commands.late_output", LATE_OUTPUT=600.0)
    async with open_one(session=session) as sandbox:

        async def attempt(limit):
            gone = Path(sandbox.workspace, f"gone-{limit:g}")
            # Signals reach the shell until the agent has reaped it. From then on the agent knows the exit code.
            waiter = f"(while kill -0 $$ 2>/dev/null; do sleep 0.01; done; touch {gone}; exec sleep 300) &"
            asked = time.time()
            result = await sandbox.exec(f"{waiter} echo x; exit 3", timeout=limit)
            # Files get slightly early times, of the last tick of the kernel's clock.
            in_time = gone.exists() and gone.stat().st_mtime < asked + limit - 0.02
            TooSoon.unless(in_time, "the shell had not gone")
            return result

        result = await with_more_time(attempt)
    assert (result.exit_code, result.timed_out, result.stdout) == (3, False, b"x\n")


async def test_a_cancelled_call_does_not_wait_for_what_others_still_write(set_constants):
    set_constants("commands.late_output", LATE_OUTPUT=600.0)
    async with open_one() as sandbox:
        call = asyncio.create_task(sandbox.exec("sleep 300 & echo $$ >shell"))

        async def shell_has_gone():
            entries = [entry.path for entry in await sandbox.list_dir()]
            return "shell" in entries and not await runs(sandbox, await sandbox.read_file("shell"))

        assert await eventually(shell_has_gone)
        call.cancel()
        async with asyncio.timeout(60):
            with pytest.raises(asyncio.CancelledError):
                await call
        assert (await sandbox.exec("echo next", timeout=60)).stdout == b"next\n"


async def runs(sandbox, pid):
    try:
        await sandbox.stat(f"/proc/{pid.decode().strip() or 'self'}")
    except FileNotFoundError:
        return False
    return True
