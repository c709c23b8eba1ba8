"""Containers that several sandboxes share, each with a user and a directory of its own."""

from __future__ import annotations

import logging
import os

from hermes_backend_docker.host import ContainerHost
from hermes_sandbox import AgentStream
from hermes_sandbox.backend.recycled_host import WornPlace
from hermes_sandbox.backend.slot_roots import LACKS, make_roots

_log = logging.getLogger(__name__)


class SharedContainer(WornPlace, ContainerHost):
    """A container for many slots.

    Attributes:
        slots: How many it may have at a time.
        has_roots: Whether each of them has a root of its own.
    """

    slots = 1
    has_roots = False

    async def start_agent(self) -> AgentStream:
        """Start the container, and make roots for its slots where this process has the right to."""
        stream = await super().start_agent()
        why = await self._make_roots()
        if why is None:
            self.has_roots, self.lacks_inside = True, LACKS
        else:
            _log.info("slots of container %s share its /tmp: %s", self._name, why)
        return stream

    async def _make_roots(self) -> str | None:
        if os.geteuid() != 0:
            return "only root can make them one of their own"
        if self._engine.address.socket is None or self._container is None:
            return "the engine is not on this machine"
        pid = await self._engine.first_process(self._container)
        return await make_roots(pid, self._container, self.slots)
