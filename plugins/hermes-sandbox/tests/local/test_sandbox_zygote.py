"""Agents of this machine are forked from one warm Python: what they share with it, and what happens when it is gone."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from sandbox_support import LEVELS, agent_of, backend, processes_of, require, wait_until_gone

from hermes_core.contracts.errors import BackendError, SandboxLostError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_sandbox.agent.processes import read_table
from hermes_sandbox.local.cgroups import Group
from hermes_sandbox.local.zygote import Zygote
from hermes_sandbox.protocol.client import AgentClient
from hermes_testing.watching import processes_here, sleep_token

SECRET = "only-of-the-first-sandbox"
PLAIN = SandboxSpec(isolation="none")


def children() -> set[int]:
    """Return the children of this process, those that nobody has waited for too."""
    lists = (path.read_text() for path in Path("/proc/self/task").glob("*/children"))
    return {int(pid) for line in lists for pid in line.split()}


async def end(agent) -> bool:
    """End an agent by its stream; True if it ended well."""
    agent.stream.writer.close()
    return await agent.end(60.0)


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


KILLED = """
import asyncio, os, signal, sys
from hermes_sandbox.local.zygote import Zygote


async def main():
    zygote = Zygote(sys.executable, os.defpath, 60.0)
    environment = {"PATH": os.defpath}
    await zygote.run(["sleep", sys.argv[1]], None, None, environment=environment)
    running = [zygote.run(["sleep", sys.argv[1]], None, None, environment=environment) for _ in range(30)]
    asyncio.get_running_loop().call_later(0.02, os.kill, os.getpid(), signal.SIGKILL)
    await asyncio.gather(*running)
    await asyncio.sleep(60)


