"""A sandbox that was lost, but not its files, goes on where it was."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
from sandbox_support import agent_of, wait_until_gone
from sandbox_support import sandbox as open_one

from hermes_core.contracts.errors import SandboxLostError
from hermes_core.contracts.sandbox import Recoverable
from hermes_testing.watching import eventually, processes_here, sleep_token

KNOWN = "Whether the call had an effect is not known. Files of the workspace"
bwrap = pytest.mark.component("bwrap")


async def lose(box, *calls):
    """Kill the agent under some calls, and return the error of each."""
    # Before they begin: what is just being started passes for the agent.
    pid = agent_of(box.id)
    waiting = [asyncio.ensure_future(call) for call in calls]
    await asyncio.sleep(0)
    os.kill(pid, signal.SIGKILL)
    await wait_until_gone(pid)
    errors = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(error) for error in errors] == [SandboxLostError] * len(calls)
    return errors


async def recovering(box, call):
    """Make a call as a rollout does: whatever it is lost by, ask the sandbox to go on."""
    before = box.recoveries
    try:
        await call
    except SandboxLostError:
        return await box.recover(before)
    raise AssertionError("the call was not lost")


@bwrap
async def test_files_stay_and_all_else_begins_anew():
    async with open_one("bwrap") as box:
        as_contract: object = box
        assert isinstance(as_contract, Recoverable)
        token = sleep_token()
        await box.exec(f"cd /; export A=1; echo kept | tee ~/f /tmp/f; sleep {token} &")
        await box.write_file("w", "work")
        await lose(box, box.exec("sleep 600"))
        assert KNOWN in await box.recover(0)
        found = await box.exec("pwd; echo ${A-unset}; cat ~/f /tmp/f")
        assert found.output == f"{box.workspace}\nunset\nkept\nkept\n"
        assert await box.read_file("w") == b"work"
        assert await eventually(lambda: processes_here(token) == [])


@bwrap
async def test_calls_that_are_lost_together_all_go_on_and_it_is_started_once():
    """A call that waited for its turn was told of the renewal, and ended its rollout."""
    async with open_one("bwrap") as box:
        pid = agent_of(box.id)
        waiting = [asyncio.ensure_future(recovering(box, box.exec("sleep 600"))) for _ in range(3)]
        await asyncio.sleep(0)
        os.kill(pid, signal.SIGKILL)
        assert [KNOWN in answer for answer in await asyncio.gather(*waiting)] == [True] * 3
        assert box.recoveries == 1
        await box.exec("export A=1")
        # One that comes late does not take from the others what they have done since.
        assert KNOWN in await box.recover(0)
        assert (await box.exec("echo $A")).output == "1\n"


@bwrap
async def test_who_is_cancelled_meanwhile_leaves_the_others_a_sandbox_that_goes_on():
    async with open_one("bwrap") as box:
        await lose(box, box.exec("sleep 600"))
        first = asyncio.ensure_future(box.recover(0))
        await asyncio.sleep(0)
        first.cancel()
        assert KNOWN in await box.recover(0)
        assert (await box.exec("echo on")).output == "on\n"
        assert box.recoveries == 1
        with pytest.raises(asyncio.CancelledError):
            await first


@bwrap
async def test_a_machine_that_loses_it_time_and_again_has_failed():
    """Answered forever, a rollout would be scored for what its machine did."""
    async with open_one("bwrap") as box:
        for number in range(2):
            await lose(box, box.exec(f"touch {number}; sleep 600"))
            assert KNOWN in await box.recover(number)
        assert (await box.exec("echo on")).output == "on\n"
        await lose(box, box.exec("sleep 600"))
        assert await box.recover(2) is None


@bwrap
async def test_what_happened_to_another_sandbox_is_no_reason():
    async with open_one("bwrap") as box:
        await lose(box, box.exec("sleep 600"))
        await box.recover(0)
        await box.exec("export A=1")
        assert await box.recover(1) is None
        assert (await box.exec("echo $A")).output == "1\n"


async def test_where_not_all_that_ran_can_be_found_it_stays_lost():
    """At isolation none a process can leave its group; nobody may judge beside it."""
    async with open_one() as box:
        await lose(box, box.exec("sleep 600"))
        assert await box.recover(0) is None
        with pytest.raises(SandboxLostError, match="the agent"):
            await box.exec("true")
        with pytest.raises(SandboxLostError, match="not everything it started can be found"):
            await box.renew()


async def test_one_that_has_ended_by_its_own_terms_stays_ended():
    async with open_one(lifetime=1) as box:
        # The agent itself says so; what is asked meanwhile would put the end off.
        assert await eventually(lambda: box.provenance.get("expired") is not None)
        assert await box.recover(0) is None


@bwrap
async def test_one_that_cannot_be_started_again_stays_lost(monkeypatch):
    async with open_one("bwrap") as box:
        await lose(box, box.exec("sleep 600"))

        async def refuse():
            raise SandboxLostError("the machine is gone")

        with monkeypatch.context() as patched:
            patched.setattr(box.host, "start_agent", refuse)
            assert await box.recover(0) is None
        # Nor is it tried again beside what the first attempt may have left.
        assert await box.recover(0) is None
        with pytest.raises(SandboxLostError, match="the agent"):
            await box.exec("true")


async def test_one_that_was_closed_stays_closed():
    async with open_one() as box:
        await lose(box, box.exec("sleep 600"))
        await box.aclose()
        assert await box.recover(0) is None
