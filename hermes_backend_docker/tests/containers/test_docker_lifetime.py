"""Containers that somebody else ends, and callers that somebody else ends."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from engine_state import narrow_sweeps

from hermes_backend_docker.backend import DockerBackend
from hermes_backend_docker.containers.ownership import SANDBOX, container_name, is_abandoned, labels_of
from hermes_core.contracts.errors import SandboxLostError
from hermes_core.contracts.sandbox import Sandbox, SandboxSpec
from hermes_sandbox import LeaseBook
from hermes_sandbox.backends import Lease
from hermes_testing.watching import eventually

pytestmark = pytest.mark.component("docker")
ASK = SandboxSpec(isolation="container", network="none", rollout_id="r-1")


def _docker(*arguments: str) -> str:
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, check=True).stdout


def _containers(sandbox_id: str) -> list[str]:
    return _docker("ps", "-aq", "--filter", f"label={SANDBOX}={sandbox_id}").split()


@pytest.fixture
def sandbox_id() -> str:
    """An id that no other container on this engine has."""
    return secrets.token_hex(8)


async def _reach(sandbox: Sandbox, path: str) -> None:
    async def there() -> bool:
        return any(entry.path == path for entry in await sandbox.list_dir())

    assert await eventually(there)


@pytest.mark.parametrize(
    ("how", "said"), [(("rm", "-f"), "removed by somebody else"), (("kill",), "killed or removed")]
)
async def test_a_container_that_somebody_removes_in_a_call_loses_the_sandbox(
    backend: DockerBackend, how: tuple[str, ...], said: str
) -> None:
    async with await backend.open(ASK) as sandbox:
        call = asyncio.create_task(sandbox.exec("touch started; sleep 600"))
        await _reach(sandbox, "started")
        await asyncio.to_thread(_docker, *how, container_name(sandbox.id))
        with pytest.raises(SandboxLostError, match=said):
            await asyncio.wait_for(call, 60)
        with pytest.raises(SandboxLostError):
            await sandbox.read_file("started")
    assert _containers(sandbox.id) == []


async def test_a_container_that_goes_before_it_starts_is_made_again(backend: DockerBackend, sandbox_id: str) -> None:
    host = await backend.create(ASK, sandbox_id)
    try:
        await backend.engine.remove(container_name(sandbox_id))
        stream = await host.start_agent()
        stream.writer.close()
    finally:
        await host.stop_all()
        await host.destroy()
    assert _containers(sandbox_id) == []


async def test_removing_what_is_not_there_is_fine(backend: DockerBackend, sandbox_id: str) -> None:
    await backend.reclaim({"sandbox_id": sandbox_id})


async def test_a_sandbox_that_is_closed_while_somebody_removes_it_is_closed(backend: DockerBackend) -> None:
    sandbox = await backend.open(ASK)
    await asyncio.gather(sandbox.aclose(), backend.reclaim({"sandbox_id": sandbox.id}))
    assert _containers(sandbox.id) == []


async def test_an_open_that_is_cancelled_leaves_nothing(backend: DockerBackend, leftovers: None) -> None:
    await (await backend.open(ASK)).aclose()
    for seconds in (0.0, 0.02, 0.06, 0.15, 0.3):
        opening = asyncio.create_task(backend.open(ASK))
        await asyncio.wait((opening,), timeout=seconds)
        opening.cancel()
        made = (await asyncio.gather(opening, return_exceptions=True))[0]
        if not isinstance(made, BaseException):
            await made.aclose()
    assert backend.lease_dir is not None
    assert LeaseBook(backend.lease_dir).read() == ([], [])


_HOLDER = """
import asyncio, sys
from pathlib import Path
from hermes_backend_docker.backend import DockerBackend, DockerOptions
from hermes_core.contracts.sandbox import SandboxSpec

async def main():
    backend = DockerBackend(DockerOptions(image=sys.argv[1], pull="never"))
    backend.lease_dir = Path(sys.argv[2])
    sandbox = await backend.open(SandboxSpec(isolation="container", network="none"))
    await sandbox.exec("setsid sleep 600 & trap '' TERM HUP; sleep 600 & disown -a")
    print(sandbox.id, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def _hold(image: str, leases: Path) -> tuple[subprocess.Popen[str], str]:
    holder = subprocess.Popen([sys.executable, "-c", _HOLDER, image, str(leases)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    return holder, holder.stdout.readline().strip()


async def test_a_caller_that_is_killed_takes_its_container_with_it(tmp_path: Path, image: str) -> None:
    holder, sandbox_id = await asyncio.to_thread(_hold, image, tmp_path)
    with holder:
        assert _containers(sandbox_id) != []
        holder.send_signal(signal.SIGKILL)
    assert await eventually(lambda: _containers(sandbox_id) == [], seconds=60)


async def test_what_a_living_owner_has_is_not_swept(
    backend: DockerBackend, sandbox_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow_sweeps(monkeypatch, SANDBOX, sandbox_id)
    host = await backend.create(ASK, sandbox_id)
    try:
        assert await backend.sweep() == []
        assert _containers(sandbox_id) != []
    finally:
        await host.stop_all()
        await host.destroy()


async def test_what_a_dead_owner_never_started_is_swept_without_its_lease(
    backend: DockerBackend, image: str, sandbox_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow_sweeps(monkeypatch, SANDBOX, sandbox_id)
    mine = Lease.of_this_process(sandbox_id=sandbox_id, backend="docker", rollout_id=None, deadline=0, handle={})
    labels = {**labels_of(mine), "hermes.lease.owner_start": "1"}
    flags = [flag for name, value in labels.items() for flag in ("--label", f"{name}={value}")]
    await asyncio.to_thread(_docker, "create", "--name", container_name(sandbox_id), *flags, image)
    # The result is not compared, because another program may be sweeping at the same time.
    await backend.sweep()
    assert await eventually(lambda: _containers(sandbox_id) == [])


def test_only_an_owner_that_is_known_to_be_dead_has_abandoned_its_container() -> None:
    mine = Lease.of_this_process(sandbox_id="x", backend="docker", rollout_id="r", deadline=0, handle={})
    labels = labels_of(mine)
    assert not is_abandoned(labels)
    assert is_abandoned({**labels, "hermes.lease.owner_start": "1"})
    # A container of this host name on another machine: its labels lie on an engine that both use.
    assert not is_abandoned({**labels, "hermes.lease.boot_id": "another", "hermes.lease.machine_id": "another"})
    assert not is_abandoned({**labels, "hermes.lease.node": "another-machine"})
    assert not is_abandoned({SANDBOX: "of another version"})


async def test_labels_name_the_owner_of_a_container(backend: DockerBackend) -> None:
    async with await backend.open(ASK) as sandbox:
        form = '{{index .Config.Labels "hermes.rollout"}} {{index .Config.Labels "hermes.lease.owner_pid"}}'
        found = await asyncio.to_thread(_docker, "inspect", "--format", form, container_name(sandbox.id))
    assert found.split() == ["r-1", str(os.getpid())]
