"""Backend `ssh`: sandboxes on another machine."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
import weakref
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from hermes_backend_ssh.connection import SshConnection
from hermes_backend_ssh.hosts import BubblewrapHost, ConnectionHost, PlainHost
from hermes_backend_ssh.machine import Machine, look_at, sweep
from hermes_backend_ssh.options import SshOptions
from hermes_backend_ssh.plugin import SSH
from hermes_backend_ssh.shared import SharedSlot
from hermes_core.contracts.errors import BackendError, SandboxLostError, SandboxRefusedError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_core.sandbox import AgentBackend, SandboxHost
from hermes_core.specs import BackendSpec

_PREFIX: Final = "hermes-sandbox-"
_LOGINS: Final = 6
"""How many connections may be logging in at once; sshd drops some at random above MaxStartups (10)."""


class SshBackend(AgentBackend):
    """Sandboxes on a machine reached by SSH.

    Isolation `none` trusts the machine: commands run there as the login's user, beside everything else of that user.
    `bwrap` shows them a read-only /usr and directories of their own, where the machine has bubblewrap.
    """

    declaration: ClassVar[BackendSpec] = SSH
    Options = SshOptions

    def __init__(self, options: SshOptions) -> None:
        super().__init__()
        self.options = options
        self.setup_timeout = options.setup_timeout
        self.patience = options.patience
        self._logins = asyncio.Semaphore(_LOGINS)
        self._machine: Machine | None = None
        self._counting: contextlib.AbstractAsyncContextManager[object] = (
            contextlib.nullcontext() if options.connections is None else asyncio.Lock()
        )
        self._used: weakref.WeakSet[SshConnection] = weakref.WeakSet()

    def refuse(self, spec: SandboxSpec) -> None:
        """Refuse also what only bubblewrap could enforce."""
        super().refuse(spec)
        if spec.network != "full" and spec.isolation == "none":
            raise self._refusal(
                f"network {spec.network!r} at isolation 'none'", '--isolation bwrap (open_sandbox: isolation="bwrap")'
            )

    def shares(self, spec: SandboxSpec) -> bool:
        """Those of isolation `none` do, unless each is to have a connection of its own."""
        return spec.isolation == "none" and self.options.slots_per_connection > 1

    async def probe(self, spec: SandboxSpec) -> None:
        """Open a sandbox of this kind and run a command in it."""
        try:
            async with await self.open(spec) as sandbox:
                result = await sandbox.exec("true", timeout=self.setup_timeout)
        except SandboxRefusedError:
            raise
        except (BackendError, SandboxLostError) as error:
            if spec.isolation == "none":
                raise
            raise SandboxRefusedError(
                f"isolation {spec.isolation!r} does not work on {self.options.name}: {error.message}",
                hint="`apt-get install bubblewrap` there, and allow unprivileged user namespaces",
            ) from error
        if result.exit_code != 0:
            raise BackendError(f"bash does not work in a sandbox: {result.output.strip()}")

    def handle(self, spec: SandboxSpec, sandbox_id: str) -> Mapping[str, Any]:
        """Name the machine and the directory; the way there is in the backend's options."""
        del spec
        options = self.options
        root = f"{options.root_dir.rstrip('/')}/{_PREFIX}{sandbox_id}"
        return {
            "sandbox_id": sandbox_id,
            "host": options.host,
            "port": options.port,
            "user": options.user,
            "root": root,
        }

    async def create(self, spec: SandboxSpec, sandbox_id: str) -> SandboxHost:
        """Find the machine fit; log in for a sandbox that shares nothing."""
        handle = self.handle(spec, sandbox_id)
        if self.shares(spec):
            return await self._share(spec, handle)
        kind = BubblewrapHost if spec.isolation == "bwrap" else PlainHost
        async with contextlib.AsyncExitStack() as unless_made:
            connection, machine = await self._log_in_for_sandboxes()
            unless_made.push_async_callback(connection.aclose)
            host = kind(
                connection, machine, self.options, sandbox_id=sandbox_id, root=handle["root"], again=self._connect
            )
            if isinstance(host, BubblewrapHost):
                host.network = spec.network == "full"
            await host.make()
            unless_made.pop_all()
        return host

    async def _share(self, spec: SandboxSpec, handle: Mapping[str, Any]) -> SharedSlot:
        options = self.options
        return SharedSlot(
            self.places,
            self._make_place,
            spec=spec,
            options=options,
            root=handle["root"],
            provenance={"host": options.host, "port": options.port, "user": options.user},
            remove=lambda: self.reclaim(handle),
        )

    async def _make_place(self) -> SandboxHost:
        connection, machine = await self._log_in_for_sandboxes()
        return ConnectionHost(connection, machine, self.options, uuid.uuid4().hex[:16])

    async def _connect(self) -> SshConnection:
        async with self._logins:
            return await SshConnection.open(self.options)

    async def _log_in_for_sandboxes(self) -> tuple[SshConnection, Machine]:
        most = self.options.connections
        async with self._counting:
            if most is not None and sum(connection.alive for connection in self._used) >= most:
                raise BackendError(
                    f"all {most} connections to {self.options.name} are in use",
                    hint="run fewer sandboxes at once, or raise the option connections or slots_per_connection",
                )
            connection, machine = await self._log_in()
            self._used.add(connection)
        return connection, machine

    async def _log_in(self) -> tuple[SshConnection, Machine]:
        connection = await self._connect()
        try:
            self._machine = self._machine or await look_at(connection, self.options)
        except BaseException:
            await connection.aclose()
            raise
        return connection, self._machine

    async def reclaim(self, handle: Mapping[str, Any]) -> None:
        """Log in, kill and delete what a killed process left behind."""
        root, sandbox_id = handle["root"], handle["sandbox_id"]
        if root.rpartition("/")[2] != f"{_PREFIX}{sandbox_id}":
            raise BackendError(f"{root} is not the directory of sandbox {sandbox_id}; nothing was deleted")
        there = tuple(handle[name] for name in ("host", "port", "user"))
        if there != (self.options.host, self.options.port, self.options.user):
            raise BackendError(
                f"sandbox {sandbox_id} is at {there[2]}@{there[0]}:{there[1]}, not at {self.options.name}"
            )
        connection, machine = await self._log_in()
        try:
            await sweep(connection, machine.python, sandbox_id, root, delete=True, timeout=self.setup_timeout)
        finally:
            await connection.aclose()
