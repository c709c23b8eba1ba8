"""One container whose first process is the agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hermes_backend_docker.engine import Engine
from hermes_backend_docker.failures import ContainerGoneError
from hermes_core.sandbox import AgentStream, SandboxHost


class ContainerHost(SandboxHost):
    """A container. It exists from `create` on, and runs from `start_agent` on.

    Args:
        engine: Where it is.
        name: What it is called.
        config: The engine's description of it.
        workspace: The directory, inside, that the rollout works in.
        environment: Variables of the commands.
        provenance: What is recorded.
    """

    def __init__(
        self,
        engine: Engine,
        name: str,
        config: Mapping[str, Any],
        *,
        workspace: str,
        bash: str,
        environment: Mapping[str, str],
        provenance: Mapping[str, Any],
    ) -> None:
        self.workspace = workspace
        self.bash = bash
        self.environment = environment
        self.provenance = provenance
        self._engine = engine
        self._name = name
        self._config = config
        self._container: str | None = None

    async def create(self) -> None:
        """Create the container, or leave nothing."""
        self._container = await self._engine.create(self._name, self._config)

    async def start_agent(self) -> AgentStream:
        """Start the container with its standard streams in hand; made anew, once, if somebody has removed it."""
        if self._container is None:
            await self.create()
        try:
            return await self._start()
        except ContainerGoneError:
            await self.create()
            return await self._start()

    async def _start(self) -> AgentStream:
        assert self._container is not None
        stream = await self._engine.attach(self._container)
        try:
            await self._engine.start(self._container)
        except BaseException:
            stream.writer.transport.abort()
            raise
        return stream

    async def stop_all(self) -> None:
        """Stop the container, which ends all that runs in it."""
        if self._container is not None:
            await self._engine.stop(self._container)

    async def destroy(self) -> None:
        """Remove what a failed start has left."""
        await self._engine.remove(self._name)
