"""Read a program's output from a node, and find the reason of its end."""

from __future__ import annotations

import asyncio
from typing import Final

from hermes_backend_ray.host_actors.host_actor import HostActor
from hermes_core.contracts.errors import BackendError
from hermes_sandbox.backends import CallbackReader

_EXPLAIN: Final = 3.0
"""Seconds for which the end of a stream waits for its reason; Ray notices a killed actor at once, and a killed node
after about two seconds."""


class NodeReader(CallbackReader):
    """Reads a connection. When it ends, the actor is asked why: the program may have ended, or the node."""

    def __init__(self, host: HostActor, number: int) -> None:
        super().__init__()
        self.expected = False
        """Whether the end was requested and needs no reason."""
        self._host = host
        self._number = number
        self._asking: asyncio.Task[None] | None = None

    def finish(self, error: OSError | None) -> None:
        """Report the end of the stream to the subscriber, once the reason is known."""
        if self.expected or self._host.lost is not None:
            self._over_because(error)
        elif self._asking is None:
            self._asking = asyncio.ensure_future(self._ask(error))

    def _over_because(self, error: OSError | None) -> None:
        lost = self._host.lost
        super().finish(error if lost is None or self.expected else ConnectionResetError(lost.message))

    async def _ask(self, error: OSError | None) -> None:
        try:
            async with asyncio.timeout(_EXPLAIN):
                status = await self._host.call("wait", self._number, _EXPLAIN)
        except (BackendError, TimeoutError):
            self._over_because(error)
            return
        told = f"{self._host.node.name}: the agent has ended with status {status}"
        super().finish(error if status is None else ConnectionResetError(told))

    async def end(self) -> None:
        """Stop looking for the reason of the end."""
        self.expected = True
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait((self._asking,))
