"""Limits of a sandbox: what each of them does to a model that exceeds it, and what happens where one cannot be had."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from crowds import forker
from sandbox_support import LEVELS, agent_of, backend, wait_until_gone
from sandbox_support import sandbox as open_one

from hermes_core.contracts.errors import SandboxLostError, SandboxRefusedError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_sandbox.local import cgroups
from hermes_sandbox.local.cgroups import PREFIX, ControlGroups, Group
from hermes_testing.watching import TooSoon, eventually, with_more_time

ALL = ("memory", "pids", "cpu")
HOG = "python3 -c 'data = bytearray(400 << 20); print(len(data))'"
BOMB = "f() { [ $1 -gt 0 ] && { f $(($1 - 1)) & f $(($1 - 1)) & }; exec sleep 30; }; f 8 & sleep 300"
"""Finite, for where the limit does not hold: 511 processes, which are gone half a minute after the last was started."""
ESCAPED = "env -i setsid bash -c 'echo $$ >pid; cd /; exec sleep 300' >/dev/null 2>&1 &"
ESCAPED += " until [[ -s pid ]]; do sleep 0.01; done"


ON_DISK = {"/home/sandbox", "/tmp", "/workspace"}
"""The sandbox's own directories; `disk_mb` bounds those, and nothing else does."""
_MKDIR = Path.mkdir


@pytest.fixture
def groups():
    found = ControlGroups()
    missing = [name for name in ALL if found.place(name) is None]
    if missing:
        if os.environ.get("CI"):
            pytest.fail(f"no control group for {missing}: {found.reason(missing[0])}")
        pytest.skip(f"no control group for {missing}: {found.reason(missing[0])}")
    return found


@pytest.fixture(params=LEVELS)
def level(request, groups):
    return request.param


def leftover_groups(groups, sandbox_id):
    return [path for path in groups.paths(sandbox_id, ALL) if path.exists()]


async def test_a_command_that_takes_too_much_memory_is_killed_and_the_sandbox_is_not(level):
    async with open_one(level, memory_mb=128) as sandbox:
        await sandbox.exec("export KEPT=1")
        assert (await sandbox.exec(HOG)).exit_code == 137
        assert (await sandbox.exec("echo $KEPT")).output == "1\n"
        assert sandbox.provenance["limits"]["memory"].startswith("cgroup v")


async def test_a_fork_bomb_stays_in_its_limit_and_the_next_command_works(level, groups):
    async with open_one(level, pids=60) as sandbox:
        [path] = groups.paths(sandbox.id, ["pids"])

        def refusals():
            events = dict(line.split() for line in (path / "pids.events").read_text().splitlines())
            return int(events["max"])

        async def attempt(limit):
            before = refusals()
            result = await sandbox.exec(BOMB, timeout=limit)
            TooSoon.unless(refusals() > before, "the bomb had not come to its limit")
            return result

        assert (await with_more_time(attempt)).timed_out
        assert (await sandbox.exec("echo next")).output == "next\n"
        # The dead are counted until they have been collected.
        assert await eventually(lambda: int((path / "pids.current").read_text()) < 10)
    assert not path.exists()


async def test_the_processor_share_is_what_was_asked_for(level, groups):
    # A small share: a busy machine might give no more than a large one by itself.
    async with open_one(level, cpu=0.1) as sandbox:
        [path] = groups.paths(sandbox.id, ["cpu"])

        async def is_throttled():
            await sandbox.exec("i=0; while ((i < 50000)); do ((i++)); done")
            counts = dict(line.split() for line in (path / "cpu.stat").read_text().splitlines())
            return int(counts["nr_throttled"]) > 0

        assert await eventually(is_throttled)


async def test_everything_of_a_sandbox_is_in_its_group(level, groups):
    async with open_one(level, memory_mb=128, pids=64, cpu=2) as sandbox:
        await sandbox.exec("setsid sleep 300 & (env -i setsid sleep 300 &)")
        inside = [set((path / "cgroup.procs").read_text().split()) for path in groups.paths(sandbox.id, ALL)]
        assert len(inside[0]) >= 3
        assert inside[1:] == inside[:-1]
        await sandbox.renew()
        await sandbox.exec("sleep 300 &")
        assert not inside[0] & set(groups.paths(sandbox.id, ALL)[0].joinpath("cgroup.procs").read_text().split())
    assert leftover_groups(groups, sandbox.id) == []


