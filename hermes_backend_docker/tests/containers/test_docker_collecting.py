"""A caller that is killed at any moment leaves nothing behind, once somebody collects."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from engine_state import containers_of, narrow_sweeps

from hermes_sandbox import LeaseBook, SandboxReclaimer
from hermes_testing.registries import isolated_registry

pytestmark = [pytest.mark.slow, pytest.mark.component("docker")]

_DYING = """
import asyncio, os, signal, sys
from pathlib import Path
from hermes_backend_docker.backend import DockerBackend, DockerOptions
from hermes_core.contracts.sandbox import SandboxSpec

image, leases, isolation, phase = sys.argv[1:]

def die_in(moment):
    if moment == phase:
        os.kill(os.getpid(), signal.SIGKILL)

def dying(name, work):
    async def done(*arguments):
        die_in(f"before {name}")
        result = await work(*arguments)
        die_in(f"after {name}")
        return result
    return done

async def main():
    backend = DockerBackend(DockerOptions(image=image, pull="never"))
    backend.lease_dir = Path(leases)
    for name in ("create", "attach", "start", "remove"):
        setattr(backend.engine, name, dying(name, getattr(backend.engine, name)))
    sandbox = await backend.open(SandboxSpec(isolation=isolation, network="none"))
    await sandbox.exec("setsid sleep 600 & disown -a")
    die_in("in use")
    await sandbox.aclose()
    await backend.aclose()

asyncio.run(main())
"""


@pytest.mark.parametrize("isolation", ["container", "container+slot"])
@pytest.mark.parametrize(
    "phase",
    ["before create", "after create", "after attach", "after start", "in use", "before remove", "after remove"],
)
async def test_nothing_is_left_of_a_caller_that_was_killed(
    tmp_path: Path, image: str, isolation: str, phase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = [sys.executable, "-c", _DYING, image, str(tmp_path), isolation, phase]
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as caller:
        _, complaint = await asyncio.to_thread(caller.communicate)
    assert caller.returncode == -signal.SIGKILL, complaint
    narrow_sweeps(monkeypatch, "hermes.lease.owner_pid", str(caller.pid))
    done = await SandboxReclaimer(LeaseBook(tmp_path), isolated_registry("hermes_backend_docker.plugin")).collect(
        backends=("docker",)
    )
    assert (done.failed, done.problems) == ({}, [])
    assert done.removed != []
    assert containers_of(caller.pid) == set()
    assert LeaseBook(tmp_path).read() == ([], [])
