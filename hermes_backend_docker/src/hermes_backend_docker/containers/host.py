"""One container with the agent as its first process, for one sandbox or shared by several."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from hermes_backend_docker.containers.hardening import STATE_DIR
from hermes_backend_docker.engine.client import Engine
from hermes_backend_docker.engine.failures import ContainerGoneError, ProgramMissingError
from hermes_core.contracts.errors import NoPythonError, SandboxLostError
from hermes_sandbox.backends import (
    AgentStream,
    RecycledHost,
    RootAgentHost,
    ShellClient,
    make_readonly_script,
    refuse_mounted,
)


class ContainerHost(RootAgentHost):
    """A container: `create` creates it, `start_agent` starts it.

    Args:
        engine: The engine.
        name: The container's name.
        config: The container's config for the engine.
        workspace: The rollout's directory inside the container.
        environment: Environment variables of the commands.
        provenance: The recorded facts.
        bring_python: Called if the image has no Python; returns a config with one, or raises `NoPythonError`.
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
        identity: tuple[int, int],
        state_dir: str | None,
        provenance: Mapping[str, Any],
        bring_python: Callable[[ProgramMissingError], Awaitable[Mapping[str, Any]]],
    ) -> None:
        self.workspace = workspace
        self.bash = bash
        self.state_dir = state_dir
        self.identity = identity
        self.environment = environment
        self.provenance = provenance
        self._engine = engine
        self._name = name
        self.config = config
        self._container: str | None = None
        self._bring_python = bring_python
        self.plain: Mapping[str, Any] | None = None
        """The container's config with a shell instead of the agent, or None if that is not allowed."""

    async def create(self) -> None:
        """Create the container; leave nothing behind on failure."""
        self._container = await self._engine.create(self._name, self.config)

    async def start_agent(self) -> AgentStream:
        """Start the container with its standard streams attached; create it again once if it was removed.

        If the image has no Python, another one is brought to it, if one would run there.
        """
        try:
            return await self._start_anew()
        except ProgramMissingError as error:
            # The name must be free for the new container; clean-up after a failure also uses it.
            await self.stop_all()
            self._container = self._name
            self.config = await self._bring_python(error)
            self._container = None
        try:
            return await self._start_anew()
        except ProgramMissingError as error:
            raise NoPythonError(error.message, hint=error.hint) from error

    async def start_shell(self) -> AgentStream:
        """Start the container with a shell as its first process.

        Raises:
            SandboxRefusedError: The options or the isolation level do not allow it.
        """
        if self.plain is None:
            return await super().start_shell()
        if self.config is not self.plain:
            # The container for the agent did not start.
            await self.stop_all()
            self.config, self.state_dir = self.plain, STATE_DIR
            self.provenance = {name: value for name, value in self.provenance.items() if name != "carried_python"}
        return await self._start_anew()

    @property
    def serves_plain(self) -> bool:
        """Whether options and isolation level allow a shell."""
        return self.plain is not None

    async def restart_shell(self, client: ShellClient) -> AgentStream:
        """Make the first process end all others and become a new shell; the container stays."""
        return await client.restart()

    async def _start_anew(self) -> AgentStream:
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

    async def lock(self, folder: str, identity: tuple[int, int]) -> None:
        """End a user's commands and give a directory to root; the user can still read and execute its files."""
        refuse_mounted(folder, [bind.split(":")[1] for bind in self.config["HostConfig"]["Binds"]])
        if self._container is None:
            raise SandboxLostError(f"container {self._name} is not running")
        program = make_readonly_script(folder, identity)
        await self._engine.run(self._container, [self.config["Entrypoint"][0], "-I", "-S", "-E", "-c", program])

    async def stop_all(self) -> None:
        """Remove the container, which ends everything in it and deletes its files."""
        if self._container is not None:
            await self._engine.remove(self._container)
            self._container = None


class SharedContainer(RecycledHost, ContainerHost):
    """A container that several sandboxes share, each with its own user and directory."""
