"""Agents of this machine are forked from one warm Python: what they share with it, and what happens when it is gone."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from sandbox_support import LEVELS, agent_of, backend, processes_of, require, wait_until_gone

from hermes_core.contracts.errors import BackendError, SandboxLostError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_sandbox.agent.boot.zygote import NO_MARK
from hermes_sandbox.agent.processes import read_marker, read_table
from hermes_sandbox.local.cgroups import Group
from hermes_sandbox.local.zygote import Zygote
from hermes_sandbox.protocol.client import AgentClient

SECRET = "only-of-the-first-sandbox"
PLAIN = SandboxSpec(isolation="none")


def zygotes() -> set[int]:
    """Return the zygotes that this process has started and that live."""
    mine = {pid for pid, process in read_table().items() if process.parent == os.getpid()}
    return {pid for pid in mine if read_marker(pid) in {None, NO_MARK} and b".boot.zygote" in command_line(pid)}


def command_line(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def zygote_of(made) -> int:
    """Return the zygote of a backend, the agents of which have another mark."""
    return made._zygote._running._process.pid


def inodes(pid: int) -> set[tuple[int, int]]:
    """Return the files that a process has open, except /dev/null."""
    null = Path(os.devnull).stat()
    found = (entry.stat() for entry in Path(f"/proc/{pid}/fd").iterdir())
    return {(each.st_dev, each.st_ino) for each in found} - {(null.st_dev, null.st_ino)}


def reads(pid: int, text: str) -> bool:
    """Tell whether a text is anywhere in a process's memory."""
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            place, rights, *_ = line.split()
            start, end = (int(part, 16) for part in place.split("-"))
            if "r" in rights and "[v" not in line:
                memory.seek(start)
                if text.encode() in memory.read(end - start):
                    return True
    return False


IGNORING = """
import asyncio, signal, sys
from pathlib import Path
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_sandbox.local import LocalBackend

signal.signal(signal.SIGCHLD, signal.SIG_IGN)


async def main():
    backend = LocalBackend()
    backend.lease_dir = Path(sys.argv[1])
    for _ in range(2):
        async with await backend.open(SandboxSpec(isolation="none")) as sandbox:
            await sandbox.renew()
            print((await sandbox.exec("echo hi")).output, end="")
    await backend.aclose()


asyncio.run(main())
"""


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="an agent hides its memory and descriptors from its own user")


@pytest.mark.parametrize("level", LEVELS)
async def test_all_that_a_backend_starts_are_children_of_its_process_and_come_from_one_zygote(level):
    require(level)
    async with backend() as made:
        spec = SandboxSpec(isolation=level)
        async with await made.open(spec) as one, await made.open(spec) as other:
            assert zygotes() == {zygote_of(made)}
            mine = {pid for pid, process in read_table().items() if process.parent == os.getpid()}
            for each in (one, other):
                assert (await each.exec("echo hi")).output == "hi\n"
                assert len(mine & {*processes_of(each.id)}) == 1
            assert not mine & {pid for pid, process in read_table().items() if process.parent == zygote_of(made)}
    assert zygotes() == set()


async def test_an_agent_that_was_forked_carries_the_mark_of_its_sandbox_alone():
    async with backend() as made, await made.open(PLAIN) as one, await made.open(PLAIN) as other:
        assert {one.id, other.id} == {each.id for each in (one, other) if agent_of(each.id) in processes_of(each.id)}
        assert not {*processes_of(one.id)} & {*processes_of(other.id)}
        assert not {zygote_of(made)} & {*processes_of(one.id), *processes_of(other.id)}


@needs_root
async def test_an_agent_has_no_descriptor_of_the_zygote_or_of_another_agent():
    async with backend() as made, await made.open(PLAIN) as one, await made.open(PLAIN) as other:
        agents = [agent_of(each.id) for each in (one, other)]
        shared = inodes(agents[0]) & inodes(agents[1])
        assert shared <= inodes_of_kernel()
        for pid in agents:
            assert inodes(pid) & inodes(zygote_of(made)) == set()
        seen = await other.exec("ls -l /proc/self/fd/ | grep -c socket: || true")
        assert seen.output == "0\n"


