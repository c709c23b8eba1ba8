"""Killed callers, killed or stopped instances, and leftovers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import small_images

from hermes_backend_singularity.instances.ownership import instance_name
from hermes_core.contracts.errors import BackendError, SandboxLostError
from hermes_core.contracts.sandbox import Recoverable, SandboxSpec
from hermes_sandbox import LeaseBook, SandboxReclaimer
from hermes_testing.registries import isolated_registry
from hermes_testing.watching import eventually

pytestmark = pytest.mark.component("apptainer")
ASK = SandboxSpec(isolation="container", network="none")

_DYING = """
import asyncio, json, os, signal, sys
from pathlib import Path
from hermes_backend_singularity import backend as of_backend
from hermes_backend_singularity.instances import host as of_host
from hermes_backend_singularity.instances import instance as of_instance
from hermes_core.contracts.sandbox import SandboxSpec

options, leases, phase = json.loads(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]

def die_in(moment):
    if moment == phase:
        os.kill(os.getpid(), signal.SIGKILL)

def dying(owner, name, moment):
    work = getattr(owner, name)
    async def done(*arguments, **more):
        die_in(f"before {moment}")
        result = await work(*arguments, **more)
        die_in(f"after {moment}")
        return result
    setattr(owner, name, done)

async def main():
    backend = of_backend.SingularityBackend(of_backend.SingularityOptions(**options))
    backend.lease_dir = leases
    dying(backend, "_furnish", "directory")
    dying(of_host.InstanceHost, "_start_instance", "instance")
    dying(of_host.InstanceHost, "_run_inside", "agent")
    dying(of_instance.Instance, "end", "end")
    sandbox = await backend.open(SandboxSpec(isolation="container", network="none"))
    await sandbox.exec("setsid sleep 600 & trap '' TERM HUP INT; sleep 600 & disown -a")
    print(sandbox.id, flush=True)
    die_in("in use")
    await sandbox.aclose()

asyncio.run(main())
"""


def _json_options(options):
    return json.dumps({name: str(value) for name, value in options.items()})


def _processes_of(sandbox_id):
    """Return the processes with a sandbox's id in their environment or command line."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment, argv = (process / "environ").read_bytes(), (process / "cmdline").read_bytes()
        except OSError:
            continue
        if sandbox_id.encode() in environment + argv:
            found.append((process.name, argv[:80]))
    return found


def _logs(sandbox_id):
    return list((Path.home() / ".apptainer" / "instances").glob(f"**/*{instance_name(sandbox_id)}*"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "phase",
    ["before directory", "after directory", "after instance", "after agent", "in use", "before end", "after end"],
)
async def test_gc_leaves_nothing_of_a_caller_that_was_killed(options, tmp_path, phase):
    leases = tmp_path / "leases"
    argv = [sys.executable, "-c", _DYING, _json_options(options), str(leases), phase]
    caller = await asyncio.to_thread(subprocess.run, argv, capture_output=True, text=True, check=False)
    assert caller.returncode == -signal.SIGKILL, caller.stderr
    [lease] = LeaseBook(leases).read()[0]
    plugin = isolated_registry("hermes_backend_singularity.plugin")
    done = await SandboxReclaimer(LeaseBook(leases), plugin).collect(backends=())
    assert (done.failed, done.problems, done.removed) == ({}, [], [lease.sandbox_id])
    assert _processes_of(lease.sandbox_id) == []
    assert not Path(lease.handle["root"]).exists()
    assert _logs(lease.sandbox_id) == []


async def test_an_instance_ends_by_itself_when_its_caller_is_killed(backend, options, tmp_path):
    argv = [sys.executable, "-c", _DYING, _json_options(options), str(tmp_path / "leases"), "in use"]
    caller = await asyncio.to_thread(subprocess.run, argv, capture_output=True, text=True, check=False)
    sandbox_id = caller.stdout.strip()
    assert await eventually(lambda: _processes_of(sandbox_id) == [])
    await backend.sweep()
    assert _logs(sandbox_id) == []


async def test_an_instance_that_is_killed_is_started_again_over_its_files(backend):
    async with await backend.open(ASK) as box:
        await box.exec("echo kept >f; export A=1; sleep 600 &")
        for pid, *_ in _processes_of(box.id):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        with pytest.raises(SandboxLostError):
            await asyncio.wait_for(box.exec("sleep 600"), 60)
        lost: object = box
        assert isinstance(lost, Recoverable)
        assert "Files of the workspace" in str(await lost.recover(0))
        assert (await box.exec("cat f; echo ${A-unset}; ps ax | grep -c '[s]leep 600'")).output == "kept\nunset\n0\n"


@pytest.mark.slow
async def test_leftovers_of_a_dead_owner_are_swept_without_a_lease(backend, options, tmp_path):
    argv = [sys.executable, "-c", _DYING, _json_options(options), str(tmp_path / "lost"), "in use"]
    caller = await asyncio.to_thread(subprocess.run, argv, capture_output=True, text=True, check=False)
    sandbox_id = caller.stdout.strip()
    async with await backend.open(ASK) as mine:
        assert await backend.sweep(remove=False) == [sandbox_id]
        assert await backend.sweep() == [sandbox_id]
        assert (await mine.exec("echo alive")).output == "alive\n"
    assert _processes_of(sandbox_id) == []
    assert list(options["scratch_dir"].iterdir()) == []


async def test_a_sandbox_whose_instance_is_stopped_is_lost_and_leaves_nothing(backend, options):
    async with await backend.open(ASK) as sandbox:
        call = asyncio.create_task(sandbox.exec("touch begun; sleep 600"))

        async def has_begun():
            return any(entry.path == "begun" for entry in await sandbox.list_dir())

        assert await eventually(has_begun)
        stop = [small_images.program(), "instance", "stop", "--force", instance_name(sandbox.id)]
        await asyncio.to_thread(small_images.run, *stop)
        with pytest.raises(SandboxLostError):
            await asyncio.wait_for(call, 60)
    assert _processes_of(sandbox.id) == []
    assert list(options["scratch_dir"].iterdir()) == []


@pytest.mark.slow
async def test_an_open_that_is_cancelled_leaves_nothing(backend, options, leftovers):
    for seconds in (0.0, 0.05, 0.2, 0.4, 0.7):
        opening = asyncio.create_task(backend.open(ASK))
        await asyncio.wait((opening,), timeout=seconds)
        opening.cancel()
        results = await asyncio.gather(opening, return_exceptions=True)
        for made in results:
            if not isinstance(made, BaseException):
                await made.aclose()
    assert LeaseBook(backend.lease_dir).read() == ([], [])
    assert list(options["scratch_dir"].iterdir()) == []


async def test_reclaiming_a_sandbox_that_does_not_exist_is_no_error(backend):
    await backend.reclaim(backend.handle(ASK, secrets.token_hex(8)))


async def test_a_handle_that_names_another_directory_deletes_nothing(backend, tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    handle = {**backend.handle(ASK, secrets.token_hex(8)), "root": str(precious)}
    with pytest.raises(BackendError, match="nothing was removed"):
        await backend.reclaim(handle)
    assert precious.exists()
