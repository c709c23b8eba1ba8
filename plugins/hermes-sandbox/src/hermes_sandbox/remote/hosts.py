"""Hosts on another machine: one link with one agent, for one sandbox or for many."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from hermes_core.contracts.errors import BackendError, SandboxLostError
from hermes_sandbox.backend.bubblewrap import HOME, STATE, WORKSPACE
from hermes_sandbox.backend.hosts.host import SandboxHost
from hermes_sandbox.protocol.streams import AgentStream
from hermes_sandbox.remote.confinement import account_inside, agent_argv, bwrap_argv, start_command
from hermes_sandbox.remote.facts import Machine, make_directories, sweep
from hermes_sandbox.remote.link import Link, RemoteProgram
from hermes_sandbox.remote.options import MachineOptions

Again = Callable[[Link], Awaitable[Link]]
"""Returns a new link to the machine of one that is lost."""
_GRACE: Final = 6.0
"""Seconds that an agent gets to end everything by itself; it gives up after five."""
_KILLING: Final = 10.0
"""Seconds in which an agent that did not end must have been killed; a machine may have gone silent with it."""


class RemoteHost(SandboxHost):
    """A link with an agent that runs as the account's user; each slot has its own directories."""

    def __init__(
        self, link: Link, machine: Machine, options: MachineOptions, *, provenance: Mapping[str, Any], mark: str
    ) -> None:
        self.bash = options.bash
        self.workspace = options.root_dir
        self.provenance = {**provenance, "uid": machine.uid}
        self._link = link
        self._machine = machine
        self._options = options
        self._mark = mark
        self._agent: RemoteProgram | None = None

    def _argv(self) -> list[str]:
        return agent_argv(self._machine.python)

    async def start_agent(self) -> AgentStream:
        """Start a Python at the other end of the link."""
        self._agent = await self._link.start(start_command(self._argv(), self._mark))
        return self._agent.stream

    async def stop_all(self) -> None:
        """Close the agent's input, on which it ends everything; its sandboxes find the survivors."""
        await self._end_agent()

    async def _end_agent(self) -> bool:
        """End the agent; tell whether it ended by itself, and well. If it does not end, kill it and close the link."""
        agent, self._agent = self._agent, None
        if agent is None:
            return True
        agent.stream.writer.close()
        well = await agent.wait(_GRACE)
        if not agent.over:
            try:
                await self._kill_agent()
            finally:
                await self._link.aclose()
        return well

    async def _kill_agent(self) -> None:
        """Kill an agent that does not see the end of its input, because a command has stopped it, by its mark."""
        if not self._link.alive:
            return
        nowhere = f"{self._options.root_dir.rstrip('/')}/{self._mark}"
        arguments = (self._machine.python, self._mark, nowhere)
        # A link to a machine that has gone silent may block longer than the timeout of a command.
        with contextlib.suppress(BackendError, TimeoutError):
            async with asyncio.timeout(_KILLING):
                await sweep(self._link, *arguments, delete=False, timeout=_KILLING)

    async def destroy(self) -> None:
        """Close the link."""
        await self._link.aclose()


class RemotePlainHost(RemoteHost):
    """A link with an agent for one sandbox, with its own directories."""

    def __init__(
        self,
        link: Link,
        machine: Machine,
        options: MachineOptions,
        *,
        provenance: Mapping[str, Any],
        sandbox_id: str,
        root: str,
        again: Again,
    ) -> None:
        super().__init__(link, machine, options, provenance=provenance, mark=sandbox_id)
        self.workspace = f"{root}/workspace"
        self.environment = {"HOME": f"{root}/home", "TMPDIR": f"{root}/tmp"}  # noqa: S108 - its own
        self._root = root
        self._again = again
        self._lost_track = False
        self._made = False

    def _account(self) -> tuple[str, ...]:
        return ()

    async def make(self) -> None:
        """Make the directories."""
        await make_directories(self._link, self._root, "new", self._account(), self._options)
        self._made = True

    async def start_agent(self) -> AgentStream:
        """Start the agent; a command may have destroyed the directories since the last one."""
        if self._lost_track:
            raise SandboxLostError(
                "the agent was killed; not everything it started can be found",
                hint="--isolation bwrap keeps what runs in a sandbox together",
            )
        # A new one for every agent: files that a command put into the old one cannot pass for saved state.
        self.state_dir = f"{self._root}/state-{os.urandom(8).hex()}"
        if not self._made:
            await make_directories(self._link, self._root, "again", self._account(), self._options)
        self._made = False
        return await super().start_agent()

    async def stop_all(self) -> None:
        """End the agent; survivors of a killed one are found by its mark."""
        if not await self._end_agent():
            self._lost_track = True
            await self._sweep(delete=False)

    async def destroy(self) -> None:
        """Delete the directories and close the link."""
        try:
            await self._sweep(delete=True)
        finally:
            await self._link.aclose()

    async def _sweep(self, *, delete: bool) -> None:
        arguments = (self._machine.python, self._mark, self._root)
        with contextlib.suppress(SandboxLostError):
            if self._link.alive:
                await sweep(self._link, *arguments, delete=delete, timeout=self._options.setup_timeout)
                return
        await self._link.aclose()
        self._link = await self._again(self._link)
        await sweep(self._link, *arguments, delete=delete, timeout=self._options.setup_timeout)


class RemoteBubblewrapHost(RemotePlainHost):
    """A link with an agent inside bubblewrap, where no process outlives the namespace."""

    is_recoverable = True
    network = True
    """Whether the sandbox has the machine's network."""

    def __init__(
        self,
        link: Link,
        machine: Machine,
        options: MachineOptions,
        *,
        provenance: Mapping[str, Any],
        sandbox_id: str,
        root: str,
        again: Again,
    ) -> None:
        super().__init__(link, machine, options, provenance=provenance, sandbox_id=sandbox_id, root=root, again=again)
        self.workspace = WORKSPACE
        self.environment = {"HOME": HOME, "TMPDIR": "/tmp"}  # noqa: S108 - inside
        self.provenance = {**self.provenance, "uid": account_inside(machine)[0]}
        self._frozen = False

    def _account(self) -> tuple[str, ...]:
        uid, gid = account_inside(self._machine)
        return (str(uid), str(gid))

    def _argv(self) -> list[str]:
        # Inside the namespace, where nothing of the last agent is left.
        self.state_dir = f"{STATE}/state"
        inner = agent_argv(self._machine.python)
        return bwrap_argv(inner, self._root, self._machine, network=self.network, frozen=self._frozen)

    async def freeze(self) -> None:
        """Show the workspace read-only from the next agent on."""
        self._frozen = True

    async def stop_all(self) -> None:
        """End the first process of the namespace; no other outlives it."""
        await super().stop_all()
        self._lost_track = False