def inodes_of_kernel() -> set[tuple[int, int]]:
    """Return the one file behind every descriptor of epoll and its like, which says nothing of what they refer to."""
    poll = os.eventfd(0)
    try:
        info = os.fstat(poll)
    finally:
        os.close(poll)
    return {(info.st_dev, info.st_ino)}


@needs_root
async def test_an_agent_holds_nothing_in_memory_of_a_sandbox_before_it():
    first = SandboxSpec(isolation="none", env={"TOKEN": SECRET})
    async with backend() as made, await made.open(first) as one:
        assert (await one.exec("echo $TOKEN")).output == f"{SECRET}\n"
        assert reads(agent_of(one.id), SECRET)
        async with await made.open(PLAIN) as other:
            await other.exec("echo hi")
            assert not reads(agent_of(other.id), SECRET)
            assert not reads(zygote_of(made), SECRET)


async def test_signals_to_the_group_and_the_session_of_a_command_or_its_agent_reach_no_one_else():
    async with backend() as made, await made.open(PLAIN) as one, await made.open(PLAIN) as other:
        table = read_table()
        agents = [agent_of(each.id) for each in (one, other)]
        assert len({table[pid].session for pid in (*agents, zygote_of(made), os.getpid())}) == 4
        assert {os.getpgid(pid) for pid in agents} == {*agents}
        before = zygote_of(made)
        assert (await one.exec("kill -KILL 0")).exit_code == 128 + signal.SIGKILL
        with pytest.raises(SandboxLostError):
            await one.exec(f"kill -KILL -- -{agents[0]}")
        assert (await other.exec("echo hi")).output == "hi\n"
        async with await made.open(PLAIN) as third:
            assert (await third.exec("echo hi")).output == "hi\n"
        assert zygote_of(made) == before


async def test_agents_outlive_a_killed_zygote_and_the_next_ones_get_a_new_one(caplog):
    async with backend() as made, await made.open(PLAIN) as one:
        before = zygote_of(made)
        os.kill(before, signal.SIGKILL)
        assert await wait_until_gone(before)
        assert (await one.exec("echo hi")).output == "hi\n"
        async with await made.open(PLAIN) as other:
            assert (await other.exec("echo hi")).output == "hi\n"
            assert zygote_of(made) != before
    assert caplog.records == []


async def test_a_stopped_zygote_is_killed_and_the_agent_started_without_it(caplog):
    async with backend() as made:
        async with await made.open(PLAIN):
            before = zygote_of(made)
            os.kill(before, signal.SIGSTOP)
            async with await made.open(PLAIN) as other:
                assert (await other.exec("echo hi")).output == "hi\n"
                assert b".boot.zygote" not in command_line(agent_of(other.id))
        assert await wait_until_gone(before)
        async with await made.open(PLAIN) as third:
            assert b".boot.zygote" in command_line(agent_of(third.id))
    [record] = caplog.records
    assert record.message.startswith("one agent starts a Python of its own")


@pytest.mark.parametrize("level", LEVELS)
async def test_a_python_that_cannot_be_a_zygote_is_tried_once_and_named_in_one_warning(level, monkeypatch, caplog):
    require(level)
    spoilt = (*("-I", "-S", "-c"), "raise SystemExit('this Python forks nothing')")
    monkeypatch.setattr("hermes_sandbox.local.zygote.ZYGOTE_FLAGS", spoilt)
    async with backend() as made:
        for _ in range(3):
            async with await made.open(SandboxSpec(isolation=level)) as opened:
                assert (await opened.exec("echo hi")).output == "hi\n"
    [record] = caplog.records
    assert (record.levelno, record.message.partition(":")[2]) == (logging.WARNING, " this Python forks nothing")


