"""Leases, and what `hermes-core sandboxes` makes of them."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from textwrap import dedent

import pytest
from sandbox_support import agent_of, backend, processes_of, wait_until_gone

from hermes_core.cli import main
from hermes_core.contracts.errors import BackendError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_sandbox.leases.book import OWNER_FIELDS, Lease, LeaseBook, owner_is_dead
from hermes_sandbox.leases.keeper import LeaseKeeper
from hermes_sandbox.leases.machine_identity import MachineIdentity
from hermes_testing.watching import eventually

OWNER = dedent(
    """
    import asyncio, json, sys
    from pathlib import Path
    from hermes_core.contracts.sandbox import SandboxSpec
    from hermes_sandbox.local.backend import LocalBackend, LocalOptions

    async def main():
        backend = LocalBackend(LocalOptions(root_dir=Path(sys.argv[1])))
        backend.lease_dir = Path(sys.argv[2])
        sandbox = await backend.open(SandboxSpec(rollout_id="r1"))
        await sandbox.exec("mkdir -p closed/in; chmod 500 closed; setsid sleep 300 & sleep 300 &")
        print(json.dumps([sandbox.id, sandbox.workspace]), flush=True)
        await sandbox.exec("sleep 300")

    asyncio.run(main())
    """
)


def sandboxes(capsys, action, leases, *more):
    options = json.dumps({"root_dir": str(leases.parent)})
    words = ["sandboxes", action, "--json", "--lease-dir", str(leases), "--backend-options", options, *more]
    # With --all every backend looks for what dead owners left; that of other backends is not this test's.
    status = main(words, environ={"HERMES_PLUGINS": "hermes-sandbox"})
    return status, json.loads(capsys.readouterr().out)


@pytest.fixture
def killed_owner(tmp_path):
    argv = [sys.executable, "-c", OWNER, str(tmp_path), str(tmp_path / "leases")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as owner:
        sandbox_id, workspace = json.loads(owner.stdout.readline())
        yield owner, sandbox_id, Path(workspace), tmp_path / "leases"
        owner.kill()


async def test_a_lease_whose_taker_is_cancelled_as_it_is_written_does_not_stay(tmp_path):
    """The shared places of a closing pool left theirs: nobody held them, and nobody struck them out."""
    begun, gate = threading.Event(), threading.Event()

    class Slow(LeaseBook):
        def write(self, lease):
            begun.set()
            gate.wait()
            super().write(lease)

    book = Slow(tmp_path)
    lease = Lease.of_this_process(
        sandbox_id="s1", backend="local", rollout_id=None, deadline=time.time() + 60, handle={}, options=None
    )
    taking = asyncio.create_task(LeaseKeeper().take(book, lease))
    await asyncio.to_thread(begun.wait)
    taking.cancel()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await taking
    assert book.read() == ([], [])


async def test_a_heartbeat_does_not_write_what_a_lease_was_before_it_was_amended(tmp_path):
    begun, gate = threading.Event(), threading.Event()

    class Slow(LeaseBook):
        def extend(self, lease, deadline):
            begun.set()
            gate.wait()
            return super().extend(lease, deadline)

    book, keeper = Slow(tmp_path), LeaseKeeper()
    await keeper.take(book, lease(lifetime=1.0, deadline=time.time(), handle={"node": "old"}))
    await asyncio.to_thread(begun.wait)
    amending = asyncio.create_task(keeper.amend("s1", {"node": "new"}))
    await asyncio.sleep(0)
    gate.set()
    await amending
    for _ in range(2):  # at once, and after one more heartbeat
        (found,) = book.read()[0]
        assert found.handle == {"node": "new"}
        assert found.deadline > found.created
        begun.clear()
        await asyncio.to_thread(begun.wait)
    await keeper.give_up(book, "s1")
    assert book.read() == ([], [])


async def test_a_lease_that_is_not_held_is_not_amended(tmp_path):
    await LeaseKeeper().amend("s1", {"node": "new"})
    assert list(tmp_path.iterdir()) == []


def test_a_killed_owner_leaves_no_process_and_gc_removes_the_rest(killed_owner, capsys):
    """hermes-agent's defect: what a killed process left piled up, or was deleted with everyone else's."""
    owner, sandbox_id, workspace, leases = killed_owner
    status, listed = sandboxes(capsys, "ps", leases)
    assert status == 0
    assert [(row["sandbox_id"], row["rollout_id"], row["owner"]) for row in listed["sandboxes"]] == [
        (sandbox_id, "r1", "alive")
    ]
    assert sandboxes(capsys, "gc", leases) == (0, {"removed": [], "failed": {}, "problems": []})
    assert workspace.is_dir()
    # The agent, two that sleep by themselves, and the shell or the sleep of the command that runs.
    assert asyncio.run(eventually(lambda: len(processes_of(sandbox_id)) >= 4))
    pids = processes_of(sandbox_id)

    owner.send_signal(signal.SIGKILL)
    owner.wait()
    assert asyncio.run(all_gone(pids))
    assert sandboxes(capsys, "ps", leases)[1]["sandboxes"][0]["owner"] == "dead"
    assert sandboxes(capsys, "gc", leases) == (0, {"removed": [sandbox_id], "failed": {}, "problems": []})
    assert not workspace.parent.exists()
    assert sandboxes(capsys, "ps", leases) == (0, {"sandboxes": [], "problems": []})


async def all_gone(pids):
    return all([await wait_until_gone(pid) for pid in pids])


def test_gc_kills_what_outlived_owner_and_agent(killed_owner, capsys):
    owner, sandbox_id, workspace, leases = killed_owner
    agent = agent_of(sandbox_id)
    # Neither cleans up when it sees the end of the other.
    os.kill(agent, signal.SIGSTOP)
    owner.kill()
    owner.wait()
    os.kill(agent, signal.SIGKILL)
    assert processes_of(sandbox_id) != []
    assert sandboxes(capsys, "gc", leases)[1]["removed"] == [sandbox_id]
    assert processes_of(sandbox_id) == []
    assert not workspace.exists()


def lease(**changes):
    made = Lease.of_this_process(sandbox_id="s1", backend="local", rollout_id=None, deadline=1.0, handle={})
    return dataclasses.replace(made, **changes)


EARLIER = {"boot_id": "an earlier one"}


@pytest.mark.parametrize(
    ("changes", "machine", "owner"),
    [
        ({}, "m1", "alive"),
        ({}, "", "alive"),
        ({"owner_start": 1}, "m1", "dead"),
        ({"owner_start": 1}, "", "dead"),
        ({"owner_pid": 2**22 + 1}, "m1", "dead"),
        # The machine was started again since.
        ({"machine_id": "m1", **EARLIER}, "m1", "dead"),
        ({"machine_id": "m1.m2", **EARLIER}, "m0.m2", "dead"),
        # A pod of the same name in another cluster, or a container of the same name on another machine.
        ({"machine_id": "m2", **EARLIER}, "m1", "elsewhere"),
        ({"machine_id": "", **EARLIER}, "m1", "elsewhere"),
        ({"machine_id": "m1", **EARLIER}, "", "elsewhere"),
        ({"machine_id": "", **EARLIER}, "", "elsewhere"),
        ({"machine_id": ".", **EARLIER}, ".", "elsewhere"),
        # A machine by another name, with a disk that was cloned.
        ({"node": "another", "machine_id": "m1", **EARLIER}, "m1", "elsewhere"),
        # Two containers on one machine.
        ({"pid_namespace": "pid:[1]"}, "m1", "elsewhere"),
        ({"pid_namespace": "pid:[1]", "owner_start": 1}, "m1", "elsewhere"),
        ({"node": "another"}, "m1", "elsewhere"),
    ],
)
def test_an_owner_is_known_by_more_than_its_number(changes, machine, owner):
    """hermes-agent's defect: a reused process id was taken for the old process."""
    here = dataclasses.replace(MachineIdentity.now(), machine_id=machine)
    assert lease(**changes).owner(here) == owner
    assert owner_is_dead(owner_fields(**changes), here) == (owner == "dead")


