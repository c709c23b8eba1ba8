"""A tap between two ends of a connection: it hands bytes on as they are, and keeps what the server sent."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import io
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlsplit


@dataclass
class Tap:
    """`sent` holds what the server sent over each connection."""

    url: str
    sent: list[bytearray] = field(default_factory=list)

    def bodies(self) -> list[bytes]:
        """Return the bodies of the answers, one of each connection, without the frames of their transfer."""
        return [_body(bytes(sent)) for sent in self.sent if sent]


@contextlib.asynccontextmanager
async def tapping(server_url: str) -> AsyncIterator[Tap]:
    """Listen in front of a server."""
    address = urlsplit(server_url)
    tap = Tap(url="")

    async def relay_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        above, below = await asyncio.open_connection(address.hostname, address.port)
        sent = bytearray()
        tap.sent.append(sent)
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await asyncio.gather(_pass_on(reader, below, bytearray()), _pass_on(above, writer, sent))

    async with await asyncio.start_server(relay_connection, "127.0.0.1", 0) as server:
        tap.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield tap


async def _pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter, copy: bytearray) -> None:
    while data := await source.read(65536):
        copy += data
        target.write(data)
        await target.drain()
    target.close()


class _Received:
    """What `http.client` reads an answer from."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self._data)


def _body(data: bytes) -> bytes:
    answer = http.client.HTTPResponse(cast("Any", _Received(data)), method="POST")
    answer.begin()
    return answer.read()
