"""The bound on processes that every sandbox has: what it is, that it holds, and how what is in it is ended."""

from __future__ import annotations

import asyncio
import itertools
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
from sandbox_support import backend, free_users, processes_of, slot_fields, wait_until_gone

from hermes_core.contracts.errors import BackendError, SandboxLostError, SandboxRefusedError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_sandbox.backend import bubblewrap
from hermes_sandbox.local import cgroups
from hermes_sandbox.local.cgroups import PREFIX, ControlGroups
from hermes_sandbox.protocol.bootstrap import PYTHON_FLAGS
from hermes_sandbox.protocol.client import AgentClient
from hermes_sandbox.protocol.slots import AgentSlot
from hermes_sandbox.protocol.streams import AgentStream
from hermes_testing.watching import eventually

users = itertools.count(free_users(100))
"""Users of this process's own, each for one test: the dead of another would be counted."""
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
SLEEPERS = "i=0; while [ $i -lt 60 ]; do sleep 60 & i=$((i + 1)); done"
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


async def crowd_in(sandbox):
    """Fill a sandbox with sleepers until nothing can be started in it any more; returns their name."""
    name = f"s{uuid.uuid4().hex[:12]}"
    await sandbox.exec(f"cp $(command -v sleep) {name}")
    await sandbox.exec(f"(for i in {{1..60}}; do ./{name} 60 & done) >/dev/null 2>&1 &")

    async def refuses():
        # dash gives up at the first refusal, and bash after half a minute.
        refused = await sandbox.exec("exec dash -c 'echo $(echo a process)'", timeout=60)
        return refused.exit_code != 0 and ("fork: Resource" in refused.output or "Cannot fork" in refused.output)

    assert await eventually(refuses)
    return name


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
        name = await crowd_in(full)
        # A process has the name only once it has begun to run: on a busy machine that is after it was counted.
        assert await eventually(lambda: len(running(name)) >= 12)
        assert len(running(name)) <= 27
        assert (await other.exec("for i in {1..12}; do sleep 0 & done; wait; echo room")).output == "room\n"
        subprocess.run(["true"], check=True)
        await full.aclose()
        assert running(name) == []
        assert (await other.exec("echo $(echo still here)")).output == "still here\n"


@kinds
async def test_what_forks_at_full_speed_is_gone_when_its_sandbox_is_closed(kind, tmp_path):
    program, name = forker(tmp_path), f"f{uuid.uuid4().hex[:12]}"
    async with sandboxes(kind, count=2, pids=100) as [idle, crowded]:
        await idle.exec("for i in {1..80}; do sleep 60 & done >/dev/null 2>&1")
        usual = await seconds_to_close(idle)
        await crowded.write_file(name, program, mode=0o755)
        await crowded.exec(f"(setsid ./{name} >/dev/null 2>&1 &)")
        assert await eventually(lambda: len(running(name)) > 80)
        took = await seconds_to_close(crowded)
        assert running(name) == []
        assert took < CLOSING + 10 * usual


@kinds
async def test_a_sandbox_that_was_full_has_room_again_after_a_renewal(kind):
    async with sandboxes(kind, pids=24) as [sandbox]:
        await crowd_in(sandbox)
        await sandbox.renew()
        assert (await sandbox.exec("for i in {1..12}; do sleep 0 & done; wait; echo room")).output == "room\n"


