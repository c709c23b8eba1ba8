"""If the allocation ends between a sandbox's lease and its start, the lease names the node that it started on."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from slurm_backends import backend_on

from hermes_sandbox import LeaseBook, SandboxReclaimer
from hermes_testing.registries import isolated_registry
from hermes_testing.watching import eventually, processes_here, sleep_token

pytestmark = pytest.mark.component("slurm")
PLUGINS = ("hermes_backend_slurm.plugin",)
TOKEN = sleep_token()
CALLER = f"""
import asyncio, json, sys
from pathlib import Path
from hermes_backend_slurm.backend import SlurmBackend
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_testing.registries import isolated_registry

create = SlurmBackend.create

async def late(self, spec, sandbox_id):
    first = await self.allocation()
    print("leased", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    while first.alive:
        await asyncio.sleep(0.02)
    return await create(self, spec, sandbox_id)

async def main(options, leases, isolation, token):
    SlurmBackend.create = late
    backend = isolated_registry(*{PLUGINS!r}).create("backend", "slurm", json.loads(options))
    backend.lease_dir = Path(leases)
    box = await backend.open(SandboxSpec(isolation=isolation))
    await box.exec(f"touch kept; setsid sleep {{token}} & echo begun")
    print("begun", flush=True)
    await box.exec("sleep 600")

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
def caller(request, own_slurm, tmp_path):
    """A process that has written its lease, and creates the sandbox when told to."""
    isolation = request.param
    own_root = {} if isolation == "none" else {"root_dir": "/tmp"}  # user nobody has no access to the test's own
    backend = backend_on(own_slurm, tmp_path, **own_root)
    options = backend.options.model_dump(mode="json", exclude_unset=True)
    arguments = [json.dumps(options), str(tmp_path / "leases"), isolation, TOKEN]
    with subprocess.Popen(
        [sys.executable, "-c", CALLER, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        yield process
        process.kill()


async def next_line(process):
    return await asyncio.to_thread(process.stdout.readline)


def only_lease(folder):
    (lease,) = LeaseBook(folder / "leases").read()[0]
    return lease


@pytest.mark.parametrize("caller", ["none", pytest.param("bwrap", marks=pytest.mark.component("bwrap"))], indirect=True)
async def test_gc_finds_a_killed_caller_s_sandbox_in_the_allocation_that_followed(own_slurm, tmp_path, caller):
    """The lease still named the nodes of the first allocation, so files on other nodes were never removed.

    In a pool a sandbox has its slot, and so its node, before it has a lease.
    """
    assert await next_line(caller) == b"leased\n"
    first = only_lease(tmp_path).handle
    (node,) = first["nodes"]
    # The first allocation's node can no longer be used, so the second gets the other node.
    own_slurm.call("scontrol", "update", f"nodename={node}", "state=drain", "reason=test")
    own_slurm.call("scancel", first["job_id"])
    caller.stdin.write(b"go\n")
    caller.stdin.flush()
    assert await next_line(caller) == b"begun\n"
    lease = only_lease(tmp_path)
    assert lease.handle["job_id"] != first["job_id"]
    assert lease.handle["nodes"] == [other for other in own_slurm.nodes if other != node]
    for agent in own_slurm.agents():
        os.kill(agent, signal.SIGKILL)  # so that no agent deletes anything
    caller.kill()
    caller.wait()
    collector = SandboxReclaimer(LeaseBook(tmp_path / "leases"), isolated_registry(*PLUGINS))
    collected = await collector.collect(backends=())
    assert (collected.removed, collected.failed) == ([lease.sandbox_id], {})
    assert not Path(lease.handle["root"]).exists()
    assert await eventually(lambda: processes_here(TOKEN) == [])
    assert await eventually(lambda: own_slurm.jobs() == [])
