"""A subclass of AgentBackend may come with a lease store of its own, which is then the one in use."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys

import pytest

from hermes_core import load_plugins
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_core.rollout import supply_lease_store
from hermes_core.specs import BackendSpec
from hermes_sandbox import FileLeaseStore, LeaseBook
from hermes_sandbox.backends import PYTHON_FLAGS, AgentBackend, AgentStream, SandboxHost


class Host(SandboxHost):
    """A folder in which an agent runs as a plain process."""

    def __init__(self, folder):
        self.workspace = str(folder)
        self.process = None

    async def start_agent(self):
        ours, theirs = socket.socketpair()
        self.process = subprocess.Popen([sys.executable, *PYTHON_FLAGS], stdin=theirs, stdout=theirs, env={})
        theirs.close()
        return AgentStream(*await asyncio.open_connection(sock=ours))

    async def stop_all(self):
        if self.process is not None:
            await asyncio.to_thread(self.process.wait)

    async def destroy(self):
        """Leave the folder to the test."""


class Folders(AgentBackend):
    declaration = BackendSpec(name="folders", summary="Folders.", target="nowhere:Folders")

    def __init__(self, root):
        super().__init__()
        self.root = root

    async def create(self, spec, sandbox_id):
        return Host(self.root)

    async def reclaim(self, handle):
        """Leave the folder to the test."""

    async def sweep(self, *, remove=True):
        return []


class SetsLeases(Folders):
    def __init__(self, root):
        super().__init__(root)
        self.leases = FileLeaseStore.at(root / "leases")


class SetsLeasesFirst(Folders):
    def __init__(self, root):
        self.leases = FileLeaseStore.at(root / "leases")
        super().__init__(root)


class CallsLeaseWith(Folders):
    def __init__(self, root):
        super().__init__(root)
        self.lease_with(FileLeaseStore.at(root / "leases"))


@pytest.mark.parametrize("kind", [SetsLeases, SetsLeasesFirst, CallsLeaseWith])
async def test_leases_are_written_to_the_store_that_a_subclass_comes_with(kind, tmp_path, monkeypatch):
    """One that set `leases` wrote them to the user's directory, while the run collected from its own store."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    backend = kind(tmp_path)
    assert supply_lease_store(backend, load_plugins(), "folders") is backend.lease_store
    async with await backend.open(SandboxSpec()) as sandbox:
        assert [lease.sandbox_id for lease in LeaseBook(tmp_path / "leases").read()[0]] == [sandbox.id]
    await backend.aclose()
    assert not (tmp_path / "state").exists()
