"""Leases, and what `hermes-core sandboxes` makes of them."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
from sandbox_support import backend, gone, processes_of

from hermes_core.cli import main
from hermes_core.contracts.errors import BackendError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_core.sandbox.lease_keeper import LeaseKeeper
from hermes_core.sandbox.leases import Lease, LeaseBook

OWNER = textwrap.dedent(
    """
    import asyncio, json, sys
    from pathlib import Path
    from hermes_core.contracts.sandbox import SandboxSpec
    from hermes_core.sandbox.local import LocalBackend, LocalOptions

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
    status = main(["sandboxes", action, "--json", "--lease-dir", str(leases), "--backend-options", options, *more])
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


def test_a_killed_owner_leaves_no_process_and_gc_removes_the_rest(killed_owner, capsys):
    """predecessor 2.5 #4 and #5: what a killed process left piled up, or was deleted with everyone else's."""
    owner, sandbox_id, workspace, leases = killed_owner
    status, listed = sandboxes(capsys, "ps", leases)
    assert status == 0
    assert [(row["sandbox_id"], row["rollout_id"], row["owner"]) for row in listed["sandboxes"]] == [
        (sandbox_id, "r1", "alive")
    ]
    assert sandboxes(capsys, "gc", leases) == (0, {"removed": [], "failed": {}, "problems": []})
    assert workspace.is_dir()
    pids = processes_of(sandbox_id)
    assert len(pids) >= 4

    owner.send_signal(signal.SIGKILL)
    owner.wait()
    assert asyncio.run(all_gone(pids))
    assert sandboxes(capsys, "ps", leases)[1]["sandboxes"][0]["owner"] == "dead"
    assert sandboxes(capsys, "gc", leases) == (0, {"removed": [sandbox_id], "failed": {}, "problems": []})
    assert not workspace.parent.exists()
    assert sandboxes(capsys, "ps", leases) == (0, {"sandboxes": [], "problems": []})


async def all_gone(pids):
    return all([await gone(pid) for pid in pids])


def test_gc_kills_what_outlived_owner_and_agent(killed_owner, capsys):
    owner, sandbox_id, workspace, leases = killed_owner
    agent = min(processes_of(sandbox_id))
    os.kill(agent, signal.SIGKILL)
    owner.kill()
    owner.wait()
    assert processes_of(sandbox_id) != []
    assert sandboxes(capsys, "gc", leases)[1]["removed"] == [sandbox_id]
    assert processes_of(sandbox_id) == []
    assert not workspace.exists()


def lease(**changes):
    made = Lease.of_this_process(sandbox_id="s1", backend="local", rollout_id=None, deadline=1.0, handle={})
    return dataclasses.replace(made, **changes)


@pytest.mark.parametrize(
    ("changes", "owner"),
    [
        ({}, "alive"),
        ({"owner_start": 1}, "dead"),
        ({"owner_pid": 2**22 + 1}, "dead"),
        ({"boot_id": "another"}, "dead"),
        ({"pid_namespace": "pid:[1]"}, "elsewhere"),
        ({"node": "another-machine", "boot_id": "another"}, "elsewhere"),
    ],
)
def test_an_owner_is_known_by_more_than_its_number(changes, owner):
    """predecessor 2.4 #10: a reused process id was taken for the old process."""
    assert lease(**changes).owner() == owner


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