@pytest.mark.parametrize(("lacking", "dead"), [("machine_id", True), ("boot_id", False), ("node", False)])
def test_marks_that_earlier_releases_left_are_judged_by_what_they_say(lacking, dead):
    fields = owner_fields(owner_start=1)
    del fields[lacking]
    assert owner_is_dead(fields) == dead
    assert not owner_is_dead({**fields, **EARLIER}, dataclasses.replace(MachineIdentity.now(), machine_id="m1"))


def test_a_lease_that_names_no_machine_is_read(tmp_path):
    book = LeaseBook(tmp_path)
    book.write(lease())
    (path,) = tmp_path.iterdir()
    data = json.loads(path.read_text())
    del data["machine_id"]
    path.write_text(json.dumps(data))
    (found,), problems = book.read()
    assert (found.machine_id, found.owner(), problems) == ("", "alive", [])


def test_gc_leaves_the_sandbox_of_a_namesake_on_another_machine(tmp_path, capsys):
    """Two pods `worker-0` of two clusters, with one home or engine: each took the other for its own last boot."""
    book = LeaseBook(tmp_path / "leases")
    book.write(lease(boot_id="a pod's of the same name", machine_id="its machine"))
    for more in ((), ("--all",)):
        status, answer = sandboxes(capsys, "gc", book.directory, *more)
        assert (status, answer["removed"], answer["failed"]) == (0, [], {})
    assert [found.owner() for found in book.read()[0]] == ["elsewhere"]


