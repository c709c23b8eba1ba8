"""Cancellations during a failing or hanging scancel stay cancellations, and leftovers can be found."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys

import pytest
from slurm_backends import backend_on
from slurm_cluster import environment_of

from hermes_core.contracts.errors import BackendError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_sandbox import LeaseBook, SandboxReclaimer
from hermes_testing.registries import isolated_registry
from hermes_testing.watching import eventually, processes_here, sleep_token

pytestmark = pytest.mark.component("slurm")
FAILS = "echo 'scancel: error: Unable to contact slurm controller (connect failure)' >&2; exit 1"
HANGS = "exec sleep 600"
# Like the wrappers of some clusters: the salloc that they start outlives them, and so does its job.
SALLOC = '#!/bin/sh\n{} "$@" <&0 &\nwait\n'
SCANCEL = '#!/bin/sh\n[ -e {}/mended ] && exec {} "$@"\n{}\n'
CALLER = """
import asyncio, json, sys
from pathlib import Path
from hermes_backend_slurm import allocation, commands
from hermes_backend_slurm.backend import SlurmBackend
from hermes_backend_slurm.options import SlurmOptions
from hermes_core.contracts.sandbox import SandboxSpec

async def main(options, leases):
    commands._CANCELLING = allocation._GIVING_BACK = 0.5
    backend = SlurmBackend(SlurmOptions(**json.loads(options)))
    backend.lease_dir = Path(leases)
    opening = asyncio.ensure_future(backend.open(SandboxSpec()))
    await asyncio.to_thread(sys.stdin.readline)
    opening.cancel()
    await asyncio.wait((opening,))
    print(opening.cancelled(), flush=True)
    await asyncio.sleep(600)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture(params=[FAILS, HANGS], ids=["fails", "hangs"])
def programs(request, tmp_path, monkeypatch):
    """A folder of Slurm's commands in which scancel does not work until the file `mended` exists."""
    folder = tmp_path / "programs"
    folder.mkdir()
    scripts = {
        "salloc": SALLOC.format(shutil.which("salloc")),
        "scancel": SCANCEL.format(folder, shutil.which("scancel"), request.param),
    }
    for name, script in scripts.items():
        (folder / name).write_text(script)
        (folder / name).chmod(0o755)
    for name in ("commands._CANCELLING", "allocation._GIVING_BACK"):
        monkeypatch.setattr(f"hermes_backend_slurm.{name}", 0.5)
    return folder


def using(programs, cluster, folder, **options):
    """Make a backend that finds those programs; the test cluster itself keeps using the real ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
        return backend_on(cluster, folder, **options)


def mend(programs, monkeypatch):
    """Let scancel work, without a time limit."""
    (programs / "mended").touch()
    monkeypatch.setattr("hermes_backend_slurm.commands._CANCELLING", 60.0)


async def test_a_cancelled_wait_in_the_queue_raises_the_cancellation_and_closing_ends_its_job(
    slurm, tmp_path, programs, caplog, monkeypatch
):
    """The error of scancel was raised in place of the cancellation."""
    with slurm.allocation(2, "--partition=queue"):
        backend = using(programs, slurm, tmp_path, partition="queue", nodes=2)
        waiting = asyncio.ensure_future(backend.open(SandboxSpec()))
        assert await eventually(lambda: len(slurm.jobs()) == 2)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert "may be left in the queue" in caplog.text
        assert len(slurm.jobs()) == 2
        with pytest.raises(BackendError, match=r"scancel|cannot be cancelled"):
            await backend.aclose()
        mend(programs, monkeypatch)
        await backend.aclose()
        assert await eventually(lambda: len(slurm.jobs()) == 1)
    assert await eventually(lambda: slurm.jobs() == [])


async def test_waiters_get_an_error_about_the_closing_and_not_about_scancel(slurm, tmp_path, programs, monkeypatch):
    with slurm.allocation(2, "--partition=queue"):
        backend = using(programs, slurm, tmp_path, partition="queue", nodes=2)
        waiting = asyncio.ensure_future(backend.open(SandboxSpec()))
        assert await eventually(lambda: len(slurm.jobs()) == 2)
        with pytest.raises(BackendError, match=r"scancel|cannot be cancelled"):
            await backend.aclose()
        with pytest.raises(BackendError, match="closed while"):
            await waiting
        mend(programs, monkeypatch)
        await backend.aclose()
    assert await eventually(lambda: slurm.jobs() == [])


async def test_a_cancelled_program_raises_the_cancellation_and_its_step_is_named(
    slurm, tmp_path, programs, caplog, monkeypatch
):
    monkeypatch.setattr("hermes_backend_slurm.node._CANCELLING", 5.0)
    with slurm.allocation(1) as job:
        backend, token = using(programs, slurm, tmp_path, job_id=job), sleep_token()
        link = await backend.connect()
        running = asyncio.ensure_future(link.run(f"sleep {token}", timeout=600))
        assert await eventually(lambda: processes_here(token) != [])
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert "may still run" in caplog.text
        mend(programs, monkeypatch)
        await link.aclose()
        await backend.aclose()
    assert await eventually(lambda: processes_here(token) == [])


async def test_gc_ends_the_job_that_a_cancelled_and_killed_caller_left(slurm, tmp_path, programs, monkeypatch):
    with slurm.allocation(2, "--partition=queue"):
        backend = using(programs, slurm, tmp_path, partition="queue", nodes=2)
        options = json.dumps(backend.options.model_dump(mode="json", exclude_unset=True))
        caller = subprocess.Popen(
            [sys.executable, "-c", CALLER, options, str(tmp_path / "leases")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment_of(slurm, PATH=f"{programs}:{os.environ['PATH']}"),
        )
        assert await eventually(lambda: len(slurm.jobs()) == 2)
        answer, _ = await asyncio.to_thread(_say, caller, b"cancel\n")
        assert answer == b"True\n"
        assert len(slurm.jobs()) == 2
        mend(programs, monkeypatch)
        collector = SandboxReclaimer(
            LeaseBook(tmp_path / "leases"),
            isolated_registry("hermes_backend_slurm.plugin"),
            {"slurm": {"conf": str(slurm.conf)}},
        )
        collected = await collector.collect(backends=("slurm",))
        assert (len(collected.removed), collected.failed, collected.problems) == (1, {}, [])
        assert await eventually(lambda: len(slurm.jobs()) == 1)


def _say(caller, words):
    caller.stdin.write(words)
    caller.stdin.flush()
    said = caller.stdout.readline()
    caller.kill()
    return said, caller.communicate()
