"""Lost nodes, killed actors and killed callers cause no hang and leave nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from ray._private.state import actors  # the public way to it needs the dashboard
from ray_cluster import MACHINES

from hermes_backend_ray.backend import RayBackend
from hermes_backend_ray.cluster.nodes import alive_nodes
from hermes_backend_ray.options import RayOptions
from hermes_core.contracts.errors import BackendError, SandboxLostError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_sandbox import LeaseBook, SandboxReclaimer
from hermes_sandbox.local import read_process
from hermes_testing import isolated_registry
from hermes_testing.watching import eventually, processes_here, sleep_token

pytestmark = pytest.mark.slow
PATIENCE = 100.0
"""Seconds in which a loss must be reported and its processes gone on a busy machine; it usually takes about two."""


@pytest.fixture
def places(ray_driver, tmp_path):
    """Make backends whose sandboxes are in the test's own directory, on the test's own nodes."""
    name = f"mine-{uuid.uuid4().hex[:8]}"
    nodes = []

    class Places:
        root = tmp_path / "root"

        def node(self, **options):
            nodes.append(ray_driver.add_node(num_cpus=1, resources={name: 100}, **options))
            return nodes[-1]

        def kill(self, node):
            nodes.remove(node)
            ray_driver.kill_node(node)

        def backend(self, **options):
            self.root.mkdir(exist_ok=True)
            given = {
                "address": ray_driver.address,
                "root_dir": str(self.root),
                "resources": {name: 1},
            }
            backend = RayBackend(RayOptions(**{**given, **options}))
            backend.lease_dir = tmp_path / "leases"
            return backend

    yield Places()
    for node in nodes:
        ray_driver.kill_node(node)


async def begin_command(sandbox, token):
    call = asyncio.create_task(sandbox.exec(f"sleep {token}"))
    assert await eventually(lambda: processes_here(token) != [], seconds=PATIENCE)
    return call


async def loss_of(call):
    with pytest.raises(SandboxLostError) as caught:
        await asyncio.wait_for(call, PATIENCE)
    return str(caught.value)


async def test_a_node_that_is_killed_costs_only_its_own_sandboxes(places):
    one, _ = places.node(), places.node()
    backend, token = places.backend(pool={"slots_per_host": 1}), sleep_token()
    # Each agent has one sandbox, so each sandbox is on another node.
    first, second = [await backend.open(SandboxSpec()) for _ in range(2)]
    where = {sandbox: await node_of(sandbox) for sandbox in (first, second)}
    assert len(set(where.values())) == 2
    struck, kept = (first, second) if where[first] == one else (second, first)
    call, other = await begin_command(struck, token), asyncio.create_task(kept.exec("sleep 3; echo done"))
    places.kill(one)
    assert f"Ray node {one[:12]}" in await loss_of(call)
    assert (await other).output == "done\n"
    # The node's processes have ended with it; closing removes its files, because its machine still has a node.
    assert await eventually(lambda: processes_here(token) == [], seconds=PATIENCE)
    await asyncio.wait_for(struck.aclose(), PATIENCE)
    async with await backend.open(SandboxSpec()) as another:
        assert await node_of(another) != one
    await backend.aclose()
    assert list(places.root.iterdir()) == []


async def node_of(sandbox):
    """Return the node whose process has started the Ray worker of the agent."""
    worker = read_process(await worker_of(sandbox))
    assert worker is not None
    arguments = Path(f"/proc/{worker.parent}/cmdline").read_bytes().decode().split("\0")
    return next(word.removeprefix("--node_id=") for word in arguments if word.startswith("--node_id="))


async def worker_of(sandbox):
    pid = int((await sandbox.exec("echo $PPID")).output)
    while b"NodeActor" not in Path(f"/proc/{pid}/cmdline").read_bytes():
        process = read_process(pid)
        assert process is not None
        assert process.parent > 1
        pid = process.parent
    return pid


@pytest.mark.parametrize("slots", [1, 64])
async def test_an_actor_that_is_killed_loses_its_sandboxes_and_is_replaced(ray_driver, places, slots):
    backend, token = places.backend(resources={}, slots_per_agent=slots), sleep_token()
    sandbox = await backend.open(SandboxSpec())
    worker = await worker_of(sandbox)
    call = await begin_command(sandbox, token)
    os.kill(worker, signal.SIGKILL)
    assert "its host actor has died" in await loss_of(call)
    await asyncio.wait_for(sandbox.aclose(), PATIENCE)
    assert await eventually(lambda: processes_here(token) == [], seconds=PATIENCE)
    async with await backend.open(SandboxSpec()) as another:
        assert (await another.exec("echo back")).output == "back\n"
    await backend.aclose()
    assert list(places.root.iterdir()) == []


@pytest.mark.component("bwrap")
async def test_a_bubblewrap_sandbox_ends_with_its_node(places):
    node, token = places.node(), sleep_token()
    backend = places.backend(root_dir="/tmp")  # what runs inside is nobody, who cannot enter the test's directory
    sandbox = await backend.open(SandboxSpec(isolation="bwrap"))
    root = Path("/tmp/hermes-sandbox-" + sandbox.id)
    assert root.is_dir()
    call = await begin_command(sandbox, token)
    places.kill(node)
    assert f"Ray node {node[:12]}" in await loss_of(call)
    await asyncio.wait_for(sandbox.aclose(), PATIENCE)
    assert processes_here(token) == []
    assert not root.exists()
    await backend.aclose()


async def test_a_lease_is_kept_while_a_machine_is_down_that_may_hold_its_files(places, tmp_path):
    """The lease was removed, so the files stayed without a lease when the machine came back."""
    node, book = places.node(node_ip_address=MACHINES[0]), LeaseBook(tmp_path / "leases")
    backend = places.backend()
    sandbox = await backend.open(SandboxSpec())
    places.kill(node)
    assert await eventually(lambda: MACHINES[0] not in {one.address for one in alive_nodes()}, seconds=PATIENCE)
    with pytest.raises(BackendError, match=rf"on machine {MACHINES[0]} of the Ray cluster, which is down: "):
        await sandbox.aclose()
    (lease,), _ = book.read()
    registry = isolated_registry("hermes_backend_ray.plugin")
    done = await SandboxReclaimer(book, registry).remove([lease])
    assert MACHINES[0] in done.failed[sandbox.id]
    assert "the lease is kept until" in done.failed[sandbox.id]
    assert [kept.sandbox_id for kept in book.read()[0]] == [sandbox.id]
    places.node(node_ip_address=MACHINES[0])
    assert (await SandboxReclaimer(book, registry).remove([lease])).removed == [sandbox.id]
    assert book.read() == ([], [])
    assert list(places.root.iterdir()) == []
    with contextlib.suppress(BackendError):  # the node that the sandbox was on last
        await backend.aclose()


async def test_a_lease_is_removed_if_its_machine_does_not_come_back(places, tmp_path):
    node, book = places.node(node_ip_address=MACHINES[1]), LeaseBook(tmp_path / "leases")
    backend = places.backend()
    sandbox = await backend.open(SandboxSpec())
    (lease,), _ = book.read()
    places.kill(node)
    assert await eventually(lambda: MACHINES[1] not in {one.address for one in alive_nodes()}, seconds=PATIENCE)
    with pytest.raises(BackendError, match="the lease is kept until"):
        await backend.reclaim(lease.handle)
    with pytest.raises(BackendError, match="the cluster does not know it"):
        await backend.reclaim({**lease.handle, "machine": "127.0.0.9", "node": "ab" * 28})
    long_ago = places.backend(forget_after=0)
    await long_ago.reclaim(lease.handle)
    await long_ago.aclose()
    registry = isolated_registry("hermes_backend_ray.plugin")
    collector = SandboxReclaimer(book, registry, {"ray": {"gone": MACHINES}})
    assert (await collector.remove([lease])).removed == [sandbox.id]
    with contextlib.suppress(BackendError):
        await sandbox.aclose()
    with contextlib.suppress(BackendError):
        await backend.aclose()


_CALLER = """
import asyncio, json, ray, sys
from pathlib import Path
from hermes_backend_ray.backend import RayBackend
from hermes_backend_ray.options import RayOptions
from hermes_core.contracts.sandbox import SandboxSpec