@pytest.mark.parametrize(
    ("changes", "removed"),
    [({"deadline": 1.0}, ["s1"]), ({"deadline": 1e12}, []), ({"deadline": 1.0, "node": "another"}, [])],
)
def test_kill_removes_what_is_late_where_nothing_proves_which_machine_this_is(tmp_path, capsys, changes, removed):
    book = LeaseBook(tmp_path / "leases")
    left = tmp_path / "hermes-sandbox-s1"
    book.write(lease(handle={"sandbox_id": "s1", "root": str(left)}, machine_id="", **EARLIER, **changes))
    left.mkdir()
    status, answer = sandboxes(capsys, "kill", book.directory, "s1")
    assert (status == 0, answer["removed"], left.exists()) == (bool(removed), removed, not removed)


def test_gc_removes_what_an_earlier_boot_of_this_machine_left(tmp_path, capsys, monkeypatch):
    here = dataclasses.replace(MachineIdentity.now(), machine_id="m1")
    monkeypatch.setattr(MachineIdentity, "now", lambda: here)
    book = LeaseBook(tmp_path / "leases")
    left = tmp_path / "hermes-sandbox-s1"
    book.write(lease(handle={"sandbox_id": "s1", "root": str(left)}, **EARLIER))
    left.mkdir()
    assert sandboxes(capsys, "gc", book.directory)[1]["removed"] == ["s1"]
    assert not left.exists()


JUDGE = dedent(
    """
    import os, sys
    from hermes_sandbox.leases.book import OWNER_FIELDS, Lease, owner_is_dead

    lease = Lease.of_this_process(sandbox_id="s1", backend="local", rollout_id=None, deadline=1.0, handle={})
    fields = {name: str(getattr(lease, name)) for name in OWNER_FIELDS}
    seen = owner_is_dead(fields)  # what has to be imported for that is not nobody's to read
    judge = os.fork()
    if judge == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        os._exit(seen or os.path.exists("/proc/" + fields["owner_pid"]) or owner_is_dead(fields))
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(judge, 0)[1]))
    """
)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting /proc anew takes root")
def test_an_owner_that_proc_hides_is_not_taken_for_dead():
    script = f"mount -t proc -o hidepid=2 proc /proc || exit 77; exec {sys.executable} -c {shlex.quote(JUDGE)}"
    # In a PID namespace of its own: before Linux 5.8 the option holds for every /proc of a namespace.
    argv = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode == 77:
        pytest.skip(f"/proc cannot be mounted here: {done.stderr}")
    assert (done.returncode, done.stderr) == (0, "")


def owner_fields(**changes):
    return {name: str(getattr(lease(**changes), name)) for name in OWNER_FIELDS}


def test_a_lease_is_read_as_it_was_written_and_rubbish_is_reported(tmp_path):
    book = LeaseBook(tmp_path / "new")
    book.write(lease())
    (book.directory / "torn.json").write_text('{"sandbox_id": "x"')
    (book.directory / "other.json").write_text("[]")
    leases, problems = book.read()
    assert leases == [lease(created=leases[0].created)]
    assert len(problems) == 2
    assert all("is not a lease" in problem for problem in problems)
    book.remove("s1")
    book.remove("s1")
    assert book.read()[0] == []


def test_a_lease_that_cannot_be_written_stops_the_sandbox_before_it_exists(tmp_path):
    (tmp_path / "file").touch()

    async def attempt():
        async with backend() as made:
            made.lease_dir, kept = tmp_path / "file" / "below", made.lease_dir
            with pytest.raises(BackendError, match="lease"):
                await made.open(SandboxSpec())
            made.lease_dir = kept

    asyncio.run(attempt())


def test_gc_deletes_no_directory_but_a_sandbox_s(tmp_path, capsys):
    precious = tmp_path / "precious"
    precious.mkdir()
    book = LeaseBook(tmp_path / "leases")
    book.write(lease(owner_start=1, handle={"sandbox_id": "s1", "root": str(precious)}))
    status, answer = sandboxes(capsys, "gc", book.directory)
    assert status == 1
    assert "nothing was deleted" in answer["failed"]["s1"]
    assert precious.is_dir()


def test_gc_reports_a_backend_that_is_not_installed(tmp_path, capsys):
    book = LeaseBook(tmp_path / "leases")
    book.write(lease(owner_start=1, backend="uninstalled"))
    status, answer = sandboxes(capsys, "gc", book.directory)
    assert status == 1
    assert "uninstalled" in answer["failed"]["s1"]
