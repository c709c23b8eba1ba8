"""Backend `ray`: sandboxes on the nodes of a Ray cluster."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, ClassVar, cast

from hermes_backend_ray.cluster.connection import known_address, uses_tls
from hermes_backend_ray.cluster.nodes import still_missing, why_missing
from hermes_backend_ray.host_actors.node_link import Departed, RayLink
from hermes_backend_ray.host_actors.placement import Hosts, close_all
from hermes_backend_ray.options import RayOptions
from hermes_backend_ray.plugin import RAY
from hermes_core.contracts.errors import SandboxRefusedError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_core.specs import BackendSpec
from hermes_pool import OptionNames, SlotPool
from hermes_sandbox.remote import Link, MachineBackend


class RayBackend(MachineBackend):
    """Sandboxes on the nodes of a Ray cluster, through one actor on each node that is used.

    Isolation `none` trusts the nodes: commands run there as the user of Ray's workers, beside everything else of that
    user. `bwrap` gives them a read-only /usr and private directories, if the nodes have bubblewrap. The actors
    belong to this process: Ray ends them with it, and their programs end with the actors.
    """

    declaration: ClassVar[BackendSpec] = RAY
    Options = RayOptions
    options: RayOptions

    def __init__(self, options: RayOptions) -> None:
        super().__init__(options)
        self.host_pool = SlotPool(options.pool, name=RAY.name, names=OptionNames.within("pool"))
        self._hosts = Hosts(options)
        self._began = time.time()

    @property
    def place_name(self) -> str:
        """The cluster as messages name it."""
        return f"the Ray cluster {self._cluster() or ''}".rstrip()

    def _cluster(self) -> str | None:
        given = self.options.address
        return given if given == "local" else self._hosts.address or known_address() or given

    def address(self) -> Mapping[str, Any]:
        """Name the cluster."""
        return {"address": self._cluster()}

    def provenance_of(self, link: Link) -> Mapping[str, Any]:
        """Name the node too."""
        node = cast("RayLink", link).host.node
        return {**self.address(), "node": node.id, "machine": node.address}

    def refuse(self, spec: SandboxSpec) -> None:
        """Refuse to send in the clear, beside Ray's own traffic, what Ray is set to encrypt."""
        super().refuse(spec)
        if uses_tls():
            raise SandboxRefusedError(
                "Ray is set to encrypt (RAY_USE_TLS), and backend 'ray' sends an agent's bytes over connections that "
                "are not encrypted",
                hint="hermes-core run --engine ray with terminal_backend: local on the nodes: all of it travels by Ray",
            )

    async def prepare(self, spec: SandboxSpec) -> SandboxSpec:
        """Reach the cluster: leases name it, and that it cannot be is nothing to wait for a slot for."""
        await self._hosts.attach()
        return spec

    async def connect(self) -> RayLink:
        """Choose the node with the fewest places."""
        return await self._hosts.link()

    async def connect_again(self, lost: Link) -> Link:
        """Return a link to any node of the same machine; without one, a link that does nothing."""
        machine = cast("RayLink", lost).host.node.address
        links = await self._hosts.links_for_cleaning(machine)
        await close_all(links[1:])
        if not links:
            await self._require_gone(cast("RayLink", lost).host.node.id, machine, self._began)
        return links[0] if links else Departed(lost.name)

    def handle(self, spec: SandboxSpec, sandbox_id: str) -> Mapping[str, Any]:
        """Also record since when, because a lease is not kept without end for a machine that is down."""
        return {**super().handle(spec, sandbox_id), "opened": time.time()}

    def amend_handle(self, handle: Mapping[str, Any], provenance: Mapping[str, Any]) -> Mapping[str, Any]:
        """Name the machine, so that only that is cleaned, and missed while it is down."""
        return {**handle, "node": provenance["node"], "machine": provenance["machine"]}

    async def _require_gone(self, node: str, machine: str, opened: float) -> None:
        """Raise while a machine is down that may come back with files; the lease is kept then."""
        until = opened + self.options.forget_after
        if machine in self.options.gone or time.time() >= until:
            return
        why = await asyncio.to_thread(why_missing, node, machine)
        if why is not None:
            raise still_missing(machine, why, until)

    @contextlib.asynccontextmanager
    async def reach(self, handle: Mapping[str, Any]) -> AsyncIterator[Sequence[Link]]:
        """Provide a link to every node of the machine; to all nodes, where the sandbox never came to one."""
        recorded = handle["address"]
        await self._hosts.attach(None if recorded in {None, "auto"} else recorded)
        machine = handle.get("machine")
        links = await self._hosts.links_for_cleaning(machine)
        try:
            yield links
        finally:
            await close_all(links)
        if machine is not None and not links:
            await self._require_gone(handle["node"], machine, handle["opened"])

    async def aclose(self) -> None:
        """Close every sandbox, end the actors, and give the connection back."""
        try:
            await super().aclose()
        finally:
            await self._hosts.aclose()
