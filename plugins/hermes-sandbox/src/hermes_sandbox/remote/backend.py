"""The base class of backends whose sandboxes are on other machines that can run commands."""

from __future__ import annotations

import contextlib
import uuid
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Final

from hermes_core.contracts.errors import BackendError, SandboxLostError, SandboxRefusedError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_sandbox.backend.base import AgentBackend
from hermes_sandbox.backend.bubblewrap import advice
from hermes_sandbox.backend.hosts.host import SandboxHost
from hermes_sandbox.remote.facts import Machine, probe_host, sweep
from hermes_sandbox.remote.hosts import RemoteBubblewrapHost, RemoteHost, RemotePlainHost
from hermes_sandbox.remote.link import Link
from hermes_sandbox.remote.options import MachineOptions
from hermes_sandbox.remote.shared import SharedSlot

_PREFIX: Final = "hermes-sandbox-"


class MachineBackend(AgentBackend):
    """Sandboxes on machines. A subclass provides links to them, and says where a sandbox is.

    Isolation `none` trusts the machine: commands run there beside everything else of the same user. `bwrap` shows them
    a read-only /usr and directories of their own, where the machine has bubblewrap.
    """

    options: MachineOptions

    def __init__(self, options: MachineOptions) -> None:
        super().__init__()
        self.options = options
        self.setup_timeout = options.setup_timeout
        self.patience = options.patience
        self.pids = options.pids
        self._machines: dict[str, Machine] = {}

    @abstractmethod
    async def connect(self) -> Link:
        """Return a new link for one new host, to a machine that the backend chooses.

        Raises:
            BackendError: No machine is available now.
        """

    async def connect_again(self, lost: Link) -> Link:
        """Return a new link to the machine of a lost one, to remove what is left there."""
        del lost
        return await self.connect()

    @abstractmethod
    def reach(self, handle: Mapping[str, Any]) -> contextlib.AbstractAsyncContextManager[Sequence[Link]]:
        """Provide a link to each machine on which the sandbox of `handle` may be, for the time of the context.

        No link means success: there is nothing left to remove.

        Raises:
            BackendError: One of them cannot be reached.
        """

    @abstractmethod
    def address(self) -> Mapping[str, Any]:
        """Return what `reach` needs to know to find the machines; it becomes part of handles."""

    def provenance_of(self, link: Link) -> Mapping[str, Any]:
        """Return the provenance of a link's machine, recorded with every rollout there."""
        del link
        return self.address()

    def amend_handle(self, handle: Mapping[str, Any], provenance: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the handle of a sandbox after its machine was chosen, given the machine's provenance.

        Called before anything of the sandbox exists; a handle that differs is written to its lease first.
        """
        del provenance
        return handle

    async def _locate(self, handle: Mapping[str, Any], provenance: Mapping[str, Any]) -> Mapping[str, Any]:
        found = self.amend_handle(handle, provenance)
        if found != handle:
            await self.lease_store.amend(handle["sandbox_id"], found)
        return found

    def refuse(self, spec: SandboxSpec) -> None:
        """Refuse also what only bubblewrap could enforce."""
        super().refuse(spec)
        if spec.network != "full" and spec.isolation == "none":
            raise self._refusal(
                f"network {spec.network!r} at isolation 'none'", '--isolation bwrap (open_sandbox: isolation="bwrap")'
            )

    def shares(self, spec: SandboxSpec) -> bool:
        """Tell whether sandboxes of this spec share an agent: those of isolation `none`, by `slots_per_agent`."""
        return spec.isolation == "none" and self.options.slots_per_agent > 1

    async def probe(self, spec: SandboxSpec) -> None:
        """Open a sandbox of this kind and run a command in it."""
        try:
            async with await self.open(spec) as sandbox:
                result = await sandbox.exec("true", timeout=self.setup_timeout)
        except SandboxRefusedError:
            raise
        except (BackendError, SandboxLostError) as error:
            # An error with a hint has nothing to do with the level: an engine that is down, a full disk.
            if spec.isolation == "none" or error.hint is not None:
                raise
            raise SandboxRefusedError(
                f"isolation {spec.isolation!r} does not work on {self.place_name}: {error.message}",
                hint=f"there: {advice(error.message)}",
            ) from error
        if result.exit_code != 0:
            raise BackendError(f"bash does not work in a sandbox: {result.output.strip()}")

    @property
    def place_name(self) -> str:
        """The machines together, as messages name them."""
        return f"the machines of backend {self.declaration.name!r}"

    def handle(self, spec: SandboxSpec, sandbox_id: str) -> Mapping[str, Any]:
        """Return the machine and the directory; the backend's options say how to get there."""
        del spec
        root = f"{self.options.root_dir.rstrip('/')}/{_PREFIX}{sandbox_id}"
        return {"sandbox_id": sandbox_id, **self.address(), "root": root}

    async def create(self, spec: SandboxSpec, sandbox_id: str) -> SandboxHost:
        """Make a host on a machine, with its own link for a sandbox that shares nothing."""
        handle = self.handle(spec, sandbox_id)
        if self.shares(spec):
            return self._share(spec, handle)
        kind = RemoteBubblewrapHost if spec.isolation == "bwrap" else RemotePlainHost
        async with contextlib.AsyncExitStack() as unless_made:
            link = await self.connect()
            unless_made.push_async_callback(link.aclose)
            await self._locate(handle, self.provenance_of(link))
            host = kind(
                link,
                await self.look(link),
                self.options,
                provenance=self.provenance_of(link),
                sandbox_id=sandbox_id,
                root=handle["root"],
                again=self.connect_again,
            )
            if isinstance(host, RemoteBubblewrapHost):
                host.network = spec.network == "full"
            await host.make()
            unless_made.pop_all()
        return host

    def _share(self, spec: SandboxSpec, handle: Mapping[str, Any]) -> SharedSlot:
        async def locate(provenance: Mapping[str, Any]) -> None:
            nonlocal handle
            handle = await self._locate(handle, provenance)

        return SharedSlot(
            self.host_pool,
            self._make_host,
            spec=spec,
            limit=self.options.slots_per_agent,
            root=handle["root"],
            provenance=self.address(),
            locate=locate,
            remove=lambda: self.reclaim(handle),
        )

    async def _make_host(self) -> SandboxHost:
        link = await self.connect()
        try:
            machine = await self.look(link)
        except BaseException:
            await link.aclose()
            raise
        provenance = self.provenance_of(link)
        return RemoteHost(link, machine, self.options, provenance=provenance, mark=uuid.uuid4().hex[:16])

    async def look(self, link: Link) -> Machine:
        """Return the facts about a link's machine, which is probed once."""
        if link.name not in self._machines:
            self._machines[link.name] = await probe_host(link, self.options)
        return self._machines[link.name]

    async def reclaim(self, handle: Mapping[str, Any]) -> None:
        """Kill the processes and delete the files that a killed process left behind, on whichever machine."""
        root, sandbox_id = handle["root"], handle["sandbox_id"]
        if root.rpartition("/")[2] != f"{_PREFIX}{sandbox_id}":
            raise BackendError(f"{root} is not the directory of sandbox {sandbox_id}; nothing was deleted")
        async with self.reach(handle) as links:
            for link in links:
                await self._clean(link, sandbox_id, root)

    async def _clean(self, link: Link, sandbox_id: str, root: str) -> None:
        try:
            await self._sweep_through(link, sandbox_id, root)
        except SandboxLostError:
            # The link is lost, its machine is not: another of Ray's nodes may run there, and ssh may log in again.
            async with contextlib.aclosing(await self.connect_again(link)) as another:
                await self._sweep_through(another, sandbox_id, root)

    async def _sweep_through(self, link: Link, sandbox_id: str, root: str) -> None:
        machine = await self.look(link)
        await sweep(link, machine.python, sandbox_id, root, delete=True, timeout=self.setup_timeout)