@pytest.mark.parametrize("limit", [0, -5])
@kinds
async def test_a_bound_that_is_no_amount_is_refused(kind, limit):
    with pytest.raises(SandboxRefusedError, match="limit pids: expected a number above 0"):
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
    if ControlGroups().place("pids") is None:
        pytest.skip("no control group can be made here")
    cgroups._find_place.cache_clear()
    monkeypatch.setattr(cgroups, "_LIMIT_FILES", {(1, "pids"): "notify_on_release", (2, "pids"): "cgroup.max.depth"})
    groups = ControlGroups()
    try:
        assert groups.place("pids") is None
    finally:
        cgroups._find_place.cache_clear()


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
        assert await wait_until_gone(pid)
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
async def agent_of(user, *by):
    """Start an agent as another user of this machine, as `ssh` and `slurm` do, by way of another program if need be."""
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if python is None:
        pytest.skip("no python3 that every user may run")
    ours, theirs = socket.socketpair()
    mark = uuid.uuid4().hex[:16]
    environment = {"HERMES_SANDBOX": f"{mark}.0", "PATH": "/usr/bin:/bin"}
    process = subprocess.Popen(
        [*by, python, *PYTHON_FLAGS],
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
    client = await AgentClient.connect(stream, {"marker": mark, "limits": {}}, timeout=60)
    try:
        yield client
    finally:
        await client.aclose()
        assert await asyncio.to_thread(process.wait, 60) == 0
        assert processes_of(mark) == []


@pytest.fixture
def uid():
    return next(users)


@pytest.fixture
def open_folder(uid):
    folder = Path(f"/tmp/hermes-test-{uuid.uuid4().hex[:12]}")
    folder.mkdir()
    os.chown(folder, uid, uid)
    yield folder
    shutil.rmtree(folder)


async def run(slot, command, timeout=120, stdin=b"", cwd=None):
    text = command.encode()
    header = {"op": "exec", "command": len(text), "stdin": bool(stdin), "timeout": timeout, "limit": 9999, "cwd": cwd}
    answer, output = await slot.request({**header, "env": {}, "merge_stderr": True}, text + stdin)
    return answer["exit_code"], output.decode()


@as_root
@pytest.mark.parametrize("exclusive", [True, False])
async def test_without_root_the_bound_is_what_the_user_has_and_as_many_more(open_folder, uid, exclusive):
    others = [subprocess.Popen(["sleep", "600"], user=uid, group=uid, extra_groups=[]) for _ in range(7)]
    try:
        async with agent_of(uid) as client:
            fields = slot_fields(open_folder / "w", state_dir=None, processes=30)
            slot = await AgentSlot.open(client, fields, exclusive=exclusive)
            assert slot.process_bound == "30 more than its user had, by RLIMIT_NPROC"
            # Seven others and the agent.
            assert await run(slot, "ulimit -u; ulimit -Hu") == (0, "38\n38\n")
            # dash gives up at the first refusal, and bash after half a minute.
            code, said = await run(slot, f"exec dash -c '{SLEEPERS}'", timeout=60)
            assert (code, "Cannot fork" in said) == (2, True)
            await slot.reset()
            assert await run(slot, "echo $(echo next)") == (0, "next\n")
    finally:
        for other in others:
            other.kill()
            other.wait()


@as_root
async def test_what_forks_at_full_speed_ends_with_the_slot_of_a_user(open_folder, uid, tmp_path):
    program, name = forker(tmp_path), f"f{uuid.uuid4().hex[:12]}"
    async with agent_of(0) as client:
        fields = slot_fields(open_folder / "w", state_dir=None, own_directory=True, uid=uid, gid=uid, processes=100)
        slot = await AgentSlot.open(client, fields, exclusive=False)
        assert slot.process_bound == "100 of its user, by RLIMIT_NPROC"
        await slot.upload({"op": "write", "path": name, "mode": 0o755}, program)
        await run(slot, f"(setsid ./{name} >/dev/null 2>&1 &)")
        assert await eventually(lambda: len(running(name)) > 80)
        await slot.aclose()
        assert running(name) == []


@as_root
async def test_a_user_that_others_have_too_gets_as_many_more_than_those_have(open_folder, uid):
    other = subprocess.Popen(["sleep", "600"], user=uid, group=uid, extra_groups=[])
    try:
        async with agent_of(0) as client:
            fields = slot_fields(open_folder / "w", state_dir=None, uid=uid, gid=uid, processes=30, shared_user=True)
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
@pytest.mark.component("bwrap")
@pytest.mark.parametrize("old", [True, False])
async def test_where_a_user_namespace_counts_for_nothing_bubblewrap_has_a_control_group(monkeypatch, old):
    """Root is held to no number, and before Linux 5.14 a user's processes were counted over all namespaces."""
    monkeypatch.setattr(bubblewrap, "counts_apart", lambda: not old)
    spec = SandboxSpec(isolation="bwrap")
    async with backend(**({} if old else {"uid": 0})) as made, await made.open(spec) as opened:
        assert bound_of(opened).startswith("1024, by cgroup v")


@as_root
async def test_what_a_killed_agent_left_in_the_group_of_a_slot_ends_when_the_slot_is_opened_again(open_folder):
    place = ControlGroups().place("pids")
    if place is None:
        pytest.skip("no control group can be made here")
    fields = slot_fields(open_folder / "w", state_dir=None, processes=30)
    group = place.directory / f"{PREFIX}{fields['name']}"
    group.mkdir()
    with subprocess.Popen(["sleep", "300"]) as left:
        (group / "cgroup.procs").write_text(str(left.pid))
        async with agent_of(0) as client:
            slot = await AgentSlot.open(client, fields, exclusive=False)
            assert await asyncio.to_thread(left.wait, 60) == -signal.SIGKILL
            assert await run(slot, "echo $(echo room)") == (0, "room\n")
            await slot.aclose()
    assert not group.exists()


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


@as_root
async def test_a_live_command_that_cannot_be_started_deletes_nothing(open_folder):
    """It was the null device that it took for its input."""
    own_dev = 'mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && exec "$@"'
    async with agent_of(0, "unshare", "--mount", "sh", "-c", own_dev, "sh") as client:
        fields = slot_fields(open_folder / "w", state_dir=None, session="live")
        slot = await AgentSlot.open(client, fields, exclusive=False)
        assert (await run(slot, "cat", stdin=b"x", cwd="missing"))[0] == 126
        assert await run(slot, "test -c /dev/null && echo there") == (0, "there\n")
        await slot.aclose()


@as_root
@pytest.mark.parametrize("shared_user", [False, True])
async def test_a_lower_limit_of_the_agent_s_own_is_what_holds_and_what_is_said(open_folder, uid, shared_user):
    weaker = ("setpriv", "--bounding-set=-sys_resource,-sys_admin", "--inh-caps=-sys_resource,-sys_admin")
    async with agent_of(0, "prlimit", "--nproc=50:50", *weaker) as client:
        fields = slot_fields(open_folder / "w", state_dir=None, uid=uid, gid=uid, processes=1024)
        fields = {**fields, "own_directory": True, "shared_user": shared_user}
        slot = await AgentSlot.open(client, fields, exclusive=False)
        assert slot.process_bound.split()[0] == "50"
        assert await run(slot, "ulimit -Hu; echo $(echo room)") == (0, "50\nroom\n")
        await slot.aclose()


@as_root
async def test_a_slot_that_stops_whatever_it_can_keeps_no_other_from_being_opened(open_folder, uid):
    """Who counts the processes of a user is one of them, which the others can stop."""
    inside = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    same = ("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups")
    async with agent_of(0, *inside, *same) as client:
        fields = {**slot_fields(open_folder / "a", state_dir=None), "processes": 40}
        one = await AgentSlot.open(client, fields, exclusive=False)
        # Nothing outside this namespace can be hit.
        assert await run(one, "echo $PPID") == (0, "1\n")
        stopper = "import os, time\nfor _ in range(3000): os.kill(-1, 19); time.sleep(0.001)"
        await one.upload({"op": "write", "path": "stop.py", "mode": None}, stopper.encode())
        await run(one, "(setsid python3 stop.py >/dev/null 2>&1 &)")
        for number in range(5):
            fields = {**slot_fields(open_folder / f"b{number}", state_dir=None), "processes": 40}
            other = await AgentSlot.open(client, fields, exclusive=False, deadline=60)
            assert other.process_bound == "40 more than its user had, by RLIMIT_NPROC"
        await client.request({"op": "ping"})


@as_root
async def test_a_root_user_who_leaves_the_group_does_not_outlive_a_killed_agent():
    async with backend() as made:
        sandbox = await made.open(NONE)
        [group] = [Path(path) for path in made.handle(NONE, sandbox.id)["groups"]]
        leave = f"echo $BASHPID >{group.parent}/cgroup.procs; echo $BASHPID >pid; exec sleep 300"
        await sandbox.exec(f"(setsid bash -c '{leave}' >/dev/null 2>&1 &)")
        written = Path(sandbox.workspace, "pid")
        assert await eventually(lambda: written.exists() and written.stat().st_size > 0)
        pid = int(await sandbox.read_file("pid"))
        with pytest.raises(SandboxLostError):
            await sandbox.exec("kill -9 $PPID; sleep 60")
        await sandbox.aclose()
        assert await wait_until_gone(pid)


@as_root
async def test_a_slot_whose_group_has_gone_starts_nothing_without_a_bound():
    async with backend(slots_per_agent=4) as made:
        sandbox, other = await made.open(NONE), await made.open(NONE)
        [group] = [Path(path) for path in made.handle(NONE, sandbox.id)["groups"]]
        group.rmdir()
        with pytest.raises(BackendError, match="could not be started"):
            await sandbox.exec("echo unbounded")
        assert (await other.exec("echo $(echo on)")).output == "on\n"


@as_root
async def test_what_a_user_s_other_programs_start_later_takes_nothing_from_a_slot(open_folder, uid):
    others = []
    async with agent_of(uid) as client:
        fields = slot_fields(open_folder / "w", state_dir=None, processes=20)
        slot = await AgentSlot.open(client, fields, exclusive=True)
        try:
            others += [subprocess.Popen(["sleep", "600"], user=uid, group=uid, extra_groups=[]) for _ in range(40)]
            # The number of the first command is counted when it is started.
            assert await run(slot, "for i in {1..10}; do sleep 0 & done; wait; echo room") == (0, "room\n")
        finally:
            for other in others:
                other.kill()
                other.wait()
