"""What every sandbox of an `AgentBackend` has, whoever serves it: its life, from the start to the close."""

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
    """What a sandbox is put together from."""

    sandbox_id: str
    host: SandboxHost
    spec: SandboxSpec
    provenance: Mapping[str, Any]
    """What is recorded with the rollout and known before it is started."""
    connect: Callable[[Server | None], Awaitable[Server]]
    """Starts what serves it, in place of a previous one."""
    release: Callable[[Sandbox], Awaitable[None]]
    """Removes its place, and then its lease."""


class BackendSandbox(Sandbox, Generic[Server]):
    """A sandbox that `AgentBackend.open` returns. Subclasses say how commands and files get to what serves it."""

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
        """What is recorded with the rollout."""
        return self._with_limits(self._provenance)

    def _with_limits(self, known: dict[str, Any]) -> dict[str, Any]:
        limits = {**self._provenance.get("limits", {}), **known.get("limits", {})}
        if self.process_bound is not None:
            limits["pids"] = self.process_bound
        return {**known, "limits": limits} if limits else known

    @property
    def host(self) -> SandboxHost:
        """The place it is in."""
        return self._host

    @property
    def process_bound(self) -> str | None:
        """What keeps its processes few, and how many they may be; None if nobody was asked."""
        return None if self._server is None else self._server.process_bound

    def _require_server(self) -> Server:
        """Return what serves it; another one after every renewal.

        Raises:
            SandboxLostError: The sandbox is closed.
        """
        if self._server is None or self._closing is not None:
            raise SandboxLostError(f"sandbox {self._id} is closed")
        return self._server

    async def start(self) -> None:
        """Start what serves it; called once by the backend."""
        self._server = await self._connect(None)

    async def renew(self) -> None:
        """Kill every process of the sandbox and start what serves it anew; files stay, session state does not."""
        await self._renew("it is being renewed")

    async def _renew(self, reason: str) -> None:
        # What is being asked, or waits for its turn, fails now.
        self._require_server().suspend(reason)
        async with self._turn:
            await run_uncancelled(self._restart(self._require_server()))

    async def _restart(self, server: Server) -> None:
        self._server = await self._connect(server)

    async def freeze(self) -> None:
        """Make the workspace read-only, as `renew` does for everything else: what runs ends.

        Raises:
            SandboxRefusedError: Nothing here can make it read-only.
        """
        try:
            await self._host.freeze()
        except SandboxRefusedError:
            raise
        except BackendError as error:
            # One that is full may have no room for whoever makes it read-only; only what serves it runs then.
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
        """End what serves it, and everything it started."""
        await server.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


async def _wait(task: asyncio.Task[None]) -> None:
    await asyncio.shield(task)
