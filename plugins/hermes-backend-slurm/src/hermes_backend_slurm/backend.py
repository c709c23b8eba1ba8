"""Backend `slurm`: sandboxes on the nodes of an allocation."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import weakref
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, ClassVar, Final

from hermes_backend_slurm.allocation import Allocation
from hermes_backend_slurm.cleaning import CleaningJobs
from hermes_backend_slurm.commands import Slurm
from hermes_backend_slurm.node import NodeLink
from hermes_backend_slurm.options import SlurmOptions
from hermes_backend_slurm.ownership import is_abandoned
from hermes_backend_slurm.plugin import SLURM
from hermes_core.cancellation import run_uncancelled
from hermes_core.contracts.errors import BackendError, SandboxRefusedError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_core.specs import BackendSpec
from hermes_pool import OptionNames, PoolOptions, SlotPool
from hermes_sandbox.backends import SharedHostPool
from hermes_sandbox.remote import Link, MachineBackend

_PROVED: Final = 5.0
"""Seconds for which a node that has run a step counts as working without another trial."""


class SlurmBackend(MachineBackend):
    """Sandboxes on the nodes of a Slurm allocation; each agent runs as a step of it.

    Isolation `none` trusts the nodes: commands run there as the submitting user. `bwrap` shows them a read-only /usr
    and private directories, if the nodes have bubblewrap.
    """

    declaration: ClassVar[BackendSpec] = SLURM
    Options = SlurmOptions
    options: SlurmOptions

    def __init__(self, options: SlurmOptions) -> None:
        super().__init__(options)
        self._slurm = Slurm(options)
        self._cleaning = CleaningJobs(self._slurm, options)
        self._allocation: Allocation | None = None
        self._asking: asyncio.Future[Allocation] | None = None
        self._waiting = 0
        self._pooled = False
        self._links: weakref.WeakSet[NodeLink] = weakref.WeakSet()
        self._proved: dict[str, float] = {}

    @property
    def place_name(self) -> str:
        """The nodes as messages name them, with their allocation if it exists."""
        return f"the nodes of allocation {self._allocation.job_id}" if self._allocation else "the nodes"

    def address(self) -> Mapping[str, Any]:
        """Return the allocation and its nodes; `prepare` has requested it before a sandbox is opened."""
        allocation = self._allocation
        if allocation is None:
            return {"job_id": self.options.job_id, "nodes": []}
        return {"job_id": allocation.job_id, "nodes": list(allocation.nodes)}

    def provenance_of(self, link: Link) -> Mapping[str, Any]:
        """Return the allocation and the node of a link."""
        assert isinstance(link, NodeLink)
        return {"job_id": link.allocation.job_id, "node": link.node}

    def amend_handle(self, handle: Mapping[str, Any], provenance: Mapping[str, Any]) -> Mapping[str, Any]:
        """Replace the handle's allocation and nodes if the sandbox was opened in a later allocation."""
        job_id, node = provenance["job_id"], provenance["node"]
        return handle if handle["job_id"] == job_id else {**handle, "job_id": job_id, "nodes": [node]}

    async def prepare(self, spec: SandboxSpec) -> SandboxSpec:
        """Request an allocation if there is none, because leases name its nodes."""
        allocation = await self.allocation()
        if not self._pooled:
            self._pooled = True
            if isinstance(self.host_pool, SharedHostPool):  # otherwise the pool that this backend is a member of
                options, names = self._pool_options(len(allocation.nodes)), OptionNames.within("pool")
                if self.options.pool is None:
                    names = dataclasses.replace(names, max_hosts="nodes", slots_per_host="slots_per_agent")
                self.host_pool = SlotPool(options, name=self.declaration.name, names=names)
        return spec

    def _pool_options(self, nodes: int) -> PoolOptions:
        # All nodes are reserved for us, used or not. An agent on each from the start spreads the sandboxes over all.
        slots = self.options.slots_per_agent
        return self.options.pool or PoolOptions(min_hosts=nodes, max_hosts=nodes, slots_per_host=slots)

    async def allocation(self) -> Allocation:
        """Return the allocation; concurrent callers share one request.

        If all of them are cancelled, the request is withdrawn from the queue.
        """
        if self._allocation is not None and self._allocation.alive:
            return self._allocation
        if self._asking is None:
            self._asking = asyncio.ensure_future(self._ask())
        asking = self._asking
        self._waiting += 1
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if asking.cancelled() and not (task and task.cancelling()):
                raise BackendError("the backend was closed while it waited for its allocation") from None
            if self._waiting == 1 and not asking.done():
                asking.cancel()
                await run_uncancelled(_quietly(asking))
            raise
        finally:
            self._waiting -= 1
            if asking.done() and self._asking is asking:
                self._asking = None

    async def _ask(self) -> Allocation:
        old, self._allocation = self._allocation, None
        if old is not None:
            await old.aclose()
        job_id = self.options.job_id
        self._allocation = await (
            Allocation.own(self._slurm, self.options) if job_id is None else Allocation.existing(self._slurm, job_id)
        )
        return self._allocation

    async def connect(self) -> NodeLink:
        """Return a link to the healthy node with the fewest links; skip nodes that turn out to run no steps."""
        allocation = await self.allocation()
        troubles = []
        for node in await self._candidates(allocation):
            link = NodeLink(self._slurm, allocation, node)
            # Counted at once, so that concurrent callers choose other nodes.
            self._links.add(link)
            try:
                await self._prove(link)
            except BackendError as error:
                await link.aclose()
                troubles.append(error.message)
            except BaseException:
                await link.aclose()
                raise
            else:
                return link
        raise await self._nowhere(allocation, troubles)

    async def _candidates(self, allocation: Allocation) -> list[str]:
        healthy = await allocation.healthy()
        used = [link.node for link in self._links if link.alive and link.allocation is allocation]
        return sorted(healthy, key=used.count)

    async def _prove(self, link: NodeLink) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._proved.get(link.node, -_PROVED) < _PROVED:
            return
        await link.run("exit 0", timeout=self.setup_timeout)
        self._proved[link.node] = asyncio.get_running_loop().time()

    async def _nowhere(self, allocation: Allocation, troubles: list[str]) -> BackendError:
        why = "; ".join(troubles) or allocation.why_ended or "all of them are down or drained"
        if allocation.is_own and not any(link.alive for link in self._links):
            # None of its nodes can be used: release it, so that the next sandbox requests another.
            try:
                await allocation.aclose()
            except BackendError as error:
                why += f"; {error.message}"
        return BackendError(
            f"no node of allocation {allocation.job_id} can be used: {why}", hint="`sinfo -R` shows why nodes are down"
        )

    async def connect_again(self, lost: Link) -> NodeLink:
        """Return another link to the same node while its allocation is active."""
        assert isinstance(lost, NodeLink)
        if not lost.allocation.alive:
            raise BackendError(
                f"allocation {lost.allocation.job_id} has ended: files left on {lost.node} stay until they are removed",
                hint="`hermes-core sandboxes gc` removes them with a short job",
            )
        return NodeLink(self._slurm, lost.allocation, lost.node)

    @contextlib.asynccontextmanager
    async def reach(self, handle: Mapping[str, Any]) -> AsyncIterator[Sequence[Link]]:
        """Provide links to a handle's nodes: in their allocation while it is active, else in a short cleaning job."""
        nodes = handle["nodes"]
        async with contextlib.AsyncExitStack() as stack:
            lasting = await self._lasting(handle["job_id"])
            left = [] if lasting is None else await lasting.healthy()
            links = [NodeLink(self._slurm, lasting, node) for node in nodes if node in left] if lasting else []
            # A node that failed no longer belongs to the allocation when it comes back.
            others = [node for node in nodes if node not in left]
            if others:
                cleaning = await stack.enter_async_context(self._cleaning.on(others, handle))
                links += [NodeLink(self._slurm, cleaning, node) for node in others]
            for link in links:
                stack.push_async_callback(link.aclose)
            yield links

    async def _lasting(self, job_id: str | None) -> Allocation | None:
        present = self._allocation
        if present is not None and present.job_id == job_id and present.alive:
            return present
        with contextlib.suppress(SandboxRefusedError):
            return None if job_id is None else await Allocation.existing(self._slurm, job_id)
        return None

    async def sweep(self, *, remove: bool = True) -> list[str]:
        """Find the jobs and steps of dead owners by their names, and cancel them."""
        found = []
        for what in ((), ("-s",)):
            rows = await self._slurm.ask("the queue cannot be read", "squeue", "-h", "--me", *what, "-o", "%i|%j")
            pairs = (row.strip().split("|", 1) for row in rows if "|" in row)
            found += [thing for thing, name in pairs if is_abandoned(name)]
        if remove:
            await self._slurm.cancel(*found)
        return [f"slurm:{thing}" for thing in found]

    async def aclose(self) -> None:
        """Close every sandbox, and release the allocation if this backend requested it."""
        try:
            await super().aclose()
        finally:
            if self._asking is not None:
                self._asking.cancel()
                await run_uncancelled(_quietly(self._asking))
                self._asking = None
            allocation, self._allocation = self._allocation, None
            try:
                if allocation is not None:
                    await allocation.aclose()
            finally:
                for name in sorted(self._slurm.left):
                    await self._slurm.withdraw(name)


async def _quietly(future: asyncio.Future[Any]) -> None:
    await asyncio.wait((future,))
    if not future.cancelled():
        future.exception()  # no caller waits for it any more
