"""The bound on processes that every sandbox has: what it is, that it holds, and how what is in it is ended."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import socket
import subprocess
import time
import uuid
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from crowds import forker, running
from sandbox_support import UID, backend, gone, processes_of, slot_fields

from hermes_core.contracts.errors import SandboxLostError, SandboxRefusedError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_sandbox.local import cgroups
from hermes_sandbox.local.cgroups import PREFIX, ControlGroups
from hermes_sandbox.protocol.bootstrap import PYTHON_FLAGS
from hermes_sandbox.protocol.client import AgentClient, AgentStream
from hermes_sandbox.protocol.slots import AgentSlot
from hermes_testing.watching import eventually

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
SLEEPERS = "for i in {1..60}; do sleep 60 & done 2>/dev/null; wait"
"""Finite: 60, where the bounds of these tests are lower."""
CLOSING = 2.0
NONE = SandboxSpec(isolation="none")
KINDS = {
    "a sandbox": {"isolation": "none"},
    "a slot": {"isolation": "none", "slots_per_agent": 4},
    "bubblewrap": {"isolation": "bwrap"},
}
kinds = pytest.mark.parametrize(
    "kind", ["a sandbox", "a slot", pytest.param("bubblewrap", marks=pytest.mark.component("bwrap"))]
)


@asynccontextmanager
async def sandboxes(kind, count=1, **fields):
    options = dict(KINDS[kind])
    spec = SandboxSpec(isolation=options.pop("isolation"), **fields)
    async with backend(**options) as made:
        yield [await made.open(spec) for _ in range(count)]


def bound_of(sandbox):
    return sandbox.provenance["limits"]["pids"]


async def seconds_to_close(sandbox):
    started = time.monotonic()
    await sandbox.aclose()
    return time.monotonic() - started


@kinds
async def test_a_sandbox_that_asks_for_nothing_has_a_thousand_processes_and_says_what_bounds_them(kind):
    async with sandboxes(kind) as [sandbox]:
        assert bound_of(sandbox).split()[0].rstrip(",") == "1024"
        assert " by " in bound_of(sandbox)


@kinds
async def test_a_full_sandbox_says_so_hinders_nobody_and_closes(kind):
    async with sandboxes(kind, count=2, pids=24) as [full, other]:
        name = f"s{uuid.uuid4().hex[:12]}"
        await full.exec(f"cp $(command -v sleep) {name}")
        await full.exec(f"(for i in {{1..60}}; do ./{name} 60 & done) >/dev/null 2>&1 &")
        assert await eventually(lambda: len(running(name)) >= 20)
        # bash tries again for half a minute, and what it starts itself needs no process.
        refused = await full.exec("echo $(echo a process)", timeout=1)
        assert refused.exit_code != 0
        assert "Resource temporarily unavailable" in refused.output
        assert len(running(name)) <= 27
        assert (await other.exec("for i in {1..12}; do sleep 0 & done; wait; echo room")).output == "room\n"
        subprocess.run(["true"], check=True)
        await full.aclose()
        assert running(name) == []
        assert (await other.exec("echo $(echo still here)")).output == "still here\n"


@kinds
async def test_what_forks_at_full_speed_is_gone_when_its_sandbox_is_closed(kind, tmp_path):
    program, name = forker(tmp_path), f"f{uuid.uuid4().hex[:12]}"
    async with sandboxes(kind, count=2, pids=200) as [idle, crowded]:
        await idle.exec("for i in {1..150}; do sleep 60 & done >/dev/null 2>&1")
        usual = await seconds_to_close(idle)
        await crowded.write_file(name, program, mode=0o755)
        await crowded.exec(f"(setsid ./{name} >/dev/null 2>&1 &)")
        assert await eventually(lambda: len(running(name)) > 150)
        took = await seconds_to_close(crowded)
        assert running(name) == []
        assert took < CLOSING + 5 * usual


@kinds
async def test_a_sandbox_that_was_full_has_room_again_after_a_renewal(kind):
    async with sandboxes(kind, pids=24) as [sandbox]:
        await sandbox.exec(f"({SLEEPERS}) >/dev/null 2>&1 &")
        assert await eventually(lambda: len(processes_of(sandbox.id)) >= 20 or kind == "a slot")
        await sandbox.renew()
        assert (await sandbox.exec("for i in {1..12}; do sleep 0 & done; wait; echo room")).output == "room\n"


@pytest.mark.parametrize("limit", [0, -5])
@kinds
async def test_a_bound_that_is_no_amount_is_refused(kind, limit):
    with pytest.raises(SandboxRefusedError, match="pids must be greater than 0"):
        async with sandboxes(kind, pids=limit):
            pass


@as_root
@pytest.mark.parametrize("options", [{}, {"slots_per_agent": 4}])
async def test_where_nothing_bounds_processes_that_is_said_once_and_refused_who_asks(tmp_path, caplog, options):
    async with backend(cgroup=tmp_path, **options) as made:
        with caplog.at_level(logging.WARNING, "hermes_sandbox"):
            for _ in range(2):
                async with await made.open(SandboxSpec()) as sandbox:
                    assert bound_of(sandbox).startswith("none: ")
        assert [record.message for record in caplog.records if "no bound on processes" in record.message] == [
            caplog.records[0].message
        ]
        with pytest.raises(SandboxRefusedError, match="limit pids cannot be enforced here") as caught:
            await made.open(SandboxSpec(pids=64))
        assert "bwrap" in caught.value.hint


@as_root
def test_a_control_group_that_bounds_nothing_is_not_used(monkeypatch):
    """Its files can be there and be written to without any effect: here, those of another setting."""
    monkeypatch.setattr(cgroups, "_usable", {})
    monkeypatch.setattr(cgroups, "_LIMIT_FILES", {(1, "pids"): "notify_on_release", (2, "pids"): "cgroup.max.depth"})
    groups = ControlGroups()
    assert groups.place("pids") is None
    assert "does not hold" in groups.reason("pids") or "Errno" in groups.reason("pids")


@as_root
async def test_a_slot_whose_agent_was_killed_leaves_neither_processes_nor_a_group():
    async with backend(slots_per_agent=4) as made:
        sandbox = await made.open(NONE)
        [group] = [Path(path) for path in made.handle(NONE, sandbox.id)["groups"]]
        assert group.is_dir()
        await sandbox.exec("(cd /; env -i setsid sleep 300 >/dev/null 2>&1 &); echo")
        [pid] = [int(line) for line in (group / "cgroup.procs").read_text().split()]
        with pytest.raises(SandboxLostError):
            await sandbox.exec("kill -9 $PPID; sleep 60")
        await sandbox.aclose()
        assert await gone(pid)
        assert not group.exists()


@as_root
async def test_reclaiming_a_slot_ends_its_group():
    async with backend(slots_per_agent=4) as made:
        sandbox = await made.open(NONE)
        handle = made.handle(NONE, sandbox.id)
        [group] = [Path(path) for path in handle["groups"]]
        await sandbox.exec("(cd /; env -i setsid sleep 300 >/dev/null 2>&1 &); echo")
        await made.reclaim(handle)
        assert not group.exists()


@asynccontextmanager
async def agent_of(user):
    """Start an agent as another user of this machine, as `ssh` and `slurm` do."""
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if python is None:
        pytest.skip("no python3 that every user may run")
    ours, theirs = socket.socketpair()
    mark = uuid.uuid4().hex[:16]
    environment = {"HERMES_SANDBOX": f"{mark}.0", "PATH": "/usr/bin:/bin"}
    process = subprocess.Popen(
        [python, *PYTHON_FLAGS],
        stdin=theirs,
        stdout=theirs,
        env=environment,
        user=user,
        group=user,
        extra_groups=[],
        cwd="/",
    )
    theirs.close()
    stream = AgentStream(*await asyncio.open_connection(sock=ours))
    client = await AgentClient.connect(stream, {"marker": mark, "limits": {}}, timeout=20)
    try:
        yield client
    finally:
        await client.aclose()
        assert await asyncio.to_thread(process.wait, 20) == 0
        assert processes_of(mark) == []


@pytest.fixture
def open_folder(tmp_path_factory):
    folder = Path(f"/tmp/hermes-test-{uuid.uuid4().hex[:12]}")
    folder.mkdir()
    os.chown(folder, UID, UID)
    yield folder
    shutil.rmtree(folder)


async def run(slot, command, timeout=20):
    text = command.encode()
    header = {"op": "exec", "command": len(text), "stdin": False, "timeout": timeout, "limit": 9999, "cwd": None}
    answer, output = await slot.request({**header, "env": {}}, text)
    head, tail, _ = answer["streams"][2]
    return answer["exit_code"], output[-(head + tail) :].decode()


@as_root
@pytest.mark.parametrize("exclusive", [True, False])
async def test_without_root_the_bound_is_what_the_user_has_and_as_many_more(open_folder, exclusive, tmp_path):
    others = [subprocess.Popen(["sleep", "60"], user=UID, group=UID, extra_groups=[]) for _ in range(7)]
    try:
        async with agent_of(UID) as client:
            fields = slot_fields(open_folder / "w", state_dir=None, processes=30)
            slot = await AgentSlot.open(client, fields, exclusive=exclusive)
            assert slot.process_bound == "30 more than its user had, by RLIMIT_NPROC"
            # Seven others and the agent.
            assert await run(slot, "ulimit -u; ulimit -Hu") == (0, "38\n38\n")
            code, said = await run(slot, SLEEPERS.replace("2>/dev/null", ""), timeout=2)
            assert code == 124
            assert "Resource temporarily unavailable" in said
            assert await run(slot, "echo $(echo next)") == (0, "next\n")
    finally:
        for other in others:
            other.kill()
            other.wait()


@as_root
async def test_what_forks_at_full_speed_ends_with_the_slot_of_a_user(open_folder, tmp_path):
    program, name = forker(tmp_path), f"f{uuid.uuid4().hex[:12]}"
    async with agent_of(0) as client:
        fields = slot_fields(open_folder / "w", state_dir=None, own_directory=True, uid=UID, gid=UID, processes=200)
        slot = await AgentSlot.open(client, fields, exclusive=False)
        assert slot.process_bound == "200 of its user, by RLIMIT_NPROC"
        await slot.upload({"op": "write", "path": name, "mode": 0o755}, program)
        await run(slot, f"(setsid ./{name} >/dev/null 2>&1 &)")
        assert await eventually(lambda: len(running(name)) > 150)
        await slot.aclose()
        assert running(name) == []


@as_root
async def test_a_user_that_others_have_too_gets_as_many_more_than_those_have(open_folder):
    other = subprocess.Popen(["sleep", "60"], user=UID, group=UID, extra_groups=[])
    try:
        async with agent_of(0) as client:
            fields = slot_fields(open_folder / "w", state_dir=None, uid=UID, gid=UID, processes=30, shared_user=True)
            slot = await AgentSlot.open(client, {**fields, "own_directory": True}, exclusive=True)
            assert slot.process_bound == "30 more than its user had, by RLIMIT_NPROC"
            code, said = await run(slot, "ulimit -u")
            # The other one of this user, and thirty.
            assert (code, int(said)) == (0, 31)
            await slot.aclose()
    finally:
        other.send_signal(signal.SIGKILL)
        other.wait()


@as_root
async def test_a_slot_that_cannot_be_opened_leaves_no_group(open_folder):
    place = ControlGroups().place("pids")
    if place is None:
        pytest.skip("no control group can be made here")
    async with agent_of(0) as client:
        (open_folder / "w").mkdir()
        fields = slot_fields(open_folder / "w", state_dir=None, own_directory=True, processes=30)
        with pytest.raises(FileExistsError):
            await AgentSlot.open(client, fields, exclusive=False)
        assert not (place.directory / f"{PREFIX}{fields['name']}").exists()
