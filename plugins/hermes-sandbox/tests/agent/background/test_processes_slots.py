"""Background processes where many slots share one agent: each has its own, as its own user."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from background import reads
from sandbox_support import UID, processes_of, slot_fields, wait_until_gone
from time_limits import may_have_been_idle

from hermes_core.contracts.errors import SandboxLostError
from hermes_sandbox.backends import PYTHON_FLAGS, AgentStream
from hermes_sandbox.protocol.client import AgentClient
from hermes_sandbox.protocol.processes import AgentProcesses
from hermes_sandbox.protocol.slots import AgentSlot
from hermes_testing.watching import eventually, with_more_time

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="slots have users of their own only under root")
MARKER = f"jobs{os.getpid()}"


@pytest.fixture
def folder():
    # Not tmp_path: its parents are closed to the users of slots.
    with tempfile.TemporaryDirectory(prefix="hermes-test-") as made:
        Path(made).chmod(0o755)
        yield Path(made)


@asynccontextmanager
async def shared_agent():
    ours, theirs = socket.socketpair()
    environment = {"HERMES_SANDBOX": f"{MARKER}.0", "PATH": "/usr/bin:/bin"}
    process = subprocess.Popen([sys.executable, *PYTHON_FLAGS], stdin=theirs, stdout=theirs, env=environment)
    theirs.close()
    stream = AgentStream(*await asyncio.open_connection(sock=ours))
    client = await AgentClient.connect(stream, {"marker": MARKER, "limits": {}}, timeout=60)
    try:
        yield client
    finally:
        await client.aclose()
        assert await asyncio.to_thread(process.wait, 60) == 0
        assert processes_of(MARKER) == []


async def processes_in(client, folder, name, **fields):
    given = {"state_dir": None, "own_directory": True, **fields}
    slot = await AgentSlot.open(client, slot_fields(folder / name, **given), exclusive=False)
    return slot, AgentProcesses(lambda: slot)


async def output_of(processes, command, **options):
    started = await processes.start(command, **options)
    assert not (await processes.wait(started.id, timeout=60)).running
    return (await processes.read(started.id)).data.decode().replace("\r\n", "\n")


@needs_root
@pytest.mark.parametrize("pty", [False, True])
async def test_a_process_has_the_user_and_the_umask_of_its_slot(folder, pty):
    async with shared_agent() as client:
        _, own = await processes_in(client, folder, "one", uid=UID + 1, gid=UID + 2, umask=0o027)
        assert await output_of(own, "id -u; id -g; id -G; umask", pty=pty) == f"{UID + 1}\n{UID + 2}\n{UID + 2}\n0027\n"


@needs_root
async def test_a_terminal_belongs_to_the_user_of_its_slot(folder):
    async with shared_agent() as client:
        _, own = await processes_in(client, folder, "one", uid=UID + 1)
        script = "stat -c %u $(tty); exec 5<>$(tty) && echo opened >&5"
        assert await output_of(own, script, pty=True) == f"{UID + 1}\nopened\n"


@needs_root
async def test_a_kill_reaches_the_processes_of_another_user(folder):
    async with shared_agent() as client:
        _, own = await processes_in(client, folder, "one", uid=UID + 1)
        started = await own.start("setsid sleep 600 & trap '' TERM; echo $!; wait; sleep 601")
        child = int(await reads(own, started.id, b"\n"))
        ended = await own.kill(started.id, grace=0.1)
        assert (ended.running, ended.exit_code) == (False, 137)
        assert await wait_until_gone(child)


async def test_a_slot_knows_its_own_processes_only(folder):
    async with shared_agent() as client:
        _, one = await processes_in(client, folder, "one")
        _, other = await processes_in(client, folder, "other")
        started = await one.start("read line; exit 4")
        assert await other.list() == []
        for question in (other.poll(started.id), other.write(started.id, b"x"), other.kill(started.id)):
            with pytest.raises(ProcessLookupError):
                await question
        await one.write(started.id, b"\n")
        assert (await one.wait(started.id)).exit_code == 4


async def test_killing_in_one_slot_leaves_the_others_alone(folder):
    async with shared_agent() as client:
        _, one = await processes_in(client, folder, "one")
        _, other = await processes_in(client, folder, "other")
        mine, theirs = await one.start("exec sleep 600"), await other.start("read line; exit 4")
        await one.kill(mine.id)
        await other.write(theirs.id, b"\n")
        assert (await other.wait(theirs.id)).exit_code == 4


async def test_a_reset_ends_the_processes_and_no_old_id_means_a_new_one(folder):
    async with shared_agent() as client:
        slot, own = await processes_in(client, folder, "one")
        old = await own.start("exec sleep 600")
        await slot.reset()
        assert await wait_until_gone(old.pid)
        new = await own.start("read line")
        assert new.id != old.id
        with pytest.raises(ProcessLookupError):
            await own.poll(old.id)


async def test_a_slot_with_a_running_process_is_not_idle(folder):
    """hermes-agent's defect: the idle reaper ended sandboxes in which something was running."""
    async with shared_agent() as client:

        async def attempt(lifetime):
            told = asyncio.Queue()
            begun = folder / f"begun-{lifetime:g}"
            with may_have_been_idle(lifetime, begun):
                slot, own = await processes_in(client, folder, f"for-{lifetime:g}", lifetime=lifetime)
                # Whether it is lost by then is looked at in this very moment, not when the test gets its turn.
                slot.on_event("job_ended", lambda header, _body: told.put_nowait((header["exit_code"], slot.lost)))
                await own.start(f"touch {begun}; sleep {lifetime + 0.3}")
            assert await eventually(lambda: not told.empty() or slot.lost is not None, seconds=lifetime + 30)
            assert not told.empty(), slot.lost
            assert told.get_nowait() == (0, None)
            # One that does not end by itself ends with the agent.
            assert await eventually(lambda: slot.lost is not None, seconds=lifetime + 30)
            with pytest.raises(SandboxLostError, match="it was idle for"):
                await own.list()

        await with_more_time(attempt)


async def test_the_end_of_a_process_is_told_without_being_asked(folder):
    async with shared_agent() as client:
        slot, own = await processes_in(client, folder, "one")
        told = asyncio.get_running_loop().create_future()
        slot.on_event("job_ended", lambda header, _body: told.set_result((header["job"], header["exit_code"])))
        started = await own.start("exit 9")
        assert await told == (started.id, 9)
