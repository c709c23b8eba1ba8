"""What the tests of the egress proxy share: a program's side of a tunnel in memory, and servers on loopback."""

from __future__ import annotations

import asyncio
import base64
import itertools
from contextlib import asynccontextmanager

from hermes_sandbox.agent.tunnels import TUNNEL_WINDOW
from hermes_sandbox.egress.proxy import EgressProxy
from hermes_sandbox.egress.rules import AllowList

PIECE = 1 << 16
_NUMBERS = itertools.count(1)


class Program:
    """Speaks to a proxy as the agent of a sandbox would; with `takes=False` it never reads what it is sent."""

    def __init__(self, proxy, *, takes=True) -> None:
        self.proxy = proxy
        self.number = next(_NUMBERS)
        self.takes = takes
        self.credit = TUNNEL_WINDOW
        self.unread = 0
        self.most_unread = 0
        self.received = bytearray()
        self.ended = asyncio.Event()
        self.closed = asyncio.Event()
        self.broken = False
        self._room = asyncio.Event()
        self._event("tunnel_open")

    def _event(self, name, body=b"", **values):
        self.proxy.receive({"event": name, "tunnel": self.number, **values}, body, self._take)

    async def _take(self, header, body):
        operation = header["op"]
        if operation == "tunnel_data":
            self.received += body
            self.unread += len(body)
            self.most_unread = max(self.most_unread, self.unread)
            if not body:
                self.ended.set()
            elif self.takes:
                self._event("tunnel_credit", size=self.unread)
                self.unread = 0
        elif operation == "tunnel_credit":
            self.credit += header["size"]
            self._room.set()
        else:
            self.broken = header["broken"]
            self.closed.set()

    async def send(self, data: bytes) -> None:
        while data and not self.closed.is_set():
            while not self.credit:
                self._room.clear()
                await self._room.wait()
            size = min(self.credit, PIECE)
            self.credit -= size
            self._event("tunnel_data", data[:size])
            data = data[size:]

    def finish(self) -> None:
        self._event("tunnel_data")

    def cut(self) -> None:
        self._event("tunnel_close")

    async def answer(self) -> bytes:
        """Return everything that came until the proxy had closed the connection."""
        await self.closed.wait()
        return bytes(self.received)

    def authorization(self) -> bytes:
        credentials = base64.b64encode(f"hermes:{self.proxy.password}".encode())
        return b"Proxy-Authorization: Basic " + credentials + b"\r\n"


@asynccontextmanager
async def proxy(*allow, names=None, patience=30.0):
    """Make a proxy; `names` maps host names to addresses, for lack of a name server."""

    async def resolve(host):
        try:
            return (names or {})[host]
        except KeyError:
            raise OSError("no such name") from None

    made = EgressProxy(AllowList(allow), resolve=resolve, patience=patience)
    try:
        yield made
    finally:
        await made.aclose()


async def ask(made, request: bytes, *, authorized=True) -> bytes:
    """Send a head, with the credentials in front of its empty line, and return what is answered."""
    program = Program(made)
    head, separator, rest = request.partition(b"\r\n\r\n")
    fields = b"\r\n" + program.authorization()[:-2] if authorized else b""
    await program.send(head + fields + separator + rest)
    return await program.answer()


class Origin:
    """A server on loopback that keeps what it is sent and hands each connection to `serve`."""

    def __init__(self) -> None:
        self.port = 0
        self.connections = 0
        self.active = 0
        self.data = bytearray()
        self.seen = asyncio.Event()


async def _http(origin, reader, writer):
    while b"\r\n\r\n" not in origin.data:
        data = await reader.read(PIECE)
        origin.data += data
        if not data:
            return
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\nreached")
    await writer.drain()


@asynccontextmanager
async def origin(serve=_http):
    """Start a server; `serve(origin, reader, writer)` handles a connection, which is closed afterwards."""
    made = Origin()
    tasks = set()

    async def accept(reader, writer):
        made.connections += 1
        made.active += 1
        tasks.add(asyncio.current_task())
        try:
            await serve(made, reader, writer)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            made.active -= 1
            made.seen.set()
            writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
