"""A container's standard streams as the stream of an agent.

It uses a separate connection, because the client library's stream passes one message at a time through a queue of 64 KB
and has no transport that can be aborted.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Awaitable, Callable
from typing import Final

from hermes_backend_docker.engine.address import Address
from hermes_backend_docker.engine.failures import ContainerGoneError, EngineError
from hermes_sandbox.backends import AgentStream

_HEADER: Final = struct.Struct(">BxxxL")
_STDERR: Final = 2
_PIECE: Final = 1 << 18
_KEPT: Final = 8192
"""How many bytes at the end of standard error are kept."""
_LAST_WORDS: Final = 1.0

_SWITCHED: Final = frozenset({101, 200})


class AttachedReader:
    """Reads the container's standard output; interleaved standard error is kept for messages.

    Nothing is read ahead beyond the connection's own buffer, so a slow reader slows down the sandbox.

    Args:
        raw: The connection after the engine's answer.
        explain: Returns why the container has ended; called after its end.
    """

    def __init__(self, raw: asyncio.StreamReader, explain: Callable[[], Awaitable[str | None]]) -> None:
        self._raw = raw
        self._explain = explain
        self._ready = bytearray()
        self._said = bytearray()
        self._kind = 0
        self._left = 0

    async def readexactly(self, n: int, /) -> bytes:
        """Return n bytes; raise `IncompleteReadError` at the end, or `ConnectionAbortedError` with a known reason."""
        while len(self._ready) < n:
            if not await self._more():
                why = await self._explain()
                if why is not None:
                    raise ConnectionAbortedError(why)
                raise asyncio.IncompleteReadError(bytes(self._ready), n)
        with memoryview(self._ready) as view:
            data = bytes(view[:n])
        del self._ready[:n]
        return data

    async def _more(self) -> bool:
        if not self._left:
            try:
                self._kind, self._left = _HEADER.unpack(await self._raw.readexactly(_HEADER.size))
            except asyncio.IncompleteReadError:
                return False
            if not self._left:
                return True
        data = await self._raw.read(min(self._left, _PIECE))
        self._left -= len(data)
        if self._kind == _STDERR:
            self._said += data
            del self._said[:-_KEPT]
        else:
            self._ready += data
        return bool(data)

    async def last_words(self) -> str:
        """Return the end of standard error, after a short wait for the rest."""
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(_LAST_WORDS):
                while await self._more():
                    self._ready.clear()
        return self._said.decode(errors="replace")


async def attach(address: Address, container: str, explain: Callable[[], Awaitable[str | None]]) -> AgentStream:
    """Attach to a container's standard streams; call it before the start, so that no output is lost.

    Closing the stream closes the container's standard input.
    """
    reader, writer = await address.connect()
    try:
        query = "stream=1&stdin=1&stdout=1&stderr=1"
        writer.write(
            f"POST /containers/{container}/attach?{query} HTTP/1.1\r\nHost: docker\r\n"
            "Connection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 0\r\n\r\n".encode()
        )
        await writer.drain()
        await _await_switch(reader, container)
    except BaseException:
        writer.transport.abort()
        raise
    attached = AttachedReader(reader, explain)
    return AgentStream(attached, writer, attached.last_words, f" in container {container[:12]}")


async def _await_switch(reader: asyncio.StreamReader, container: str) -> None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode(errors="replace")
        status = int(head.split(None, 2)[1])
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, IndexError, ValueError) as error:
        raise EngineError(f"cannot attach to container {container}: the answer is not HTTP ({error})") from error
    if status in _SWITCHED:
        return
    said = (await reader.read(2000)).decode(errors="replace").strip()
    kind = ContainerGoneError if status == 404 else EngineError
    raise kind(f"cannot attach to container {container}: status {status}: {said}")
