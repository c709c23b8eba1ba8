"""Errors about unavailable clusters name the cluster, the resource and the next step, in time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path

import pytest
import ray
from pydantic import ValidationError

from hermes_backend_ray.backend import RayBackend
from hermes_backend_ray.cluster.failures import node_loss
from hermes_backend_ray.cluster.nodes import Node
from hermes_backend_ray.host_actors.node_link import RayLink
from hermes_backend_ray.options import RayOptions
from hermes_core.contracts.errors import BackendError, SandboxLostError, SandboxRefusedError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_testing.servers import closed_port
from hermes_testing.watching import eventually

pytestmark = pytest.mark.usefixtures("ray_driver")

# Ray connects a process once, so connecting is tested in separate processes.
_TRY = """
import asyncio, json, sys, time
from pathlib import Path
import ray
from hermes_backend_ray.backend import RayBackend
from hermes_backend_ray.options import RayOptions
from hermes_core.contracts.sandbox import SandboxSpec

async def main(options, leases, before):
    exec(before)
    backend = RayBackend(RayOptions(**json.loads(options)))
    backend.lease_dir = Path(leases)
    began = time.monotonic()
    try:
        await backend.check(SandboxSpec())
        said = ["", "it works", ""]
    except Exception as error:
        said = [type(error).__name__, error.message, error.hint]
    print(json.dumps([*said, time.monotonic() - began]))
    await backend.aclose()

asyncio.run(main(*sys.argv[1:]))
"""


def error_of_start(tmp_path, before="", environment=None, **options):
    """Return the class, message and hint of the error, and the seconds that it took."""
    command = [sys.executable, "-c", _TRY, json.dumps(options), str(tmp_path / "leases"), before]
    env = {**os.environ, **(environment or {})}
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=300, env=env)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def free_port():
    with closed_port() as port:
        yield port


def test_a_missing_address_is_refused_unless_ray_is_initialised(tmp_path):
    kind, message, hint, _ = error_of_start(tmp_path)
    assert kind == "SandboxRefusedError"
    assert "no address" in message
    assert "ray.init" in hint


def test_an_address_where_nothing_listens_is_an_error_at_once(tmp_path, free_port):
    kind, message, hint, seconds = error_of_start(tmp_path, address=f"127.0.0.1:{free_port}", connect_timeout=60)
    assert kind == "BackendError"
    assert message == f"no Ray cluster listens on 127.0.0.1:{free_port}: connection refused"
    assert "ray start --head" in hint
    assert seconds < 600


def test_an_address_found_by_auto_where_nothing_listens_is_an_error_at_once(tmp_path, free_port):
    kind, message, hint, seconds = error_of_start(
        tmp_path, environment={"RAY_ADDRESS": f"127.0.0.1:{free_port}"}, address="auto", connect_timeout=60
    )
    assert kind == "BackendError"
    assert message == f"no Ray cluster listens on 127.0.0.1:{free_port}: connection refused"
    assert "ray start --head" in hint
    assert seconds < 600


@pytest.mark.parametrize(
    ("answer", "expected"), [(b"SSH-2.0-OpenSSH_9.2\r\n", "expected a Ray cluster at"), (b"", "did not")]
)
def test_another_server_at_the_address_is_recognised(tmp_path, answer, expected):
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = []

        def serve():
            connection, _ = server.accept()
            taken.append(connection)
            connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        kind, message, _, seconds = error_of_start(
            tmp_path, address=f"127.0.0.1:{server.getsockname()[1]}", connect_timeout=3
        )
        thread.join(60)
        taken[0].close()
    assert kind == "BackendError"
    assert expected in message
    assert seconds < 60


@pytest.mark.parametrize("address", ["head", "head:", "10.0.0.1:6379x"])
def test_an_invalid_address_is_refused(address):
    with pytest.raises(ValidationError, match=r"expected the address of a Ray cluster, got '.*'; write host:6379"):
        RayOptions(address=address)


def test_other_versions_of_ray_are_refused_with_the_versions_to_install(tmp_path, ray_cluster):
    kind, message, hint, _ = error_of_start(tmp_path, before="ray.__version__ = '9.9.9'", address=ray_cluster.address)
    assert kind == "SandboxRefusedError"
    assert "9.9.9" in message
    assert "pip install ray==" in hint


def test_a_backend_connects_a_process_that_has_not_initialised_ray(tmp_path, ray_cluster):
    assert error_of_start(tmp_path, address=ray_cluster.address)[:2] == ["", "it works"]


def test_only_one_module_connects_to_ray():
    """Ray allows a process one connection, and would start a cluster by itself if there is none."""
    package = Path(sys.modules["hermes_backend_ray"].__path__[0])
    calls = re.compile(r"\bray\.(init|shutdown)\(")
    assert [path.name for path in sorted(package.rglob("*.py")) if calls.search(path.read_text())] == ["connection.py"]


_LEASED = """
import asyncio, json, sys
from pathlib import Path
from hermes_backend_ray.backend import RayBackend
from hermes_backend_ray.options import RayOptions
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_sandbox.leases.book import LeaseBook

