"""A socket whose bytes are handed on as they come, without a task that waits for them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final

_BUFFER: Final = 1 << 18
"""Bytes that are taken from the socket at once."""


class PushedReader:
    """What comes on a stream: given to whoever has subscribed, kept for the next one while nobody has.

    A waiting task costs a turn of the event loop for each piece, and a buffer between the socket and the task costs a
    copy and, at this size, a mapping of memory for each.
    """

    def __init__(self) -> None:
        self._take: Callable[[memoryview], None] | None = None
        self._ended: Callable[[OSError | None], None] | None = None
        self._early = bytearray()
        self._over = False
        self._error: OSError | None = None

    def subscribe(self, take: Callable[[memoryview], None], ended: Callable[[OSError | None], None]) -> None:
        """Call `take` with bytes that are valid during the call, and `ended` once, with what broke the stream if so."""
        self._take, self._ended = take, ended
        early, self._early = self._early, bytearray()
        if early:
            take(memoryview(early))
        if self._over:
            self.finish(self._error)

    def unsubscribe(self) -> None:
        """Keep what comes from now on for the next one."""
        self._take = self._ended = None

    def push(self, data: memoryview) -> None:
        """Hand bytes on."""
        if self._take is None:
            self._early += data
        else:
            self._take(data)

    def finish(self, error: OSError | None) -> None:
        """Tell that nothing more comes."""
        self._over, self._error = True, error
        ended, self._ended = self._ended, None
        if ended is not None:
            ended(error)


class _Pushing(asyncio.StreamReaderProtocol, asyncio.BufferedProtocol):
    """Reads into one buffer; how writers wait for room is inherited."""

    def __init__(self, reader: PushedReader, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(asyncio.StreamReader(loop=loop), loop=loop)
        self._pushed = reader
        self._memory = memoryview(bytearray(_BUFFER))

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self._memory

    def buffer_updated(self, nbytes: int) -> None:
        self._pushed.push(self._memory[:nbytes])

    def eof_received(self) -> bool:
        super().eof_received()
        self._pushed.finish(None)
        return True  # as with any stream: what is written may still be wanted

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._pushed.finish(exc if isinstance(exc, OSError) else None)


async def open_pushed(sock: socket.socket) -> tuple[PushedReader, asyncio.StreamWriter]:
    """Return a connected socket as what it says and a writer."""
    loop = asyncio.get_running_loop()
    reader = PushedReader()
    protocol = _Pushing(reader, loop)
    transport, _ = await loop.create_connection(lambda: protocol, sock=sock)
    return reader, asyncio.StreamWriter(transport, protocol, None, loop)
