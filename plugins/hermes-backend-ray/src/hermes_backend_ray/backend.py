"""Backend `ray`: sandboxes on the nodes of a Ray cluster."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, ClassVar, cast

from hermes_backend_ray.connection import known_address, stream_kind
from hermes_backend_ray.departed import Departed
from hermes_backend_ray.hosts import Hosts, close_all
from hermes_backend_ray.link import RayLink
from hermes_backend_ray.nodes import missing_machines, still_missing
from hermes_backend_ray.options import RayOptions
from hermes_backend_ray.plugin import RAY
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_core.sandbox.machines import Link, MachineBackend
from hermes_core.sandbox.machines.shared import SharedSlot
from hermes_core.sandbox.slots import AgentSlot, SlotRequest
from hermes_core.specs import BackendSpec
from hermes_pool import SlotPool


class RayBackend(MachineBackend):
    """Sandboxes on the nodes of a Ray cluster, through one actor on each node that is used.

    Isolation `none` trusts the nodes: commands run there as the user of Ray's workers, beside everything else of that
    user. `bwrap` shows them a read-only /usr and directories of their own, where the nodes have bubblewrap. The actors
    belong to this process: Ray ends them with it, and their programs end with the actors.
    """

    declaration: ClassVar[BackendSpec] = RAY
    Options = RayOptions
    options: RayOptions

    def __init__(self, options: RayOptions) -> None:
        super().__init__(options)
        self.places = SlotPool(options.pool, name=RAY.name)
        self._hosts = Hosts(options)
        self._opened = time.time()

    @property
    def place_name(self) -> str:
        """The cluster as messages name it."""
        return f"the Ray cluster {self._cluster() or ''}".rstrip()

    def _cluster(self) -> str | None:
        given = self.options.address
        if given == "local" or (given or "").startswith("ray://"):
            # Who needs Ray Client cannot use the address that the cluster has for itself.
            return given
        return self._hosts.address or known_address() or self.options.address

    def address(self) -> Mapping[str, Any]:
        """Name the cluster."""
        return {"address": self._cluster()}

    def provenance_of(self, link: Link) -> Mapping[str, Any]:
        """Name the node too, and how the bytes travel."""
        node = cast("RayLink", link).host.node
        return {**self.address(), "node": node.id, "machine": node.address, "stream": stream_kind(self.options)}

    async def prepare(self, spec: SandboxSpec) -> SandboxSpec:
        """Reach the cluster: leases name it, and that it cannot be is nothing to wait for a slot for."""
        await self._hosts.attach()
        return spec

    async def connect(self) -> RayLink:
        """Choose the node with the fewest places."""
        return await self._hosts.link()

    async def connect_again(self, lost: Link) -> Link:
        """Return a link to any node of the same machine; where none is left, nothing is."""
        machine = cast("RayLink", lost).host.node.address
        links = await self._hosts.links_for_cleaning(machine)
        await close_all(links[1:])
        if not links:
            await self._require_seen(self._opened, machine)
        return links[0] if links else Departed(lost.name)

    def handle(self, spec: SandboxSpec, sandbox_id: str) -> Mapping[str, Any]:
        """Say since when, too: a machine that had gone before can hold nothing of it."""
        return {**super().handle(spec, sandbox_id), "opened": time.time()}

    async def _require_seen(self, since: float, machine: str | None) -> None:
        """Raise while a machine is down that may come back with files; the lease is kept then."""
        until = since + self.options.forget_after
        missing = await asyncio.to_thread(missing_machines, since)
        down = {at: why for at, why in missing.items() if machine in {None, at} and at not in self.options.gone}
        if down and time.time() < until:
            raise still_missing(self.place_name, down, until)

    def _share(self, spec: SandboxSpec, handle: Mapping[str, Any]) -> SharedSlot:
        slot: _NodeSlot = _NodeSlot(
            self.places,
            self._make_place,
            spec=spec,
            limit=self.options.slots_per_agent,
            root=handle["root"],
            provenance=self.address(),
            remove=lambda: self.reclaim({**handle, **slot.where}),
        )
        return slot

    @contextlib.asynccontextmanager
    async def reach(self, handle: Mapping[str, Any]) -> AsyncIterator[Sequence[Link]]:
        """Provide a link to every node: which of them had a sandbox is not known before it has one."""
        recorded = handle["address"]
        await self._hosts.attach(None if recorded in {None, "auto"} else recorded)
        links = await self._hosts.links_for_cleaning(handle.get("machine"))
        try:
            yield links
        finally:
            await close_all(links)
        await self._require_seen(handle.get("opened", 0.0), handle.get("machine"))

    async def aclose(self) -> None:
        """Close every sandbox, end the actors, and give the connection back."""
        try:
            await super().aclose()
        finally:
            await self._hosts.aclose()


class _NodeSlot(SharedSlot):
    """A slot that knows its machine, so that only that is cleaned after a loss."""

    where: Mapping[str, Any] = {}

    async def serve(self, request: SlotRequest, previous: AgentSlot | None) -> AgentSlot:
        """Remember where it is, from the moment of having a seat."""
        slot = await super().serve(request, previous)
        if self._seat is not None:
            self.where = {"machine": self._seat.host.provenance["machine"]}
        return slot
