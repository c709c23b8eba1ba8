"""A sandbox that was lost, but not its files, goes on where it was."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
from sandbox_support import LEVELS, agent_of, gone, require_groups
from sandbox_support import sandbox as open_one

from hermes_core.contracts.errors import SandboxLostError
from hermes_core.contracts.sandbox import Recoverable
from hermes_testing.watching import eventually, processes_here, sleep_token

pytestmark = pytest.mark.usefixtures("_groups")
KNOWN = "Whether the call had an effect is not known. Files are as they were"


@pytest.fixture
def _groups():
    require_groups()


async def lose(box, *calls):
    """Kill the agent under some calls, and return the error of each."""
    # Before they begin: what is just being started passes for the agent.
    pid = agent_of(box.id)
    waiting = [asyncio.ensure_future(call) for call in calls]
    await asyncio.sleep(0)
    os.kill(pid, signal.SIGKILL)
    await gone(pid)
    errors = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(error) for error in errors] == [SandboxLostError] * len(calls)
    return errors


@pytest.mark.parametrize("level", LEVELS)
async def test_files_stay_and_all_else_begins_anew(level):
    async with open_one(level) as box:
        as_contract: object = box
        assert isinstance(as_contract, Recoverable)
        token = sleep_token()
        await box.exec(f"cd /; export A=1; echo kept >~/f; sleep {token} &")
        await box.write_file("w", "work")
        (error,) = await lose(box, box.exec("sleep 600"))
        assert KNOWN in await box.recover(error)
        found = await box.exec("pwd; echo ${A-unset}; cat ~/f")
        assert found.output == f"{box.workspace}\nunset\nkept\n"
        assert await eventually(lambda: processes_here(token) == [])
        assert await box.read_file("w") == b"work"


async def test_calls_that_were_lost_together_find_it_started_once():
    async with open_one() as box:
        errors = await lose(box, box.exec("sleep 600"), box.exec("sleep 600"))
        answers = await asyncio.gather(*(box.recover(error) for error in errors))
        assert [KNOWN in answer for answer in answers] == [True] * 2
        await box.exec("export A=1")
        # One that comes late does not take from the others what they have done since.
        assert KNOWN in await box.recover(errors[0])
        assert (await box.exec("echo $A")).output == "1\n"


async def test_it_goes_on_as_often_as_it_is_lost():
    async with open_one() as box:
        for number in range(3):
            (error,) = await lose(box, box.exec(f"touch {number}; sleep 600"))
            assert KNOWN in await box.recover(error)
        assert (await box.exec("echo on")).output == "on\n"


async def test_what_happened_to_another_sandbox_is_no_reason():
    async with open_one() as box:
        await box.exec("export A=1")
        assert await box.recover(SandboxLostError("the sandbox is lost: another one")) is None
        assert (await box.exec("echo $A")).output == "1\n"


async def test_one_that_has_ended_by_its_own_terms_stays_ended():
    async with open_one(lifetime=1) as box:
        # The agent itself says so; what is asked meanwhile would put the end off.
        assert await eventually(lambda: box.provenance.get("expired") is not None)
        with pytest.raises(SandboxLostError) as caught:
            await box.exec("true")
        assert await box.recover(caught.value) is None


async def test_one_that_cannot_be_started_again_stays_lost(monkeypatch):
    async with open_one() as box:
        (error,) = await lose(box, box.exec("sleep 600"))

        async def refuse():
            raise SandboxLostError("the machine is gone")

        with monkeypatch.context() as patched:
            patched.setattr(box.host, "start_agent", refuse)
            assert await box.recover(error) is None
        with pytest.raises(SandboxLostError):
            await box.exec("true")


async def test_one_that_was_closed_stays_closed():
    async with open_one() as box:
        (error,) = await lose(box, box.exec("sleep 600"))
        await box.aclose()
        assert await box.recover(error) is None
