"""A backend that runs sandboxes on this machine at a low priority."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

from pydantic import BaseModel, ConfigDict, Field

from acme_hermes.plugin import NICED
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_core.specs import BackendSpec
from hermes_sandbox.backends import PROCESSES, PYTHON_FLAGS, AgentBackend, AgentStream, SandboxHost
from hermes_sandbox.local import kill_processes, remove_group

_GRACE: Final = 10.0
"""Seconds the agent has to end everything below it once its input is closed."""


class NicedBackend(AgentBackend):
    """Only the place is Acme's own; sessions, files, timeouts, leases and refusals are inherited."""

    declaration: ClassVar[BackendSpec] = NICED

    class Options(BaseModel):
        """What a run's config says about it."""

        model_config = ConfigDict(extra="forbid")

        niceness: int = Field(default=10, ge=0, le=19)
        pids: int = Field(default=PROCESSES, gt=8)
        """Processes and threads of a sandbox whose task names no number; its agent sees to that."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        self._niceness = options.niceness
        self.pids = options.pids

    def handle(self, spec: SandboxSpec, sandbox_id: str) -> Mapping[str, Any]:
        """Name the directory before it exists."""
        del spec
        return {"sandbox_id": sandbox_id, "root": str(Path(tempfile.gettempdir(), f"acme-{sandbox_id}"))}

    async def create(self, spec: SandboxSpec, sandbox_id: str) -> SandboxHost:
        """Make the directory."""
        root = Path(self.handle(spec, sandbox_id)["root"])
        await asyncio.to_thread((root / "workspace").mkdir, mode=0o700, parents=True)
        return NicedHost(root, sandbox_id, self._niceness)

    async def reclaim(self, handle: Mapping[str, Any]) -> None:
        """Remove what a killed process left behind."""
        await remove_group(handle["sandbox_id"])
        await kill_processes(handle["sandbox_id"], Path(handle["root"]))
        await asyncio.to_thread(shutil.rmtree, handle["root"], ignore_errors=True)


class NicedHost(SandboxHost):
    """A directory and one agent under `nice`."""

    def __init__(self, root: Path, sandbox_id: str, niceness: int) -> None:
        self.workspace = str(root / "workspace")
        self.state_dir = str(root / "state")
        self.provenance = {"niceness": niceness}
        self._root = root
        self._id = sandbox_id
        self._command = ["nice", "-n", str(niceness), sys.executable, *PYTHON_FLAGS]
        self._agent: asyncio.subprocess.Process | None = None

    async def start_agent(self) -> AgentStream:
        """Start a Python at low priority; nothing of the caller's environment goes with it."""
        pipe = asyncio.subprocess.PIPE
        self._agent = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=pipe,
            stdout=pipe,
            env={"PATH": os.defpath, "LANG": "C.UTF-8"},
            cwd="/",
            start_new_session=True,
        )
        assert self._agent.stdin is not None
        assert self._agent.stdout is not None
        return AgentStream(self._agent.stdout, self._agent.stdin)

    async def stop_all(self) -> None:
        """Close the agent's input, on which it ends everything; what outlives a killed agent is found by its mark."""
        agent, self._agent = self._agent, None
        if agent is None:
            return
        assert agent.stdin is not None
        agent.stdin.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(agent.wait(), _GRACE)
        if agent.returncode is None:
            agent.kill()
            await agent.wait()
        await remove_group(self._id)
        await kill_processes(self._id, self._root)

    async def destroy(self) -> None:
        """Remove the directory."""
        await asyncio.to_thread(shutil.rmtree, self._root, ignore_errors=True)
