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
    """Sandboxes on the nodes of a Ray cluster, through one host actor on each node that is used.

    Isolation `none` trusts the nodes: commands run there as the user of Ray's workers, together with everything else of
    that user. `bwrap` gives them a read-only /usr and private directories, if the nodes have bubblewrap. The actors
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
        """Return the cluster's address."""
        return {"address": self._cluster()}

    def provenance_of(self, link: Link) -> Mapping[str, Any]:
        """Return the cluster's address and the node of a link."""
        node = cast("RayLink", link).host.node
        return {**self.address(), "node": node.id, "machine": node.address}

    def refuse(self, spec: SandboxSpec) -> None:
        """Also refuse to run if Ray encrypts its traffic, because an agent's bytes would travel unencrypted."""
        super().refuse(spec)
        if uses_tls():
            raise SandboxRefusedError(
                "Ray is set to encrypt (RAY_USE_TLS), and backend 'ray' sends an agent's bytes over connections that "
                "are not encrypted",
                hint="hermes-core run --engine ray with terminal_backend: local on the nodes: all of it travels by Ray",
            )

    async def prepare(self, spec: SandboxSpec) -> SandboxSpec:
        """Connect to the cluster, because leases name it, and a failure must not first wait for a slot."""
        await self._hosts.attach()
        return spec

    async def connect(self) -> RayLink:
        """Return a link to the node with the fewest links."""
        return await self._hosts.link()

    async def connect_again(self, lost: Link) -> Link:
        """Return a link to any node of the same machine; if there is none, a link that does nothing."""
        machine = cast("RayLink", lost).host.node.address
        links = await self._hosts.links_for_cleaning(machine)
        await close_all(links[1:])
        if not links:
            await self._require_gone(cast("RayLink", lost).host.node.id, machine, self._began)
        return links[0] if links else Departed(lost.name)

    def handle(self, spec: SandboxSpec, sandbox_id: str) -> Mapping[str, Any]:
        """Also record the time of the opening, because the lease is kept only so long for a machine that is down."""
        return {**super().handle(spec, sandbox_id), "opened": time.time()}

    def amend_handle(self, handle: Mapping[str, Any], provenance: Mapping[str, Any]) -> Mapping[str, Any]:
        """Add the node and its machine: only that machine is cleaned, and the lease is kept while it is down."""
        return {**handle, "node": provenance["node"], "machine": provenance["machine"]}

    async def _require_gone(self, node: str, machine: str, opened: float) -> None:
        """Raise `BackendError` if a machine is down that may come back with files, so that the lease is kept."""
        until = opened + self.options.forget_after
        if machine in self.options.gone or time.time() >= until:
            return
        why = await asyncio.to_thread(why_missing, node, machine)
        if why is not None:
            raise still_missing(machine, why, until)

    @contextlib.asynccontextmanager
    async def reach(self, handle: Mapping[str, Any]) -> AsyncIterator[Sequence[Link]]:
        """Provide links to the nodes of a sandbox's machine, or to all nodes if it was never assigned one."""
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
        """Close every sandbox, end the actors, and release the connection."""
        try:
            await super().aclose()
        finally:
            await self._hosts.aclose()
