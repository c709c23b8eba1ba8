"""A backend written as a stranger would: one class that makes a place, one that starts an agent in it."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from hermes_core.contracts.errors import BackendError, SandboxRefusedError
from hermes_core.contracts.sandbox import SandboxSpec, TerminalBackend
from hermes_core.specs import BackendSpec
from hermes_sandbox.backends import PYTHON_FLAGS, AgentBackend, AgentStream, SandboxHost


class FolderHost(SandboxHost):
    def __init__(self, folder: Path, log: list[str]) -> None:
        self.provenance = {"colour": "green"}
        self.workspace = str(folder)
        self.log = log
        self.process = None

    async def start_agent(self) -> AgentStream:
        self.log.append("start")
        ours, theirs = socket.socketpair()
        self.process = subprocess.Popen([sys.executable, *PYTHON_FLAGS], stdin=theirs, stdout=theirs, env={})
        theirs.close()
        return AgentStream(*await asyncio.open_connection(sock=ours))

    async def stop_all(self) -> None:
        self.log.append("stop")
        if self.process is not None:
            await asyncio.to_thread(self.process.wait)

    async def destroy(self) -> None:
        self.log.append("destroy")
        shutil.rmtree(self.workspace)


class FolderBackend(AgentBackend):
    declaration = BackendSpec(name="folder", summary="A folder.", target="nowhere:FolderBackend")

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root
        self.lease_dir = root / "leases"
        self.log: list[str] = []
        self.slow = asyncio.Event()
        self.slow.set()

    async def create(self, spec: SandboxSpec, sandbox_id: str) -> SandboxHost:
        self.log.append("create")
        await self.slow.wait()
        return FolderHost(Path(tempfile.mkdtemp(dir=self.root)), self.log)


@pytest.fixture
def folder_backend(tmp_path):
    return FolderBackend(tmp_path)


def leftovers(made):
    return [path for path in made.root.rglob("*") if path.name != "leases"]


async def test_everything_else_is_inherited(folder_backend):
    satisfies: TerminalBackend = folder_backend
    assert isinstance(satisfies, TerminalBackend)
    await folder_backend.check(SandboxSpec())
    async with await folder_backend.open(SandboxSpec(env={"A": "1"}, cwd="sub")) as sandbox:
        await sandbox.write_file("f", b"x")
        assert (await sandbox.exec("echo $A $HOME; cat ../f; cd /; sleep 9 &")).output == f"1 {sandbox.workspace}\nx"
        await sandbox.renew()
        assert (await sandbox.exec("basename $PWD; sleep 60", timeout=0.2)).exit_code == 124
        assert sandbox.provenance == {
            "backend": "folder",
            "isolation": "none",
            "network": "full",
            "sandbox_id": sandbox.id,
            "colour": "green",
            "limits": sandbox.provenance["limits"],
        }
        assert [path.name for path in folder_backend.lease_dir.iterdir()] == [f"{sandbox.id}.json"]
    assert folder_backend.log == ["create", "start", "stop", "start", "stop", "destroy"]
    assert leftovers(folder_backend) == []


@pytest.mark.parametrize(
    "fields", [{"network": "none"}, {"isolation": "bwrap"}, {"image": "x"}, {"file_size_mb": 1}, {"memory_mb": 1}]
)
async def test_what_is_not_declared_is_refused(folder_backend, fields):
    with pytest.raises(SandboxRefusedError, match="backend 'folder' cannot enforce"):
        await folder_backend.open(SandboxSpec(**fields))
    assert folder_backend.log == []


async def test_a_place_that_was_being_made_when_the_caller_left_is_destroyed(folder_backend):
    folder_backend.slow.clear()
    opening = asyncio.create_task(folder_backend.open(SandboxSpec()))
    while not folder_backend.log:
        await asyncio.sleep(0.005)
    opening.cancel()
    await asyncio.sleep(0.01)
    opening.cancel()
    folder_backend.slow.set()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert folder_backend.log == ["create", "stop", "destroy"]
    assert leftovers(folder_backend) == []


async def test_a_backend_that_fails_to_make_a_place_leaves_no_lease(folder_backend):
    folder_backend.root = folder_backend.root / "missing"
    with pytest.raises(FileNotFoundError):
        await folder_backend.open(SandboxSpec())
    assert list(folder_backend.lease_dir.iterdir()) == []


async def test_closing_the_backend_closes_what_is_open(folder_backend):
    await folder_backend.open(SandboxSpec())
    await folder_backend.open(SandboxSpec())
    await folder_backend.aclose()
    assert leftovers(folder_backend) == []


async def test_without_reclaim_a_lease_says_what_to_remove_by_hand(folder_backend):
    with pytest.raises(BackendError, match="by hand"):
        await folder_backend.reclaim({"sandbox_id": "s"})
