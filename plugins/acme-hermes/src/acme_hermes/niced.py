"""A backend that runs sandboxes on this machine at a low priority."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from acme_hermes.niced_host import NicedHost
from acme_hermes.plugin import NICED
from acme_hermes.slots import NicedSlot, SharedNicedHost
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_core.specs import BackendSpec
from hermes_sandbox.backends import PROCESSES, AgentBackend, SandboxHost
from hermes_sandbox.local import kill_processes, remove_group


class NicedBackend(AgentBackend):
    """Creates only the hosts itself; sessions, files, timeouts, leases and refusals are inherited."""

    declaration: ClassVar[BackendSpec] = NICED

    class Options(BaseModel):
        """What a run's config says about it."""

        model_config = ConfigDict(extra="forbid")

        niceness: int = Field(default=10, ge=0, le=19)
        slots: int = Field(default=1, ge=1)
        """Sandboxes that share an agent, at most; by that the backend can be a member of a pool."""
        pids: int = Field(default=PROCESSES, gt=8)
        """Processes and threads of a sandbox whose task names no number; its agent sees to that."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        self._niceness = options.niceness
        self._slots = options.slots
        self.pids = options.pids

    def handle(self, spec: SandboxSpec, sandbox_id: str) -> Mapping[str, Any]:
        """Name the directory before it exists."""
        del spec
        return {"sandbox_id": sandbox_id, "root": str(_root(sandbox_id))}

    def shares(self, spec: SandboxSpec) -> bool:
        """Tell whether sandboxes are slots of shared hosts."""
        del spec
        return self._slots > 1

    async def create(self, spec: SandboxSpec, sandbox_id: str) -> SandboxHost:
        """Create the directory of a host for one sandbox, or return a slot of a shared host."""
        root = _root(sandbox_id)
        if self.shares(spec):
            return NicedSlot(
                self.host_pool,
                lambda: self.make_shared_host(spec, self._make_host),
                limit=self._slots,
                root=root,
                sandbox_id=sandbox_id,
            )
        await asyncio.to_thread((root / "workspace").mkdir, mode=0o700, parents=True)
        return NicedHost(root, sandbox_id, self._niceness)

    async def _make_host(self, host_id: str) -> SharedNicedHost:
        host = SharedNicedHost(_root(host_id), host_id, self._niceness)
        host.mark = host_id
        return host

    async def reclaim(self, handle: Mapping[str, Any]) -> None:
        """Remove what a killed process left behind."""
        await remove_group(handle["sandbox_id"])
        await kill_processes(handle["sandbox_id"], Path(handle["root"]))
        await asyncio.to_thread(shutil.rmtree, handle["root"], ignore_errors=True)


def _root(sandbox_id: str) -> Path:
    return Path(tempfile.gettempdir(), f"acme-{sandbox_id}")