async def test_what_a_killed_agent_had_started_ends_with_its_control_group(groups):
    """hermes-agent's defect: what a killed supervisor had started lived on."""
    async with open_one() as sandbox:
        await sandbox.exec(ESCAPED)
        pid = int(await sandbox.read_file("pid"))
        with pytest.raises(SandboxLostError):
            await sandbox.exec("kill -9 $PPID; sleep 60")
        # Another may have left the group, as root can: nobody is to judge beside that.
        with pytest.raises(SandboxLostError, match="not everything it started can be found"):
            await sandbox.renew()
        assert await wait_until_gone(pid)
    assert leftover_groups(groups, sandbox.id) == []


async def test_reclaiming_ends_a_group_with_all_that_is_in_it(groups):
    async with backend() as made:
        sandbox = await made.open(SandboxSpec(pids=40))
        await sandbox.exec(ESCAPED)
        pid = int(await sandbox.read_file("pid"))
        handle = made.handle(SandboxSpec(pids=40), sandbox.id)
        await made.reclaim(handle)
        assert await wait_until_gone(pid)
        assert leftover_groups(groups, sandbox.id) == []
        await made.reclaim(handle)


@pytest.mark.component("bwrap")
async def test_the_disk_is_full_at_its_limit_and_survives_a_renewal():
    if os.geteuid() != 0:
        pytest.skip("limiting the disk needs root")
    async with open_one("bwrap", disk_mb=8) as sandbox:
        assert sandbox.provenance["limits"]["disk"] == "tmpfs"
        assert sandbox.provenance["runtime"].startswith("bubblewrap ")
        result = await sandbox.exec("head -c 20000000 /dev/zero >big; head -c 20000000 /dev/zero >$HOME/more")
        assert "No space left on device" in result.output
        assert (await sandbox.stat("big")).size < 8 << 20
        await sandbox.remove("big")
        await sandbox.write_file("kept", b"x")
        await sandbox.renew()
        assert await sandbox.read_file("kept") == b"x"
        outside = "for d in / /dev /usr /run /etc; do touch $d/new 2>/dev/null && echo $d; done"
        assert (await sandbox.exec(outside)).output == ""


@pytest.mark.component("bwrap")
@pytest.mark.parametrize("memory_limit", ["per_sandbox", "per_process"])
@pytest.mark.parametrize("disk_mb", [None, 32])
async def test_nothing_that_lies_in_memory_is_larger_than_a_part_of_the_memory(
    request, tmp_path, memory_limit, disk_mb
):
    if disk_mb is not None and os.geteuid() != 0:
        pytest.skip("limiting the disk needs root")
    options = {"memory_limit": memory_limit}
    if memory_limit == "per_process":
        options["cgroup"] = tmp_path  # none can be made there
    else:
        request.getfixturevalue("groups")
    async with open_one("bwrap", options, memory_mb=160, disk_mb=disk_mb) as sandbox:
        await sandbox.exec("export KEPT=1")
        # All that the sandbox's user may write to, but for its own directories; the kernel's make no files.
        found = await sandbox.exec(r"find / -xdev -type d -writable; find /dev -type d -writable ! -path '/dev/pts*'")
        places = {*found.output.split(), "/etc", "/run", "/dev", "/dev/shm", "/run/hermes"} - ON_DISK
        for place in sorted(places):
            # A third more than a place may hold, and gone again: that is little where nothing is held to anything.
            tried = await sandbox.exec(
                f"mkdir -p {place}/in && head -c {54 << 20} /dev/zero >{place}/in/new; rm -r {place}/in"
            )
            refused = ("No space left", "Read-only file system", "Permission denied", "File exists")
            assert any(why in tried.output for why in refused), (place, tried.output)
        full = "; ".join(f"head -c {54 << 20} /dev/zero >{place}/new" for place in ("/etc", "/dev/shm"))
        assert (await sandbox.exec(full)).exit_code == 1
        assert (await sandbox.exec("echo $KEPT")).output == "1\n"


@pytest.mark.component("bwrap")
async def test_with_a_memory_limit_the_system_can_be_added_to():
    async with open_one("bwrap", memory_mb=128) as sandbox:
        assert (
            await sandbox.exec("mkdir /data && echo kept > /data/f && touch /etc/f && cat /data/f")
        ).output == "kept\n"
        assert (await sandbox.exec("touch /dev/f")).exit_code == 1


@pytest.mark.component("bwrap")
async def test_a_file_larger_than_its_limit_ends_the_command():
    async with open_one("bwrap", file_size_mb=1) as sandbox:
        assert (await sandbox.exec("head -c 3000000 /dev/zero >big; echo $?")).stdout == b"153\n"
        assert sandbox.provenance["limits"]["file_size"] == "rlimit, per process"


