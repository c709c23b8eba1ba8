"""Relays bytes between a program's connection and an origin."""

from __future__ import annotations

import asyncio
from typing import Protocol

from hermes_sandbox.egress.body import read_body
from hermes_sandbox.egress.request import ProxyRequest
from hermes_sandbox.egress.tunnel import CHUNK, Tunnel


class Count(Protocol):
    """Counts relayed bytes."""

    def __call__(self, *, sent: int = 0, received: int = 0) -> None:
        """Add bytes of either direction."""
        ...


class Exchange:
    """Relays one request and its response, until both directions have ended or one is broken.

    `patience`: once one side has closed, the connection ends after this many seconds without a byte, since the
    other side may never send anything.
    """

    def __init__(
        self,
        tunnel: Tunnel,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        count: Count,
        patience: float,
    ) -> None:
        self._tunnel = tunnel
        self._reader = reader
        self._writer = writer
        self._count = count
        self._patience = patience
        self._moved = 0
        # Drained bytes are with the system, and not lost when the connection is closed.
        writer.transport.set_write_buffer_limits(0)

    async def run(self, request: ProxyRequest) -> None:
        """Relay to the end.

        Raises:
            ConnectionError: One of the two ends is broken.
            RequestRefusedError: The body of the request is malformed.
        """
        if request.connects:
            await self._tunnel.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        up = asyncio.ensure_future(self._up(request))
        down = asyncio.ensure_future(self._down())
        try:
            await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
            if up.done():
                self._check(up)
                await self._rest(down)
            elif request.connects:
                down.result()
                await self._rest(up)
        finally:
            for task in (up, down):
                task.cancel()
            await asyncio.wait((up, down))
            _ = up.cancelled() or up.exception()  # its important errors were raised above
        if down.cancelled():
            raise ConnectionResetError("no byte arrived for too long")
        down.result()

    def _check(self, up: asyncio.Future[None]) -> None:
        # An origin may answer and close before it has read everything: only its answer counts.
        error = up.exception()
        if error is not None and (self._tunnel.broken or not isinstance(error, OSError)):
            raise error

    async def _rest(self, task: asyncio.Future[None]) -> None:
        moved = -1
        while not task.done() and moved != self._moved:
            moved = self._moved
            await asyncio.wait((task,), timeout=self._patience)

    async def _up(self, request: ProxyRequest) -> None:
        if request.connects:
            while data := await self._tunnel.read():
                await self._send(data)
            self._writer.write_eof()
            return
        await self._send(request.head)
        async for piece in read_body(self._tunnel, request.length):
            await self._send(piece)
        # One request per connection: further bytes are dropped, and their end means that the program has left.
        while await self._tunnel.read():
            pass

    async def _send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()
        self._moved += 1
        self._count(sent=len(data))

    async def _down(self) -> None:
        while data := await self._reader.read(CHUNK):
            await self._tunnel.write(data)
            self._moved += 1
            self._count(received=len(data))
        await self._tunnel.finish()