async def main(leases):
    backend = RayBackend(RayOptions(address="auto"))
    backend.lease_dir = Path(leases)
    async with await backend.open(SandboxSpec()):
        print(json.dumps([lease.handle["address"] for lease in LeaseBook(backend.lease_dir).read()[0]]))
    await backend.aclose()

asyncio.run(main(sys.argv[1]))
"""


def test_the_first_lease_already_names_the_cluster_that_auto_means(tmp_path, ray_cluster):
    command = [sys.executable, "-c", _LEASED, str(tmp_path)]
    env = {**os.environ, "RAY_ADDRESS": ray_cluster.address}
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=300, env=env)
    assert json.loads(done.stdout.splitlines()[-1]) == [ray_cluster.address]


class _Frozen:
    """A host actor that accepts calls and never answers."""

    node = Node("ab" * 28, "10.0.0.1", {})
    lost = None

    def on_loss(self, callback):
        del callback

    async def call(self, method, *arguments):
        await asyncio.Event().wait()


async def test_an_actor_that_does_not_answer_counts_as_lost_in_time(monkeypatch):
    monkeypatch.setattr("hermes_backend_ray.host_actors.node_link._STARTING", 0.1)
    link = RayLink(_Frozen(), lambda: None)
    with pytest.raises(SandboxLostError, match=r"did not start a program within 0\.1 s"):
        await asyncio.wait_for(link.start("true"), 60)


@pytest.mark.slow
def test_a_cluster_with_address_local_ends_with_its_process(tmp_path):
    # A short path, because Ray creates sockets with long names in it.
    with tempfile.TemporaryDirectory(prefix="hr", ignore_cleanup_errors=True) as folder:
        assert error_of_start(tmp_path, environment={"RAY_TMPDIR": folder}, address="local")[:2] == ["", "it works"]
        end = time.monotonic() + 100
        while users_of(folder) and time.monotonic() < end:
            time.sleep(0.1)
        assert users_of(folder) == []


def users_of(folder):
    """Return the processes whose arguments name the folder."""
    found = []
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if folder.encode() in cmdline.read_bytes():
                found.append(cmdline.parent.name)
    return found


async def test_another_cluster_than_the_connected_one_is_refused(ray_cluster, tmp_path):
    backend = RayBackend(RayOptions(address="127.0.0.1:1"))
    backend.lease_dir = tmp_path
    with pytest.raises(SandboxRefusedError, match=f"got a connection to {ray_cluster.address}"):
        await backend.open(SandboxSpec())
    await backend.aclose()


async def test_a_resource_that_no_node_has_is_named(ray_cluster, tmp_path):
    options = RayOptions(address=ray_cluster.address, resources={"sandboxes": 2}, pool={"max_failures": 1})
    backend = RayBackend(options)
    backend.lease_dir = tmp_path
    with pytest.raises(BackendError, match=r"no node of the Ray cluster has 2 sandboxes: Ray node .* has 0 sandboxes"):
        await asyncio.wait_for(backend.open(SandboxSpec()), 100)
    await backend.aclose()


async def test_a_resource_that_is_in_use_is_named(ray_cluster, tmp_path):
    name = f"scarce-{uuid.uuid4().hex[:6]}"
    node = ray_cluster.add_node(num_cpus=1, resources={name: 1})

    def backend(seconds):
        given = {"address": ray_cluster.address, "resources": {name: 1}, "pool": {"max_failures": 1}}
        made = RayBackend(RayOptions(**given, actor_timeout=seconds))
        made.lease_dir = tmp_path
        return made

    async def is_known():
        # Nodes report their free resources to the head only from time to time.
        return not (await asyncio.to_thread(ray.available_resources)).get(name)

    first, second = backend(60), backend(0.4)
    async with await first.open(SandboxSpec()):
        assert await eventually(is_known)
        with pytest.raises(BackendError, match=rf"within 0\.4 s: the whole cluster has 0 {name} free"):
            await asyncio.wait_for(second.open(SandboxSpec()), 100)
        await second.aclose()
    await first.aclose()
    ray_cluster.kill_node(node)


async def test_a_program_that_is_missing_on_the_nodes_is_named(ray_cluster, tmp_path):
    backend = RayBackend(RayOptions(address=ray_cluster.address, python="/nowhere/python3"))
    backend.lease_dir = tmp_path
    with pytest.raises(SandboxRefusedError, match=r"Ray node .* has no /nowhere/python3 that runs"):
        await backend.check(SandboxSpec())
    await backend.aclose()


def loss_by_death(text):
    from ray.exceptions import ActorDiedError

    error = ActorDiedError()
    error.error_msg = text
    return node_loss("Ray node ab12 (10.0.0.1)", error)


def test_the_error_of_an_actor_killed_for_memory_says_so():
    error = loss_by_death(
        "The actor died unexpectedly before finishing this task.\n\tclass_name: NodeActor\n"
        "Task was killed due to the node running low on memory."
    )
    assert isinstance(error, SandboxLostError)
    assert "ran out of memory" in error.message
    assert "class_name" not in error.message
    assert "memory_mb" in str(error.hint)


def test_the_error_of_an_actor_that_died_has_ray_s_reason():
    error = loss_by_death(
        "The actor died unexpectedly before finishing this task.\n\tpid: 12\nIts worker exited with code 1."
    )
    assert "its host actor has died: Its worker exited with code 1." in error.message