async def main(options, leases, token):
    backend = RayBackend(RayOptions(**json.loads(options)))
    backend.lease_dir = Path(leases)
    sandbox = await backend.open(SandboxSpec())
    await sandbox.exec(f"setsid sleep {token} & echo begun")
    print(ray.get_runtime_context().get_job_id(), flush=True)
    await sandbox.exec("sleep 600")

asyncio.run(main(*sys.argv[1:]))
"""


def living(job):
    """The actors of one caller, because the cluster has those of other tests, too."""
    return [name for name, entry in actors().items() if entry["JobID"] == job and entry["State"] not in {"DEAD", 4}]


async def test_a_killed_caller_leaves_no_process_or_actor_and_reclaim_removes_the_rest(places, tmp_path):
    token, backend = sleep_token(), places.backend(resources={})
    options = backend.options.model_dump_json()
    leases = tmp_path / "leases"
    command = [sys.executable, "-c", _CALLER, options, str(leases), token]
    # Closed whatever happens, because anything left open fails another test.
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as caller:
        assert caller.stdout is not None
        try:
            job = (await asyncio.to_thread(caller.stdout.readline)).strip()
            assert len(await asyncio.to_thread(living, job)) == 1
        finally:
            caller.kill()
    # The actor belonged to the caller, so Ray ends it; its agents see the end of their input, and end everything.
    assert await eventually(lambda: processes_here(token) == [], seconds=PATIENCE)

    async def no_processes():
        return await asyncio.to_thread(living, job) == []

    assert await eventually(no_processes, seconds=PATIENCE)
    (lease,), _ = LeaseBook(leases).read()
    assert lease.owner() == "dead"
    # Processes that were started since and carry the sandbox's mark are killed with the removal of the directory.
    marked = {"PATH": os.environ["PATH"], "HERMES_SANDBOX": f"{lease.sandbox_id}.7"}
    # The reclaiming process knows only what the lease says about the cluster.
    # It looks for leftovers of dead owners in the test's own folder, not in the machine's.
    (tmp_path / "tmp").mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    gc = [str(Path(sys.executable).with_name("hermes-core")), "sandboxes", "gc", "--json", "--lease-dir", str(leases)]
    with subprocess.Popen(["sleep", token], env=marked) as survivor:
        try:
            done = await asyncio.to_thread(
                subprocess.run, gc, env=environment, stdout=subprocess.PIPE, check=True, timeout=PATIENCE
            )
            assert json.loads(done.stdout)["removed"] == [lease.sandbox_id]
            assert LeaseBook(leases).read() == ([], [])
            assert survivor.wait(PATIENCE) == -signal.SIGKILL
        finally:
            survivor.kill()
    assert list(places.root.iterdir()) == []
    await backend.reclaim(lease.handle)  # nothing to remove is success
    await backend.aclose()
