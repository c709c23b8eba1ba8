"""The life cycle of every sandbox of an `AgentBackend`, from start to close, served by an agent or by a shell."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Generic, Self, TypedDict, TypeVar, Unpack

from hermes_core.cancellation import run_uncancelled
from hermes_core.contracts.errors import BackendError, SandboxLostError, SandboxRefusedError
from hermes_core.contracts.sandbox import Sandbox, SandboxSpec
from hermes_sandbox.backend.hosts.host import SandboxHost
from hermes_sandbox.posix_shell.client import ShellClient
from hermes_sandbox.protocol.slots import AgentSlot

_logger = logging.getLogger(__name__)

Server = TypeVar("Server", AgentSlot, ShellClient)


class SandboxParts(TypedDict, Generic[Server]):
    """The parts of a sandbox."""

    sandbox_id: str
    host: SandboxHost
    spec: SandboxSpec
    provenance: Mapping[str, Any]
    """The part of the record that is known before the start."""
    connect: Callable[[Server | None], Awaitable[Server]]
    """Starts its server (an agent's slot or a shell), given the previous one."""
    release: Callable[[Sandbox], Awaitable[None]]
    """Removes its host, and then its lease."""


class BackendSandbox(Sandbox, Generic[Server]):
    """A sandbox returned by `AgentBackend.open`. Subclasses send commands and file calls to its server."""

    def __init__(self, **parts: Unpack[SandboxParts[Server]]) -> None:
        self._id = parts["sandbox_id"]
        self._host = parts["host"]
        self._spec = parts["spec"]
        self._provenance = dict(parts["provenance"])
        self._connect: Callable[[Server | None], Awaitable[Server]] = parts["connect"]
        self._release = parts["release"]
        self._server: Server | None = None
        self._closing: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()

    @property
    def id(self) -> str:
        """Unique name of the sandbox."""
        return self._id

    @property
    def workspace(self) -> str:
        """Absolute path, inside the sandbox, of the directory the rollout works in."""
        return self._host.workspace

    @property
    def provenance(self) -> Mapping[str, Any]:
        """The record for the rollout."""
        return self._with_limits(self._provenance)

    def _with_limits(self, known: dict[str, Any]) -> dict[str, Any]:
        limits = {**self._provenance.get("limits", {}), **known.get("limits", {})}
        if self.process_bound is not None:
            limits["pids"] = self.process_bound
        return {**known, "limits": limits} if limits else known

    @property
    def host(self) -> SandboxHost:
        """Its host."""
        return self._host

    @property
    def process_bound(self) -> str | None:
        """How its processes are bounded, and to how many; None if they are not."""
        return None if self._server is None else self._server.process_bound

    def _require_server(self) -> Server:
        """Return its server, which is a new one after every renewal.

        Raises:
            SandboxLostError: The sandbox is closed.
        """
        if self._server is None or self._closing is not None:
            raise SandboxLostError(f"sandbox {self._id} is closed")
        return self._server

    async def start(self) -> None:
        """Start its server; called once by the backend."""
        self._server = await self._connect(None)

    async def renew(self) -> None:
        """Kill every process of the sandbox and start a new server; files stay, session state does not."""
        await self._renew("it is being renewed")

    async def _renew(self, reason: str) -> None:
        # Requests in flight or waiting for their turn fail now.
        self._require_server().suspend(reason)
        async with self._turn:
            await run_uncancelled(self._restart(self._require_server()))

    async def _restart(self, server: Server) -> None:
        self._server = await self._connect(server)

    async def freeze(self) -> None:
        """Make the workspace read-only; ends all processes, as `renew` does.

        Raises:
            SandboxRefusedError: Nothing here can make it read-only.
        """
        try:
            await self._host.freeze()
        except SandboxRefusedError:
            raise
        except BackendError as error:
            # A full sandbox may have no room for the process that does it; after a renewal only the server runs.
            _logger.info("sandbox %s is renewed before it is made read-only: %s", self._id, error)
            await self.renew()
            await self._host.freeze()
        await self.renew()

    async def aclose(self) -> None:
        """Kill everything and remove the sandbox; safe to call twice and while calls are in flight."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await run_uncancelled(_wait(self._closing))

    async def _close(self) -> None:
        if self._server is not None:
            self._server.suspend("it was closed")
        # A renewal in progress starts another server: let it finish, or that one would outlive the sandbox.
        async with self._turn:
            try:
                if self._server is not None:
                    await self._end(self._server)
            finally:
                await self._release(self)

    async def _end(self, server: Server) -> None:
        """End its server, and everything that it started."""
        await server.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


async def _wait(task: asyncio.Task[None]) -> None:
    await asyncio.shield(task)
