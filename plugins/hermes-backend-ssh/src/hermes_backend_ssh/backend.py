"""Backend `ssh`: sandboxes on another machine."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, ClassVar, Final

from hermes_backend_ssh.connection import SshConnection
from hermes_backend_ssh.options import SshOptions
from hermes_backend_ssh.plugin import SSH
from hermes_core.contracts.errors import BackendError
from hermes_core.specs import BackendSpec
from hermes_sandbox.remote import Link, MachineBackend

_LOGINS: Final = 6
"""How many connections may be logging in at once; sshd drops some at random above MaxStartups (10)."""


class SshBackend(MachineBackend):
    """Sandboxes on a machine reached by SSH.

    Isolation `none` trusts the machine: commands run there as the login user, next to all other processes of that user.
    `bwrap` gives them a read-only /usr and private directories, if the machine has bubblewrap.
    """

    declaration: ClassVar[BackendSpec] = SSH
    Options = SshOptions
    options: SshOptions

    def __init__(self, options: SshOptions) -> None:
        super().__init__(options)
        self._logins = asyncio.Semaphore(_LOGINS)
        self._counting: contextlib.AbstractAsyncContextManager[object] = (
            contextlib.nullcontext() if options.connections is None else asyncio.Lock()
        )
        self._used: weakref.WeakSet[SshConnection] = weakref.WeakSet()

    @property
    def place_name(self) -> str:
        """The machine's name for messages."""
        return self.options.name

    def address(self) -> Mapping[str, Any]:
        """Name the machine."""
        return {"host": self.options.host, "port": self.options.port, "user": self.options.user}

    async def connect(self) -> SshConnection:
        """Log in for a new place if the limit of connections allows it."""
        most = self.options.connections
        async with self._counting:
            if most is not None and sum(connection.alive for connection in self._used) >= most:
                raise BackendError(
                    f"expected a free connection to {self.options.name}, got all {most} in use",
                    hint="run fewer sandboxes at once, or raise the option connections or slots_per_agent",
                )
            connection = await self._log_in()
            self._used.add(connection)
        return connection

    async def connect_again(self, lost: Link) -> SshConnection:
        """Log in to clean up; this does not count towards the limit of connections."""
        del lost
        return await self._log_in()

    async def _log_in(self) -> SshConnection:
        async with self._logins:
            return await SshConnection.open(self.options)

    @contextlib.asynccontextmanager
    async def reach(self, handle: Mapping[str, Any]) -> AsyncIterator[Sequence[Link]]:
        """Log in to the machine of the handle, if it is the one in the options."""
        there = tuple(handle[name] for name in ("host", "port", "user"))
        if there != tuple(self.address().values()):
            raise BackendError(
                f"expected {there[2]}@{there[0]}:{there[1]} for sandbox {handle['sandbox_id']}, got {self.options.name}"
            )
        connection = await self._log_in()
        try:
            yield (connection,)
        finally:
            await connection.aclose()
