"""The caller is killed in every phase of a sandbox's life; after `sandboxes gc` nothing of it is left."""

from __future__ import annotations

import asyncio
import functools
import json
import operator
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest
from sandbox_support import LEVELS, processes_of, require, wait_until_gone

from hermes_core.cli import main
from hermes_sandbox.local.cgroups import PREFIX, ControlGroups

pytestmark = pytest.mark.slow

# What is killed is the process itself, by itself, at a known place: no clock decides what it has done by then.
OWNER = textwrap.dedent(
    """
    import asyncio, os, signal, sys
    from pathlib import Path
    from hermes_core.contracts.sandbox import SandboxSpec
    from hermes_sandbox.local import backend as local, files as local_files, hosts as local_hosts
    from hermes_sandbox.local import zygote as local_zygote
    from hermes_sandbox.protocol.client import AgentClient
    from hermes_sandbox.leases.keeper import LeaseKeeper
    from hermes_sandbox.leases.book import LeaseBook
    from hermes_sandbox.protocol.agent_process import AgentProcess
    from hermes_testing.watching import begin

    root, phase = Path(sys.argv[1]), sys.argv[3]

    def die(*args, **kwargs):
        os.kill(os.getpid(), signal.SIGKILL)

    def before(owner, name):
        setattr(owner, name, die)

    def after(owner, name):
        original = getattr(owner, name)
        def wrapped(*args, **kwargs):
            original(*args, **kwargs)
            die()
        setattr(owner, name, wrapped)

    async def started(self, *args, **kwargs):
        await kept(self, *args, **kwargs)
        die()

    async def give_nothing(*_):
        return None

    if phase == "before the lease":
        before(LeaseBook, "write")
    elif phase == "after the lease":
        after(LeaseBook, "write")
    elif phase == "in the middle of creation":
        after(local, "make_directories")
    elif phase == "after creation":
        after(local.Group, "create")
    elif phase == "while the agent starts":
        kept = local_zygote._Running.ask
        local_zygote._Running.ask = started
    elif phase == "before the agent is let in":
        before(local.Group, "open_lists")
    elif phase == "while the agent starts by itself":
        local_zygote.Zygote._request = give_nothing
        kept = local_hosts.LocalHost._start
        local_hosts.LocalHost._start = started
    elif phase == "before the agent that starts by itself is let in":
        local_zygote.Zygote._request = give_nothing
        before(local.Group, "add")
    elif phase == "before the agent's first word":
        before(AgentClient, "connect")
    elif phase == "before the place is removed":
        before(local_files, "_delete_tree")
    elif phase == "before the lease is struck out":
        before(LeaseBook, "remove")

    async def main():
        slots, level = (4, "none") if sys.argv[2] == "slots" else (1, sys.argv[2])
        backend = local.LocalBackend(local.LocalOptions(root_dir=root, slots_per_agent=slots))
        backend.lease_dir = root / "leases"
        limits = {"disk_mb": 8} if level == "bwrap" and os.geteuid() == 0 else {}
        if slots == 1:
            limits["pids"] = 64
        sandbox = await backend.open(SandboxSpec(isolation=level, **limits))
        await sandbox.exec("touch here; setsid sleep 300 & (cd /; env -i setsid sleep 301 &)")
        if phase == "in a command":
            await begin(sandbox, "setsid sleep 300 & touch begun; sleep 300")
            die()
        await sandbox.aclose()

    asyncio.run(main())
    """
)
PLUGINS = {"HERMES_PLUGINS": "hermes-sandbox"}
"""With --all every backend looks for what dead owners left; that of other backends is not these tests'."""
PHASES = [
    "before the lease",
    "after the lease",
    "in the middle of creation",
    "after creation",
    "while the agent starts",
    "before the agent is let in",
    "while the agent starts by itself",
    "before the agent that starts by itself is let in",
    "before the agent's first word",
    "in a command",
    "before the place is removed",
    "before the lease is struck out",
]