async def test_many_agents_are_forked_at_once():
    async with backend(setup_timeout=120) as made:
        opened = await asyncio.gather(*(made.open(PLAIN) for _ in range(32)))
        said = await asyncio.gather(*(each.exec("echo $PPID") for each in opened))
        assert len({each.output for each in said}) == 32
        assert zygotes() == {zygote_of(made)}
        await asyncio.gather(*(each.aclose() for each in opened))


async def test_a_request_that_is_cancelled_at_any_moment_leaves_no_agent(tmp_path):
    zygote = Zygote(sys.executable, os.defpath, 60.0)
    before = {pid for pid, process in read_table().items() if process.parent == os.getpid()}
    for turns in range(20):
        forking = asyncio.ensure_future(zygote.fork("ab" * 8, None, None))
        for _ in range(turns):
            await asyncio.sleep(0)
        forking.cancel()
        try:
            agent = await forking
        except asyncio.CancelledError:
            continue
        agent.stream.writer.close()
        assert await agent.end(60.0)
    await zygote.aclose()
    assert {pid for pid, process in read_table().items() if process.parent == os.getpid()} == before


async def test_an_agent_that_cannot_enter_its_group_serves_nothing_and_says_why(tmp_path):
    (tmp_path / "cgroup.procs").mkdir()
    zygote = Zygote(sys.executable, os.defpath, 60.0)
    with pytest.raises(BackendError, match="control group cannot be entered"):
        await zygote.fork("ab" * 8, Group([tmp_path]), None)
    (tmp_path / "cgroup.procs").rmdir()
    (tmp_path / "cgroup.procs").symlink_to("/dev/full")
    agent = await zygote.fork("ab" * 8, Group([tmp_path]), None)
    assert agent is not None
    with pytest.raises(asyncio.IncompleteReadError):
        await agent.stream.reader.readexactly(1)
    assert "No space left on device" in await agent.stream.diagnose()
    agent.stream.writer.close()
    assert not await agent.end(60.0)
    await zygote.aclose()


async def test_the_memory_of_each_process_is_bound_before_the_agent_answers():
    zygote = Zygote(sys.executable, os.defpath, 60.0)
    agent = await zygote.fork("ab" * 8, None, 1 << 30)
    client = await AgentClient.connect(agent.stream, {"marker": "ab" * 8, "limits": {}}, timeout=60)
    lines = Path(f"/proc/{agent.pid}/limits").read_text().splitlines()
    assert [line.split()[3:5] for line in lines if line.startswith("Max address space")] == [[f"{1 << 30}"] * 2]
    await client.aclose()
    assert await agent.end(60.0)
    await zygote.aclose()


async def test_a_backend_that_was_closed_has_no_zygote_and_can_be_used_again():
    async with backend() as made:
        async with await made.open(PLAIN):
            before = zygote_of(made)
        await made.aclose()
        assert await wait_until_gone(before)
        async with await made.open(PLAIN) as opened:
            assert (await opened.exec("echo hi")).output == "hi\n"


async def test_the_zygote_of_a_backend_that_nobody_closes_ends_with_it():
    zygote = Zygote(sys.executable, os.defpath, 60.0)
    agent = await zygote.fork("ab" * 8, None, None)
    assert agent is not None
    [pid] = zygotes()
    agent.stream.writer.close()
    await agent.end(60.0)
    del zygote
    gc.collect()
    assert await wait_until_gone(pid)


def test_another_thread_gets_a_zygote_of_its_own(tmp_path):
    """A process that is to die with its parent dies with the thread that has started it."""
    parents = []

    async def use(made):
        async with await made.open(PLAIN) as opened:
            assert (await opened.exec("echo hi")).output == "hi\n"
            parents.append(zygote_of(made))

    async def use_twice():
        async with backend() as made:
            await use(made)
            await asyncio.to_thread(lambda: asyncio.run(use(made)))

    asyncio.run(use_twice())
    assert len({*parents}) == 2


def test_a_caller_that_ignores_the_end_of_its_children_can_renew_and_close_sandboxes(tmp_path):
    command = [sys.executable, "-c", IGNORING, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr, [*tmp_path.iterdir()]) == ("hi\nhi\n", "", [])