@pytest.mark.parametrize("fields", [{"memory_mb": 64}, {"cpu": 1.0}])
async def test_a_limit_that_cannot_be_enforced_stops_the_run_and_says_what_to_do(tmp_path, fields):
    async with backend(cgroup=tmp_path) as made:
        with pytest.raises(SandboxRefusedError, match="cannot be enforced here") as caught:
            await made.check(SandboxSpec(**fields))
        assert next(iter(fields)) in str(caught.value)
        assert "run as root" in caught.value.hint
        with pytest.raises(SandboxRefusedError):
            await made.open(SandboxSpec(**fields))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("level", LEVELS)
async def test_a_weaker_limit_is_used_only_when_it_was_accepted_and_is_recorded(tmp_path, level):
    async with open_one(level, {"cgroup": tmp_path, "memory_limit": "per_process"}, memory_mb=200) as sandbox:
        assert sandbox.provenance["limits"]["memory"] == "rlimit, per process"
        assert "MemoryError" in (await sandbox.exec(HOG)).output
        assert (await sandbox.exec("ulimit -v unlimited")).exit_code == 1


async def test_the_disk_cannot_be_limited_without_isolation():
    async with backend() as made:
        with pytest.raises(SandboxRefusedError, match="disk_mb at isolation 'none'"):
            await made.check(SandboxSpec(disk_mb=8))


@pytest.mark.parametrize("fields", [{"memory_mb": 0}, {"pids": -1}, {"cpu": 0.0}, {"cpu": float("nan")}])
async def test_a_limit_that_is_no_amount_is_refused(groups, fields):
    async with backend() as made:
        with pytest.raises(SandboxRefusedError, match="expected a number above 0"):
            await made.open(SandboxSpec(**fields))


async def test_what_is_found_out_about_control_groups_leaves_none_behind(groups, monkeypatch):
    # Anybody else on this machine may be finding it out at this moment.
    own = f"{PREFIX}probe-own-{os.getpid()}-"
    monkeypatch.setattr(cgroups, "PROBE_PREFIX", own)
    made = []

    def make(path, *arguments, **options):
        made.append(path.name)
        _MKDIR(path, *arguments, **options)

    monkeypatch.setattr(Path, "mkdir", make)
    cgroups._find_place.cache_clear()
    for controller in ALL:
        place = groups.place(controller)
        assert place is not None
        assert [path for path in place.directory.iterdir() if path.name.startswith(own)] == []
    assert len([name for name in made if name.startswith(own)]) >= len(ALL)


async def test_a_group_is_emptied_although_its_processes_fork_as_fast_as_they_can(groups, tmp_path):
    async with open_one(pids=100) as sandbox:
        [path] = groups.paths(sandbox.id, ["pids"])
        await sandbox.write_file("forker", forker(tmp_path), mode=0o755)
        agent = agent_of(sandbox.id)
        await sandbox.exec("(setsid ./forker >/dev/null 2>&1 &)")
        assert await eventually(lambda: int((path / "pids.current").read_text()) > 50)
        os.kill(agent, signal.SIGKILL)
        with pytest.raises(SandboxLostError, match="not everything it started can be found"):
            await sandbox.renew()
        assert len(path.joinpath("cgroup.procs").read_text().split()) < 4
        assert int(Path(path, "pids.max").read_text()) > 100


def test_a_probe_that_was_cut_off_is_cleared_away_when_it_is_old(groups):
    directory = groups.place("pids").directory
    old, fresh = (directory / f"{PREFIX}probe-test-{os.getpid()}-{age}" for age in ("old", "fresh"))
    try:
        old.mkdir()
        fresh.mkdir()
        os.utime(old, (1, 1))
        groups.discard_probes()
        assert (old.exists(), fresh.exists()) == (False, True)
    finally:
        for path in (old, fresh):
            if path.exists():
                path.rmdir()


async def test_a_group_of_version_2_follows_a_process_and_ends_with_all_in_it():
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines() if " - cgroup2 " in line]
    if not mounts or not os.access(mounts[0][4], os.W_OK):
        pytest.skip("no control group filesystem of version 2 that can be written to")
    group = Group([Path(mounts[0][4]) / f"{PREFIX}test-{os.getpid()}"])
    group.create({})
    try:
        with subprocess.Popen(["sh", "-c", "read go; setsid sleep 300 & sleep 300"], stdin=subprocess.PIPE) as shell:
            group.add(shell.pid)
            shell.stdin.write(b"go\n")
            shell.stdin.flush()
            assert await eventually(lambda: len(group.members()) >= 3)
            await group.remove()
            assert shell.wait() == -signal.SIGKILL
        assert group.members() == set()
    finally:
        await group.remove()