@pytest.fixture
def root():
    # Not tmp_path: its parents are closed to the unprivileged user that bubblewrap runs as.
    with tempfile.TemporaryDirectory(prefix="hermes-test-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def pids_place():
    place = ControlGroups().place("pids")
    if place is None:
        pytest.skip("no control group can be used here")
    return place.directory


def kill_at(phase, level, root):
    done = subprocess.run(
        [sys.executable, "-c", OWNER, str(root), level, phase], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


def collect(root, capsys, *more):
    options = json.dumps({"root_dir": str(root)})
    argv = ["sandboxes", "gc", "--json", "--lease-dir", str(root / "leases"), "--backend-options", options, *more]
    status = main(argv, environ=PLUGINS)
    return status, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("phase", PHASES)
def test_nothing_is_left_of_a_caller_that_was_killed(phase, level, root, pids_place, capsys):
    """hermes-agent's defect: what a killed trainer had started piled up."""
    require(level)
    kill_at(phase, level, root)
    ids = [path.stem for path in (root / "leases").glob("*.json")]
    assert len(ids) == (0 if phase == "before the lease" else 1)
    status, answer = collect(root, capsys)
    assert (status, answer["failed"], answer["problems"], answer["removed"]) == (0, {}, [], ids)
    assert [path for path in root.rglob("*") if path.name != "leases"] == []
    for sandbox_id in ids:
        assert processes_of(sandbox_id) == []
        assert not (pids_place / f"{PREFIX}{sandbox_id}").exists()
    assert str(root) not in Path("/proc/self/mounts").read_text()


@pytest.mark.parametrize("phase", PHASES)
def test_nothing_is_left_of_a_caller_whose_sandboxes_shared_an_agent(phase, root, pids_place, capsys):
    """The agent has a lease of its own beside those of its slots."""
    kill_at(phase, "slots", root)
    ids = {path.stem for path in (root / "leases").glob("*.json")}
    status, answer = collect(root, capsys)
    assert (status, answer["failed"], answer["problems"], set(answer["removed"])) == (0, {}, [], ids)
    assert [path for path in root.rglob("*") if path.name != "leases"] == []
    for sandbox_id in ids:
        assert processes_of(sandbox_id) == []
        assert not (pids_place / f"{PREFIX}{sandbox_id}").exists()


@pytest.mark.parametrize("level", LEVELS)
def test_what_has_lost_its_lease_is_found_by_its_own_mark(level, root, pids_place, capsys):
    require(level)
    kill_at("in a command", level, root)
    [lease] = (root / "leases").glob("*.json")
    sandbox_id = lease.stem
    lease.unlink()
    options = json.dumps({"root_dir": str(root)})
    argv = ["sandboxes", "ps", "--all", "--json", "--lease-dir", str(root / "leases"), "--backend-options", options]
    assert main(argv, environ=PLUGINS) == 0
    found = json.loads(capsys.readouterr().out)["abandoned"]
    assert {"sandbox_id": sandbox_id, "backend": "local"} in found
    assert collect(root, capsys)[1]["removed"] == [sandbox_id]
    assert [path for path in root.rglob("*") if path.name != "leases"] == []
    assert processes_of(sandbox_id) == []
    assert not (pids_place / f"{PREFIX}{sandbox_id}").exists()


def test_several_collectors_at_once_remove_each_sandbox_once(root):
    for _ in range(3):
        kill_at("in a command", "none", root)
    ids = sorted(path.stem for path in (root / "leases").glob("*.json"))
    options = json.dumps({"root_dir": str(root)})
    argv = [sys.executable, "-m", "hermes_core.cli", "sandboxes", "gc", "--json", "--lease-dir", str(root / "leases")]
    collectors = [
        subprocess.Popen([*argv, "--backend-options", options], stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    answers = [json.loads(collector.communicate(timeout=60)[0]) for collector in collectors]
    assert [(answer["failed"], answer["problems"]) for answer in answers] == [({}, [])] * 3
    assert sorted(set(functools.reduce(operator.iadd, (answer["removed"] for answer in answers), []))) == ids
    assert [path for path in root.rglob("*") if path.name != "leases"] == []


def test_a_lease_that_was_never_finished_goes_when_its_writer_is_dead(root, capsys):
    folder = root / "leases"
    folder.mkdir()
    torn, fresh = folder / ".a.partial", folder / ".b.partial"
    torn.write_text('{"sandbox')
    os.utime(torn, (1, 1))
    fresh.touch()
    assert collect(root, capsys)[0] == 0
    assert list(folder.iterdir()) == [fresh]


async def test_processes_of_the_killed_end_without_a_collector(root, capsys):
    """The agent notices that its caller has gone; gc is for what cannot notice."""
    require("none")
    await asyncio.to_thread(kill_at, "in a command", "none", root)
    [lease] = (root / "leases").glob("*.json")
    assert [pid for pid in processes_of(lease.stem) if not await wait_until_gone(pid)] == []
    await asyncio.to_thread(collect, root, capsys)
