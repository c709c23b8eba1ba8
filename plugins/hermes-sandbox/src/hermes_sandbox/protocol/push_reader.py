"""A socket whose bytes are passed to a callback as they arrive, without a waiting task."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final

_BUFFER: Final = 1 << 18
"""Bytes to read from the socket at once."""
_KEPT: Final = 1 << 20
"""Bytes to keep without a subscriber, before the other end has to wait."""


class CallbackReader:
    """The bytes of a stream: passed to the subscriber or, without one, kept for `readexactly`.

    A waiting task costs an event-loop iteration for each piece, and a buffer between the socket and the task costs a
    copy and, at this size, a mapping of memory for each.
    """

    def __init__(self) -> None:
        self._take: Callable[[bytes | memoryview], None] | None = None
        self._ended: Callable[[OSError | None], None] | None = None
        self._early = bytearray()
        self._over = False
        self._error: OSError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._transport: asyncio.ReadTransport | None = None

    def set_transport(self, transport: asyncio.ReadTransport) -> None:
        """Set the transport to pause while no reader takes the bytes."""
        self._transport = transport

    async def readexactly(self, n: int, /) -> bytes:
        """Return n bytes or raise `asyncio.IncompleteReadError`; only without a subscriber."""
        while len(self._early) < n:
            if self._error is not None:
                raise self._error
            if self._over:
                raise asyncio.IncompleteReadError(bytes(self._early), n)
            self._flow()
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        data = bytes(self._early[:n])
        del self._early[:n]
        return data

    def _flow(self) -> None:
        if self._transport is not None and not self._transport.is_reading() and not self._transport.is_closing():
            self._transport.resume_reading()

    def _wake(self) -> bool:
        waiter, self._waiter = self._waiter, None
        if waiter is None or waiter.done():
            return False
        waiter.set_result(None)
        return True

    def subscribe(self, take: Callable[[bytes | memoryview], None], ended: Callable[[OSError | None], None]) -> None:
        """Call `take` with bytes that are valid during the call, and `ended` once, with the error if there was one."""
        self._take, self._ended = take, ended
        early, self._early = self._early, bytearray()
        self._flow()
        if early:
            take(memoryview(early))
        if self._over:
            self.finish(self._error)

    def unsubscribe(self) -> None:
        """Keep the bytes from now on for the next reader."""
        self._take = self._ended = None

    def push(self, data: bytes | memoryview) -> None:
        """Pass bytes to the subscriber, or keep them."""
        if self._take is not None:
            self._take(data)
            return
        self._early += data
        if not self._wake() and len(self._early) > _KEPT and self._transport is not None:
            self._transport.pause_reading()

    def finish(self, error: OSError | None) -> None:
        """Note the end of the stream."""
        self._over, self._error = True, error
        self._wake()
        ended, self._ended = self._ended, None
        if ended is not None:
            ended(error)


class _Pushing(asyncio.StreamReaderProtocol, asyncio.BufferedProtocol):
    """Reads into one buffer; flow control of writers is inherited."""

    def __init__(self, reader: CallbackReader, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(asyncio.StreamReader(loop=loop), loop=loop)
        self._pushed = reader
        self._memory = memoryview(bytearray(_BUFFER))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if isinstance(transport, asyncio.ReadTransport):
            self._pushed.set_transport(transport)

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self._memory

    def buffer_updated(self, nbytes: int) -> None:
        self._pushed.push(self._memory[:nbytes])

    def data_received(self, data: bytes) -> None:
        # By this method uvloop tells a buffered protocol from an ordinary one.
        self._pushed.push(data)

    def eof_received(self) -> bool:
        super().eof_received()
        self._pushed.finish(None)
        return True  # as with any stream: the other direction may still be used

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._pushed.finish(exc if isinstance(exc, OSError) else None)


async def open_callback_reader(
    sock: socket.socket, reader: CallbackReader | None = None
) -> tuple[CallbackReader, asyncio.StreamWriter]:
    """Return a reader (`reader` if given) and a writer for a connected socket."""
    loop = asyncio.get_running_loop()
    reader = reader or CallbackReader()
    protocol = _Pushing(reader, loop)
    transport, _ = await loop.create_connection(lambda: protocol, sock=sock)
    return reader, asyncio.StreamWriter(transport, protocol, None, loop)
