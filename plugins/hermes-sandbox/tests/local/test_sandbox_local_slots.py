"""Backend `local` with several sandboxes in an agent."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from sandbox_support import backend

from hermes_core.contracts.errors import SandboxLostError, SandboxRefusedError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_sandbox.leases.book import LeaseBook
from hermes_testing.watching import eventually, processes_here, sleep_token


async def test_sandboxes_share_an_agent_up_to_its_slots_and_each_has_its_own_directories():
    async with backend(slots_per_agent=2) as made:
        sandboxes = [await made.open(SandboxSpec()) for _ in range(3)]
        agents = {sandbox.slot.client for sandbox in sandboxes}
        assert len(agents) == 2
        for sandbox in sandboxes:
            seen = await sandbox.exec('echo "$PWD|$HOME|$TMPDIR"; stat -c %a . ~ "$TMPDIR" | sort -u; mktemp; cd; pwd')
            root = Path(sandbox.workspace).parent
            places, mode, made_file, home = seen.output.split()
            assert places == f"{root}/workspace|{root}/home|{root}/tmp"
            assert mode == "700"
            assert made_file.startswith(f"{root}/tmp/")
            assert home == f"{root}/home"
        book = LeaseBook(made.lease_dir)
        assert len(book.read()[0]) == 5  # three sandboxes and two agents
        for sandbox in sandboxes:
            await sandbox.aclose()
        assert len(book.read()[0]) == 2


async def test_isolation_and_a_single_slot_share_nothing():
    async with backend(slots_per_agent=4) as made, backend() as other:
        assert made.shares(SandboxSpec(isolation="none"))
        assert not made.shares(SandboxSpec(isolation="bwrap"))
        assert not other.shares(SandboxSpec(isolation="none"))
        assert made.has_queue(SandboxSpec())


@pytest.mark.parametrize("limit", ["cpu", "memory_mb"])
async def test_a_limit_for_one_of_several_slots_is_refused(limit):
    async with backend(slots_per_agent=4) as made:
        with pytest.raises(SandboxRefusedError, match=f"limit {limit} for one of several slots") as caught:
            await made.open(SandboxSpec(**{limit: 64}))
        assert "slots_per_agent: 1" in str(caught.value.hint)


async def test_a_limit_of_file_sizes_is_the_agent_s():
    async with backend(slots_per_agent=4) as made:
        small, large = await made.open(SandboxSpec(file_size_mb=1)), await made.open(SandboxSpec())
        assert small.slot.client is not large.slot.client
        assert (await small.exec("head -c 2000000 /dev/zero > large")).exit_code != 0
        assert (await large.exec("head -c 2000000 /dev/zero > large")).exit_code == 0


async def test_a_renewed_sandbox_has_its_directories_back_and_its_neighbour_is_left_alone():
    token = sleep_token()
    async with backend(slots_per_agent=4) as made:
        one, other = await made.open(SandboxSpec()), await made.open(SandboxSpec())
        await other.exec(f"setsid sleep {token} & echo")
        assert await eventually(lambda: len(processes_here(token)) == 1)
        await one.exec("rm -rf ~ $TMPDIR; touch kept")
        await one.renew()
        assert (await one.exec("ls; [ -d ~ ] && [ -d $TMPDIR ] && echo back")).output == "kept\nback\n"
        assert len(processes_here(token)) == 1
        await other.aclose()
        assert processes_here(token) == []


async def test_what_a_killed_agent_has_lost_is_ended_with_its_sandboxes():
    token = sleep_token()
    async with backend(slots_per_agent=4) as made:
        one, other = await made.open(SandboxSpec()), await made.open(SandboxSpec())
        for sandbox in (one, other):
            await sandbox.exec(f"setsid sleep {token} >/dev/null 2>&1 & true")
        agent = one.slot.client.greeting["pid"]
        os.kill(agent, signal.SIGKILL)
        for sandbox in (one, other):
            with pytest.raises(SandboxLostError):
                await asyncio.wait_for(sandbox.exec("echo ghost"), 60)
            await sandbox.aclose()
        assert await eventually(lambda: processes_here(token) == [])
        async with await made.open(SandboxSpec()) as sandbox:
            assert (await sandbox.exec("echo new")).output == "new\n"


async def test_opening_can_be_cancelled_at_any_step():
    async with backend(slots_per_agent=2) as made:
        for steps in (0, 1, 2, 4, 8, 16, 32):
            opening = asyncio.create_task(made.open(SandboxSpec()))
            for _ in range(steps):
                await asyncio.sleep(0)
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
