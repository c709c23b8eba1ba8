"""Choose the node for each new link, and keep the host actors."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Final

from hermes_backend_ray.cluster.connection import attach, detach
from hermes_backend_ray.cluster.nodes import Node, alive_nodes, fit_nodes
from hermes_backend_ray.host_actors.host_actor import HostActor
from hermes_backend_ray.host_actors.node_link import RayLink
from hermes_backend_ray.options import RayOptions
from hermes_core.cancellation import run_uncancelled
from hermes_core.contracts.errors import BackendError, SandboxLostError

_IDLE: Final = 60.0
"""Seconds for which an unused actor is kept."""


class Hosts:
    """The host actors, one for each node that is used; each new link goes to the node with the fewest.

    Host actors that only clean up request no resources of Ray, so that they start on a full cluster, too.
    """

    def __init__(self, options: RayOptions) -> None:
        self.address: str | None = None
        self._options = options
        self._attaching = asyncio.Lock()
        self._hosts: dict[tuple[str, bool], asyncio.Task[HostActor]] = {}
        self._link_counts: Counter[tuple[str, bool]] = Counter()
        self._idle: dict[tuple[str, bool], asyncio.TimerHandle] = {}
        self._ending: set[asyncio.Task[None]] = set()

    async def attach(self, address: str | None = None) -> str:
        """Connect to the cluster of `address`, or to that of the options if it is None, and return its address."""
        async with self._attaching:
            options = self._options
            if address is not None:
                options = options.model_copy(update={"address": address})
            if self.address is None or address is not None:
                self.address = await run_uncancelled(asyncio.to_thread(attach, options, self))
            return self.address

    async def link(self) -> RayLink:
        """Return a link to the node with the fewest links; a node that is lost meanwhile is skipped.

        Raises:
            BackendError: No node is suitable, or the chosen node does not start an actor.
        """
        await self.attach()
        tried: set[str] = set()
        problem: SandboxLostError | None = None
        while True:
            nodes = await asyncio.to_thread(fit_nodes, self._options.host_needs())
            left = [node for node in self._usable_nodes(nodes) if node.id not in tried]
            if not left:
                raise problem or BackendError("no node of the Ray cluster is left", hint="`ray status`")
            node = min(left, key=lambda node: self._link_counts[node.id, False])
            try:
                return await self.link_to(node)
            except SandboxLostError as error:
                tried.add(node.id)
                problem = error

    def _usable_nodes(self, nodes: list[Node]) -> list[Node]:
        """Return the nodes in use if there are `pool.max_hosts` of them, or else all nodes."""
        used = [node for node in nodes if self._link_counts[node.id, False]]
        return used if len(used) >= self._options.pool.max_hosts else nodes

    async def link_to(self, node: Node, *, cleaning: bool = False) -> RayLink:
        """Return a link to a node; start its actor unless it runs already."""
        key = (node.id, cleaning)
        self._link_counts[key] += 1
        timer = self._idle.pop(key, None)
        if timer is not None:
            timer.cancel()
        try:
            host = await self._host(node, key)
        except BaseException:
            self._leave(key)
            raise
        return RayLink(host, partial(self._leave, key))

    async def _host(self, node: Node, key: tuple[str, bool]) -> HostActor:
        starting = self._hosts.get(key)
        if starting is None or _useless(starting):
            options = self._options
            if key[1]:
                options = options.model_copy(update={"num_cpus": 0.0, "memory_mb": None, "resources": {}})
            if starting is not None and not starting.cancelled() and starting.exception() is None:
                self._end(starting.result())
            starting = self._hosts[key] = asyncio.ensure_future(HostActor.start(node, options))
        return await asyncio.shield(starting)

    def _leave(self, key: tuple[str, bool]) -> None:
        self._link_counts[key] -= 1
        if self._link_counts[key] <= 0:
            del self._link_counts[key]
            self._idle[key] = asyncio.get_running_loop().call_later(_IDLE, self._retire, key)

    def _retire(self, key: tuple[str, bool]) -> None:
        self._idle.pop(key, None)
        starting = self._hosts.pop(key, None)
        if starting is not None and starting.done() and not starting.cancelled() and starting.exception() is None:
            self._end(starting.result())

    def _end(self, host: HostActor) -> None:
        task = asyncio.ensure_future(host.aclose())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def links_for_cleaning(self, machine: str | None) -> list[RayLink]:
        """Return a link to each live node, or to each of those on one machine."""
        nodes = [node for node in await asyncio.to_thread(alive_nodes) if machine in {None, node.address}]
        results = await asyncio.gather(*(self.link_to(node, cleaning=True) for node in nodes), return_exceptions=True)
        links = [result for result in results if isinstance(result, RayLink)]
        for result in results:
            # A node that was lost meanwhile cannot be cleaned now; any other error needs another try.
            if isinstance(result, BaseException) and not isinstance(result, SandboxLostError):
                await close_all(links)
                raise result
        return links

    async def aclose(self) -> None:
        """End every actor, and close the connection unless it has other users."""
        for timer in self._idle.values():
            timer.cancel()
        hosts, self._hosts = self._hosts, {}
        for starting in hosts.values():
            with contextlib.suppress(BackendError):
                self._end(await starting)
        if self._ending:
            await asyncio.wait(set(self._ending))
        if self.address is not None:
            self.address = None
            await run_uncancelled(asyncio.to_thread(detach, self))


def _useless(starting: asyncio.Task[HostActor]) -> bool:
    if not starting.done():
        return False
    return starting.cancelled() or starting.exception() is not None or starting.result().lost is not None


async def close_all(links: Iterable[RayLink]) -> None:
    """Close links."""
    await asyncio.gather(*(link.aclose() for link in links))
