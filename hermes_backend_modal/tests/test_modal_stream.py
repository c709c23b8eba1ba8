"""The agent's stream through the SDK: interrupted, slow, at its end."""

from __future__ import annotations

import asyncio
import hashlib

import pytest

from hermes_backend_modal.backend import ModalBackend
from hermes_backend_modal.failures import ModalTimeoutError
from hermes_backend_modal.options import ModalOptions
from hermes_core.contracts.errors import SandboxLostError
from hermes_core.contracts.sandbox import SandboxSpec

pytestmark = pytest.mark.component("bwrap")
SPEC = SandboxSpec(isolation="gvisor", network="none")
ALL_BYTES = bytes(range(256)) * 8192


async def test_output_goes_on_where_it_was_when_the_stream_is_dropped(standin, backend):
    async with await backend.open(SPEC) as sandbox:
        await sandbox.write_file("data", ALL_BYTES)
        standin.ask("drop", times=5)
        assert await sandbox.read_file("data") == ALL_BYTES
        assert (await sandbox.exec("cat data | sha256sum")).output.split()[0] == hashlib.sha256(ALL_BYTES).hexdigest()


@pytest.mark.slow
async def test_a_stream_that_stays_away_loses_the_sandbox_and_says_so(standin, backend):
    async with await backend.open(SPEC) as sandbox:
        standin.ask("fail", call="TaskExecStdioRead", status="UNAVAILABLE", text="the worker is gone", times=1000)
        standin.ask("drop", times=1)
        await sandbox.exec("echo heard")
        with pytest.raises(SandboxLostError, match="the worker is gone"):
            await asyncio.wait_for(sandbox.exec("echo unheard"), 60)


async def test_input_that_is_refused_once_arrives_once(standin, backend):
    async with await backend.open(SPEC) as sandbox:
        standin.ask("fail", call="TaskExecStdinWrite", status="UNAVAILABLE", text="busy", times=3)
        await sandbox.exec("echo once >> log")
        assert await sandbox.read_file("log") == b"once\n"


async def test_commands_overlap_although_each_request_is_slow(standin, backend):
    async with await backend.open(SPEC) as sandbox:
        standin.ask("slow", call="TaskExecStdinWrite", seconds=0.2)
        before = standin.ask()["calls"]["TaskExecStdinWrite"]
        await asyncio.gather(*(sandbox.stat(".") for _ in range(20)))
        # What waits while one request is on its way travels in the next one.
        assert standin.ask()["calls"]["TaskExecStdinWrite"] - before < 10


async def test_an_agent_that_was_killed_is_a_lost_sandbox_that_can_be_closed(standin, tmp_path):
    made = ModalBackend(ModalOptions(**standin.options, user="root"))
    made.lease_dir = tmp_path
    sandbox = await made.open(SPEC)
    with pytest.raises(SandboxLostError):
        await asyncio.wait_for(sandbox.exec("kill -9 $PPID; sleep 5"), 60)
    await sandbox.aclose()
    await made.aclose()
    assert not standin.running(hermes_sandbox=sandbox.id)


async def test_an_exec_without_a_time_limit_of_its_own_is_asked_for(standin, backend):
    async with await backend.open(SPEC) as sandbox:
        (found,) = standin.running(hermes_sandbox=sandbox.id)
        assert found["exec_timeouts"] == [0]


async def test_a_helper_program_that_does_not_end_is_given_up_and_said(standin, tmp_path, monkeypatch):
    made = ModalBackend(ModalOptions(**standin.options))
    made.lease_dir = tmp_path
    ask = made.service.ask

    async def ask_for_longer(what, work, *, seconds=None, hint=None):
        """Wait for the answer as long as a busy machine may take: the limit of the program is what is looked at."""
        del seconds
        return await ask(what, work, seconds=60.0, hint=hint)

    async with await made.open(SPEC) as sandbox:
        place = await anext(aiter(made.service.find_tagged({"hermes_sandbox": sandbox.id})))
        made.options.service_timeout = 0.4
        monkeypatch.setattr(made.service, "ask", ask_for_longer)
        with pytest.raises(ModalTimeoutError, match="did not end within 1 s"):
            await made.service.run(place, ["sleep", "600"])
        made.options.service_timeout = 60.0
        assert (await sandbox.exec("echo usable")).output == "usable\n"
    await made.aclose()
