"""The caller's end of one connection of a program in a sandbox to its proxy port."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from hermes_sandbox.agent.tunnels import TUNNEL_WINDOW
from hermes_sandbox.egress.request import MAX_HEAD

CHUNK: Final = 1 << 16
Send = Callable[[Mapping[str, Any], bytes], Awaitable[None]]
"""Sends a frame to the agent as soon as the stream has room for it."""


class Tunnel:
    """Carries bytes in both directions; each end reports what it has read. Incoming frames are not trusted.

    Reading and writing raise `ConnectionError` when the connection is broken.
    """

    def __init__(self, number: int, send: Send) -> None:
        self.number = number
        self._send = send
        self._input = asyncio.StreamReader(limit=MAX_HEAD)
        self._held = 0
        self._owed = 0
        self._credit = TUNNEL_WINDOW
        self._room = asyncio.Event()
        self._ended = False
        self._broken = False

    @property
    def broken(self) -> bool:
        """Whether the program, or this end, has closed the connection."""
        return self._broken

    def feed(self, data: bytes) -> None:
        """Take bytes that the agent relayed; an empty piece is their end."""
        self._held += len(data)
        if self._broken or self._ended or self._held > TUNNEL_WINDOW:
            self.cut()
        elif data:
            self._input.feed_data(data)
        else:
            self._ended = True
            self._input.feed_eof()

    def grant(self, size: Any) -> None:
        """Note that the program has read bytes."""
        if not isinstance(size, int) or not 0 < size <= TUNNEL_WINDOW - self._credit:
            self.cut()
            return
        self._credit += size
        self._room.set()

    def cut(self) -> None:
        """Break the connection at this end: reading and writing fail from now on."""
        self._broken = True
        self._room.set()
        if self._input.exception() is None:
            self._input.set_exception(ConnectionResetError("the program has closed its connection"))

    async def head(self) -> bytes:
        """Return everything up to and with an empty line; raises `asyncio.LimitOverrunError` beyond `MAX_HEAD`."""
        return await self._took(await self._input.readuntil(b"\r\n\r\n"))

    async def line(self) -> bytes:
        """Return a line without its end."""
        return (await self._took(await self._input.readuntil(b"\r\n")))[:-2]

    async def read(self, limit: int = CHUNK) -> bytes:
        """Return some bytes, at most `limit`; none at the end."""
        return await self._took(await self._input.read(limit))

    async def _took(self, data: bytes) -> bytes:
        self._held -= len(data)
        self._owed += len(data)
        if self._owed >= TUNNEL_WINDOW // 4:
            owed, self._owed = self._owed, 0
            await self._send({"op": "tunnel_credit", "tunnel": self.number, "size": owed}, b"")
        return data

    async def write(self, data: bytes) -> None:
        """Send bytes to the program, as fast as it reads them."""
        view = memoryview(data)
        while view:
            piece = view[: min(await self._allowance(), CHUNK)]
            self._credit -= len(piece)
            view = view[len(piece) :]
            await self._send({"op": "tunnel_data", "tunnel": self.number}, bytes(piece))

    async def _allowance(self) -> int:
        while not self._credit and not self._broken:
            self._room.clear()
            await self._room.wait()
        if self._broken:
            raise ConnectionResetError("the program has closed its connection")
        return self._credit

    async def finish(self) -> None:
        """Send the end of the stream to the program."""
        await self._send({"op": "tunnel_data", "tunnel": self.number}, b"")

    async def close(self, *, broken: bool) -> None:
        """Close the connection after the written bytes; reset a broken one at once, so that the program notices."""
        if not self._broken:
            self._broken = True
            await self._send({"op": "tunnel_close", "tunnel": self.number, "broken": broken}, b"")