asyncio.run(main())
"""


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="an agent hides its memory and descriptors from its own user")


@pytest.mark.parametrize("level", LEVELS)
async def test_all_that_a_backend_starts_are_children_of_its_process_and_come_from_one_zygote(level):
    require(level)
    async with backend() as made:
        spec = SandboxSpec(isolation=level)
        async with await made.open(spec) as one, await made.open(spec) as other:
            for each in (one, other):
                assert (await each.exec("echo hi")).output == "hi\n"
                assert len(children() & {*processes_of(each.id)}) == 1
            assert not [pid for pid, process in read_table().items() if process.parent == zygote_of(made)]
            zygote = zygote_of(made)
        async with await made.open(spec):
            assert zygote_of(made) == zygote
    assert zygote not in children()


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
                assert made._zygote._running is None
        assert await wait_until_gone(before)
        async with await made.open(PLAIN):
            assert zygote_of(made) != before
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
        await asyncio.gather(*(each.aclose() for each in opened))


@pytest.mark.parametrize("inner", [False, True], ids=["by its caller", "with its event loop"])
async def test_a_request_that_is_cancelled_at_any_moment_leaves_no_agent(inner):
    zygote = Zygote(sys.executable, os.defpath, 60.0)
    before = children()
    for turns in range(20):
        known = asyncio.all_tasks()
        forking = asyncio.ensure_future(zygote.fork("ab" * 8, None, None))
        for _ in range(turns):
            await asyncio.sleep(0)
        for task in asyncio.all_tasks() - known if inner else {forking}:
            task.cancel()
        try:
            agent = await forking
        except asyncio.CancelledError:
            continue
        assert agent is None or await end(agent)
    assert zygote._running is None or await end(await zygote.fork("ab" * 8, None, None))
    await zygote.aclose()
    while not children() <= before:  # until a new child waits for those for which nobody has waited
        gc.collect()
        last = Zygote(sys.executable, os.defpath, 60.0)
        assert await end(await last.fork("ab" * 8, None, None))
        await last.aclose()


async def test_a_request_that_gives_up_cancels_no_other(slow_python):
    zygote = Zygote(slow_python, os.defpath, 60.0)
    waiting = [asyncio.ensure_future(zygote.fork("ab" * 8, None, None)) for _ in range(3)]
    while zygote._running is None:
        await asyncio.sleep(0)
    await zygote._give_up(zygote._running, TimeoutError())
    assert await asyncio.gather(*waiting) == [None] * 3


def test_a_zygote_whose_event_loop_ended_while_it_got_its_modules_is_replaced(slow_python):
    zygote = Zygote(slow_python, os.defpath, 60.0)

    async def begin():
        task = asyncio.ensure_future(zygote.fork("ab" * 8, None, None))
        while zygote._running is None:
            await asyncio.sleep(0)
        return task

    async def go_on():
        Path(slow_python).with_name("go").touch()
        for _ in range(2):
            assert await end(await zygote.fork("ab" * 8, None, None))
        await zygote.aclose()

    asyncio.run(begin())
    asyncio.run(go_on())


@pytest.fixture
def slow_python(tmp_path):
    """A Python that begins when a file `go` is beside it."""
    path = tmp_path / "python"
    path.write_text(f'#!/bin/sh\nwhile [ ! -e "{tmp_path}/go" ]; do sleep 0.05; done; exec {sys.executable} "$@"\n')
    path.chmod(0o755)
    return str(path)


async def test_a_zygote_that_is_killed_at_any_moment_loses_no_process():
    zygote, before = Zygote(sys.executable, os.defpath, 60.0), children()
    assert await end(await zygote.fork("ab" * 8, None, None))
    for turns in range(0, 40, 5):
        forking = [asyncio.ensure_future(zygote.fork("ab" * 8, None, None)) for _ in range(6)]
        while zygote._running is None:
            await asyncio.sleep(0)
        for _ in range(turns):
            await asyncio.sleep(0)
        if zygote._running is not None:
            os.kill(zygote._running._process.pid, signal.SIGKILL)
        for agent in await asyncio.gather(*forking):
            assert agent is None or await end(agent)
    await zygote.aclose()
    assert children() == before


def test_a_caller_that_is_killed_leaves_no_program():
    token = sleep_token()
    done = subprocess.run([sys.executable, "-c", KILLED, token], timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL
    while processes_here(token):
        pass


async def test_an_agent_that_nobody_waits_for_is_waited_for_with_the_next_one():
    zygote = Zygote(sys.executable, os.defpath, 60.0)
    agent = await zygote.fork("ab" * 8, None, None)
    pid = agent.pid
    agent.stream.writer.close()
    del agent
    gc.collect()
    while pid in children():
        assert await end(await zygote.fork("ab" * 8, None, None))
    await zygote.aclose()


async def test_agents_have_the_limits_that_the_caller_has_now():
    zygote = Zygote(sys.executable, os.defpath, 60.0)
    usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        for soft in (usual[0], usual[0] - 1):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, usual[1]))
            agent = await zygote.fork("ab" * 8, None, None)
            assert resource.prlimit(agent.pid, resource.RLIMIT_NOFILE) == (soft, usual[1])
            assert await end(agent)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)
    await zygote.aclose()


async def test_a_zygote_that_fails_after_another_has_forked_is_tried_again(monkeypatch, caplog):
    zygote = Zygote(sys.executable, os.defpath, 60.0)
    assert await end(await zygote.fork("ab" * 8, None, None))
    os.kill(zygote._running._process.pid, signal.SIGKILL)
    assert await wait_until_gone(zygote._running._process.pid)
    with monkeypatch.context() as patched:
        patched.setattr("hermes_sandbox.local.zygote.ZYGOTE_FLAGS", ("-c", "raise SystemExit('not now')"))
        assert await zygote.fork("ab" * 8, None, None) is None
    assert await end(await zygote.fork("ab" * 8, None, None))
    await zygote.aclose()
    assert [record.message.partition(" starts")[0] for record in caplog.records] == ["one agent"]


async def test_a_zygote_without_room_for_all_descriptors_starts_nothing(tmp_path):
    (tmp_path / "cgroup.procs").touch()
    zygote = Zygote(sys.executable, os.defpath, 60.0)
    assert await end(await zygote.fork("ab" * 8, Group([tmp_path]), None))
    for room in (3, 4, 5):
        running = zygote._running
        resource.prlimit(running._process.pid, resource.RLIMIT_NOFILE, (room, room))
        assert await zygote.fork("ab" * 8, Group([tmp_path]), None) is None
        assert await end(await zygote.fork("ab" * 8, Group([tmp_path]), None))
    await zygote.aclose()


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
    assert not await end(agent)
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
    assert await end(await zygote.fork("ab" * 8, None, None))
    pid = zygote._running._process.pid
    del zygote
    gc.collect()
    assert await wait_until_gone(pid)


def test_a_program_of_another_thread_has_a_zygote_of_its_own_and_an_agent_has_not():
    """A program is to die with its parent, which is the thread that has started the zygote."""
    zygote, seen = Zygote(sys.executable, os.defpath, 60.0), []

    async def use(*, program):
        if program:
            process = await zygote.run(["sleep", "600"], None, None, environment={"PATH": os.defpath})
            process.stream.writer.close()
            assert not await process.end(0.0)
        else:
            assert await end(await zygote.fork("ab" * 8, None, None))
        seen.append(zygote._running._process.pid)

    async def use_all():
        for program in (True, False):
            await use(program=program)
            await asyncio.to_thread(lambda program: asyncio.run(use(program=program)), program)
        await zygote.aclose()

    asyncio.run(use_all())
    assert (len({*seen}), seen[1:].count(seen[1])) == (2, 3)


def test_a_caller_that_ignores_the_end_of_its_children_can_renew_and_close_sandboxes(tmp_path):
    command = [sys.executable, "-c", IGNORING, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr, [*tmp_path.iterdir()]) == ("hi\nhi\n", "", [])
