"""Broken servers on the loopback interface, for tests of clients."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final
from urllib.parse import urlsplit

__all__ = ["FixedAnswerServer", "answer", "closed_port", "held_port", "serving", "unreachable_url"]

_LENGTH: Final = re.compile(rb"^content-length: *(\d+)", re.IGNORECASE | re.MULTILINE)


def answer(status: str, body: str, kind: str = "application/json") -> bytes:
    """Return a complete HTTP response, after which the connection is closed."""
    data = body.encode()
    head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(data)}\r\nconnection: close\r\n\r\n"
    return head.encode() + data


class FixedAnswerServer:
    """A server that sends the same response to every request; `url` is its address, `connections` their number."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.connections = 0

    async def visit(self) -> None:
        """Connect and wait for the response: then all earlier connections are counted."""
        place = urlsplit(self.url)
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await reader.read()
        writer.close()
        await writer.wait_closed()


@asynccontextmanager
async def serving(said: bytes) -> AsyncIterator[FixedAnswerServer]:
    """Listen, read each request completely, send these bytes and close the connection."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.connections += 1
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            length = _LENGTH.search(head)
            await reader.readexactly(int(length.group(1)) if length else 0)
            writer.write(said)
            await writer.drain()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    listening = await asyncio.start_server(talk, "127.0.0.1", 0)
    server = FixedAnswerServer(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1")
    try:
        yield server
    finally:
        listening.close()
        await listening.wait_closed()


@contextmanager
def closed_port(host: str = "127.0.0.1") -> Iterator[int]:
    """Reserve a port without a listener: it refuses every connection, and no other program gets it meanwhile."""
    with socket.socket() as keeper:
        keeper.bind((host, 0))
        yield int(keeper.getsockname()[1])


@contextmanager
def held_port() -> Iterator[int]:
    """Reserve a port of the loopback interface for a program that the test starts; no other program gets it.

    The program must set SO_REUSEADDR before it binds, as servers do. Until it listens, the port refuses.
    """
    with socket.socket() as keeper:
        keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        keeper.bind(("127.0.0.1", 0))
        yield int(keeper.getsockname()[1])


@asynccontextmanager
async def unreachable_url(host: str = "127.0.0.1") -> AsyncIterator[str]:
    """Reserve a port without a listener on an address of this machine; yields the URL."""
    with closed_port(host) as port:
        yield f"http://{host}:{port}/v1"
