"""Backend `local`: processes of this machine, plain or inside bubblewrap."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from hermes_core.cancellation import run_uncancelled
from hermes_core.contracts.errors import BackendError, SandboxLostError, SandboxRefusedError
from hermes_core.contracts.leases import LeaseStore
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_core.specs import BackendSpec
from hermes_sandbox.backend import bubblewrap
from hermes_sandbox.backend.base import AgentBackend
from hermes_sandbox.backend.hosts.host import SandboxHost
from hermes_sandbox.backend.options import ENVIRONMENT
from hermes_sandbox.leases.book import Lease
from hermes_sandbox.local.cgroups import PREFIX, ControlGroups, Group
from hermes_sandbox.local.declaration import LOCAL
from hermes_sandbox.local.files import delete_tree, find_abandoned, make_directories
from hermes_sandbox.local.hosts import LocalBubblewrapHost, LocalPlainHost
from hermes_sandbox.local.kill import kill_processes
from hermes_sandbox.local.limits import Limits, plan_limits
from hermes_sandbox.local.options import LocalOptions
from hermes_sandbox.local.slots import LocalSlot, SharedAgent
from hermes_sandbox.local.zygote import Zygote
from hermes_sandbox.protocol.fd_limits import system_error


class LocalBackend(AgentBackend):
    """Opens sandboxes on this machine.

    Isolation `none` separates nothing but directories and environments: commands run as the caller's user. `bwrap`
    shows a read-only /usr, private /tmp, /home and /workspace, namespaces of its own, and no capabilities.
    """

    declaration: ClassVar[BackendSpec] = LOCAL
    Options = LocalOptions

    def __init__(self, options: LocalOptions | None = None) -> None:
        super().__init__()
        self.options = options or LocalOptions()
        self.setup_timeout = self.options.setup_timeout
        self.patience = self.options.patience
        self.pids = self.options.pids
        self._groups = ControlGroups(self.options.cgroup)
        self._bubblewrap = ""
        self._zygote = Zygote(self.options.python or sys.executable, self.options.path, self.options.setup_timeout)

    def refuse(self, spec: SandboxSpec) -> None:
        """Refuse also what only bubblewrap could enforce."""
        super().refuse(spec)
        if spec.network != "full" and spec.isolation == "none":
            raise self._refusal(
                f"network {spec.network!r} at isolation 'none'", '--isolation bwrap (open_sandbox: isolation="bwrap")'
            )
        if spec.disk_mb is not None and spec.isolation == "none":
            raise self._refusal("limit disk_mb at isolation 'none'", "--isolation bwrap, or leave disk_mb out")
        if self.shares(spec):
            for limit in ("cpu", "memory_mb"):
                if getattr(spec, limit) is not None:
                    raise self._refusal(f"limit {limit} for one of several slots", "the option slots_per_agent: 1")

    def shares(self, spec: SandboxSpec) -> bool:
        """Tell whether sandboxes of this spec share an agent: those of isolation `none`, by `slots_per_agent`."""
        return spec.isolation == "none" and self.options.slots_per_agent > 1

    async def probe(self, spec: SandboxSpec) -> None:
        """Open a sandbox of this kind and run a command in it."""
        if spec.isolation == "bwrap" and shutil.which("bwrap", path=ENVIRONMENT["PATH"]) is None:
            raise SandboxRefusedError("isolation 'bwrap' needs the program bwrap", hint="apt-get install bubblewrap")
        try:
            async with await self.open(spec) as sandbox:
                result = await sandbox.exec("true", timeout=self.setup_timeout)
        except SandboxRefusedError:
            raise
        except (BackendError, SandboxLostError) as error:
            raise SandboxRefusedError(
                f"isolation {spec.isolation!r} does not work here: {error.message}",
                hint=bubblewrap.advice(error.message) if spec.isolation == "bwrap" else error.hint,
            ) from error
        if result.exit_code != 0:
            raise BackendError(f"bash does not work in a sandbox: {result.output.strip()}")

    def handle(self, spec: SandboxSpec, sandbox_id: str) -> Mapping[str, Any]:
        """Return the directory and the control groups, by which everything of the sandbox is found."""
        mine = {"sandbox_id": sandbox_id, "root": str(self._root(sandbox_id))}
        shared = {"shared": True} if self.shares(spec) else {}
        return {**mine, **shared, "groups": [str(path) for path in self._group_paths(spec, sandbox_id)]}

    def _root(self, sandbox_id: str) -> Path:
        return (self.options.root_dir or Path(tempfile.gettempdir())) / f"{PREFIX}{sandbox_id}"

    def _plan(self, spec: SandboxSpec, sandbox_id: str) -> Limits:
        per_process = self.options.memory_limit == "per_process"
        # Without namespaces a group is the only thing that no process of the sandbox leaves by accident. In a
        # user namespace the agent bounds them at less cost, except for this machine's root, to whom no limit applies,
        # and except on older kernels, which count a user's processes in all namespaces together.
        by_agent = spec.isolation == "bwrap" and self._inside_uid(spec) != 0 and bubblewrap.counts_apart()
        pids = None if by_agent else self.pids
        return plan_limits(spec, self._groups, sandbox_id, per_process=per_process, pids=pids)

    def _group_paths(self, spec: SandboxSpec, sandbox_id: str) -> list[Path]:
        return self._groups.paths(sandbox_id, self._plan(spec, sandbox_id).controllers)

    def _group(self, limits: Limits, sandbox_id: str) -> Group | None:
        paths = self._groups.paths(sandbox_id, limits.controllers)
        return Group(paths) if paths else None

    def _inside_uid(self, spec: SandboxSpec) -> int:
        return self.options.uid if spec.isolation == "bwrap" and os.geteuid() == 0 else os.geteuid()

    async def create(self, spec: SandboxSpec, sandbox_id: str) -> SandboxHost:
        """Make the sandbox's directories and its control group, or take a slot of a shared agent."""
        if self.shares(spec):
            return self._slot(spec, sandbox_id)
        return await self._alone(spec, sandbox_id)

    async def _alone(self, spec: SandboxSpec, sandbox_id: str) -> SandboxHost:
        limits = self._plan(spec, sandbox_id)
        group = self._group(limits, sandbox_id)
        uid = self._inside_uid(spec)
        inside = spec.isolation == "bwrap"
        root = await self._make_root(self.lease_for(spec, sandbox_id), uid, limits, group, with_accounts=inside)
        if inside:
            network = spec.network == "full"
            self._bubblewrap = self._bubblewrap or await asyncio.to_thread(bubblewrap.version)
            host = LocalBubblewrapHost(
                root, sandbox_id, self.options, limits, group, zygote=self._zygote, network=network, uid=uid
            )
            host.provenance = {**host.provenance, "runtime": self._bubblewrap}
            return host
        return LocalPlainHost(root, sandbox_id, self.options, limits, group, zygote=self._zygote)

    async def _make_root(
        self, lease: Lease, uid: int, limits: Limits, group: Group | None, *, with_accounts: bool = False
    ) -> Path:
        root = self._root(lease.sandbox_id)
        gid = uid if os.geteuid() == 0 and uid else os.getegid()
        try:
            await asyncio.to_thread(make_directories, root, uid, gid, limits, lease, with_accounts=with_accounts)
            if group is not None:
                group.create(limits.settings)
        except OSError as error:
            await delete_tree(root)
            hint = "set the backend's option root_dir to a writable directory"
            raise system_error("the sandbox's directory or control group cannot be made", error, hint) from error
        except SandboxRefusedError:
            await delete_tree(root)
            raise
        return root

    def _slot(self, spec: SandboxSpec, sandbox_id: str) -> LocalSlot:
        # Limits other than that of processes apply to the whole agent.
        limits = Limits(enforced={"file_size": "rlimit, per process"} if spec.file_size_mb is not None else {})
        slot = LocalSlot(
            self.host_pool,
            partial(self._shared_agent, spec),
            spec=spec,
            limit=self.options.slots_per_agent,
            root=self._root(sandbox_id),
            sandbox_id=sandbox_id,
            make=lambda: self._make_root(self.lease_for(spec, sandbox_id), os.geteuid(), limits, None),
            group=self._group(self._plan(spec, sandbox_id), sandbox_id),
        )
        slot.provenance = {"limits": dict(limits.enforced)} if limits.enforced else {}
        return slot

    async def _shared_agent(self, spec: SandboxSpec) -> SharedAgent:
        # The agent has a lease of its own: it exists before the slots, and after them.
        agent_id = uuid.uuid4().hex[:16]
        group = self._group(self._plan(spec, agent_id), agent_id)
        paths = [str(path) for path in self._group_paths(spec, agent_id)]
        handle = {"sandbox_id": agent_id, "root": str(self._root(agent_id)), "groups": paths}
        terms, leases = dataclasses.replace(self.lease_terms(spec, agent_id), handle=handle), self.lease_store
        await leases.take(terms)
        try:
            # Its slots have their own groups beside it, with limits.
            root = await run_uncancelled(self._make_root(Lease.of_terms(terms), os.geteuid(), Limits(), group))
        except BaseException:
            await run_uncancelled(self._abandon(leases, handle))
            raise
        agent = SharedAgent(root, agent_id, self.options, Limits(), group, zygote=self._zygote)
        agent.mark = agent_id
        agent.release = partial(leases.give_up, agent_id)
        return agent

    async def _abandon(self, leases: LeaseStore, handle: Mapping[str, Any]) -> None:
        await self.reclaim(handle)
        await leases.give_up(handle["sandbox_id"])

    async def sweep(self, *, remove: bool = True) -> list[str]:
        """Find the directories of dead owners; each holds a copy of its lease."""
        parent = self.options.root_dir or Path(tempfile.gettempdir())
        abandoned = await asyncio.to_thread(find_abandoned, parent, self.declaration.name)
        if remove:
            self._groups.discard_probes()
            for lease in abandoned:
                await self.reclaim(lease.handle)
        return [lease.sandbox_id for lease in abandoned]

    async def reclaim(self, handle: Mapping[str, Any]) -> None:
        """Kill the processes and delete the files that a killed process left behind."""
        root = Path(handle["root"])
        if root.name != f"{PREFIX}{handle['sandbox_id']}":
            raise BackendError(f"{root} is not the directory of sandbox {handle['sandbox_id']}; nothing was deleted")
        group = _group_of(handle)
        if group is not None:
            await group.remove()
        await kill_processes(handle["sandbox_id"], root, shared=handle.get("shared", False))
        await delete_tree(root)

    async def aclose(self) -> None:
        """Close every open sandbox, and last the Python that forked their agents."""
        try:
            await super().aclose()
        finally:
            await self._zygote.aclose()


def _group_of(handle: Mapping[str, Any]) -> Group | None:
    paths = [Path(path) for path in handle.get("groups", ())]
    for path in paths:
        if path.name != f"{PREFIX}{handle['sandbox_id']}":
            raise BackendError(f"{path} is not the group of sandbox {handle['sandbox_id']}; nothing was removed")
    return Group(paths) if paths else None
