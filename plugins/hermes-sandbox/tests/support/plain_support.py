"""A backend on this machine whose places have no Python: a shell of one's choice serves them."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path

from sandbox_support import processes_of

from hermes_core.contracts.errors import NoPythonError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_core.specs import BackendSpec
from hermes_sandbox.backends import AgentBackend, SandboxHost, shell_command
from hermes_sandbox.protocol.agent_process import AgentProcess
from hermes_testing.watching import eventually

PATH = "/usr/bin:/bin"
PLAIN = BackendSpec(name="plain", summary="No Python.", target="plain_support:PlainBackend", isolation=("none",))


class PlainHost(SandboxHost):
    """A directory of this machine."""

    def __init__(self, folder: Path, shell: str) -> None:
        self.folder = folder
        self.workspace = str(folder / "workspace")
        self.state_dir = str(folder / "state")
        for path in (self.workspace, self.state_dir):
            Path(path).mkdir(parents=True)
        self.shell = shell
        self.process: AgentProcess | None = None

    @property
    def serves_plain(self) -> bool:
        return True

    async def start_agent(self):
        raise NoPythonError("this place has no Python")

    async def start_shell(self):
        self.process = await AgentProcess.start(shell_command(shell=self.shell), environment={"PATH": PATH})
        return self.process.stream

    async def stop_all(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            # It has been let go of, and is about to end; how soon is the machine's business.
            await process.end(60.0)
        # What a command that has killed the shell leaves behind.
        for pid in processes_of(self.folder.name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async def destroy(self) -> None:
        # What was killed a moment ago may still be making or deleting something of its own.
        if not await eventually(self._is_deleted):
            raise OSError(f"{self.folder} cannot be deleted")

    def _is_deleted(self) -> bool:
        shutil.rmtree(self.folder, ignore_errors=True)
        return not self.folder.exists()


class PlainBackend(AgentBackend):
    """Every sandbox is a directory under `root`."""

    declaration = PLAIN

    def __init__(self, root: Path, shell: str = "sh") -> None:
        super().__init__()
        self.root = root
        self.shell = shell

    async def create(self, spec: SandboxSpec, sandbox_id: str) -> SandboxHost:
        return PlainHost(self.root / sandbox_id, self.shell)


@asynccontextmanager
async def plain_backend(shell: str = "sh"):
    root = Path(tempfile.mkdtemp(prefix="hermes-plain-"))
    made = PlainBackend(root / "places", shell)
    made.lease_dir = root / "leases"
    try:
        yield made
    finally:
        await made.aclose()
        left = list((root / "places").glob("*")) + list(made.lease_dir.glob("*"))
        shutil.rmtree(root)
        assert not left


@asynccontextmanager
async def plain_sandbox(shell: str = "sh", **fields):
    async with plain_backend(shell) as backend, await backend.open(SandboxSpec(**fields)) as opened:
        yield opened


def running(sandbox_id: str, word: str) -> list[int]:
    """Return the processes of a sandbox that have a word among their arguments."""
    return [pid for pid in processes_of(sandbox_id) if word in _arguments(pid)]


def _arguments(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""
