"""A program's stream inside calls of its node's actor, for where a connection to the node cannot be had."""

from __future__ import annotations

import asyncio
from typing import Final

from hermes_backend_ray.host_actors.host_actor import HostActor
from hermes_core.contracts.errors import BackendError
from hermes_sandbox.backends import AgentStream, CallbackReader

_HIGH: Final = 1 << 20
"""Bytes that may wait to be sent before writers have to."""
_PIECE: Final = 1 << 19
"""Bytes of one call."""


class CallStream:
    """Two tasks: one asks for output again and again, one sends what has been written since its last call.

    One call of each kind is under way at a time: what comes meanwhile travels with the next, and a program that reads
    nothing, or a caller that does not, stops the other end.
    """

    def __init__(self, host: HostActor, number: int) -> None:
        self.transport = self
        self._host = host
        self._number = number
        self._waiting = bytearray()
        self._sent = asyncio.Event()
        self._more = asyncio.Event()
        self._closing = False
        self._broken: OSError | None = None
        reader = CallbackReader()
        self._reading = asyncio.ensure_future(self._receive(reader))
        self._writing = asyncio.ensure_future(self._send())
        self.stream = AgentStream(reader, self)

    def write(self, data: bytes | memoryview, /) -> None:
        """Queue bytes for the next call."""
        if not self._closing:
            self._waiting += data
            self._more.set()

    async def drain(self) -> None:
        """Wait until there is room for more."""
        while len(self._waiting) > _HIGH and self._broken is None:
            self._sent.clear()
            await self._sent.wait()
        if self._broken is not None:
            raise self._broken

    def close(self) -> None:
        """Send the end of input after everything that was written."""
        self._closing = True
        self._more.set()

    def is_closing(self) -> bool:
        """Tell whether the end has been asked for."""
        return self._closing

    def abort(self) -> None:
        """Drop what has not been sent, and close."""
        self._waiting.clear()
        self._sent.set()
        self.close()

    async def wait_closed(self) -> None:
        """Wait until the end has been sent."""
        await asyncio.wait((self._writing,))

    async def _receive(self, reader: CallbackReader) -> None:
        problem: OSError | None = None
        try:
            while data := await self._host.call("read", self._number):
                reader.push(data)
        except BackendError as error:
            problem = ConnectionResetError(error.message)
        reader.finish(problem)

    async def _send(self) -> None:
        try:
            while await self._piece():
                pass
            await self._host.call("end_input", self._number)
        except (BackendError, OSError) as error:
            self._broken = ConnectionResetError(str(error))
            self._waiting.clear()
        self._sent.set()

    async def _piece(self) -> bool:
        """Send what there is, or wait for it; False at the end."""
        if not self._waiting:
            if self._closing:
                return False
            self._more.clear()
            await self._more.wait()
            return True
        data = bytes(self._waiting[:_PIECE])
        del self._waiting[:_PIECE]
        self._sent.set()
        if not await self._host.call("write", self._number, data):
            raise BrokenPipeError("the program reads no more")
        return True
