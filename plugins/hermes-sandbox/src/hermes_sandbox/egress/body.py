"""Forwards exactly the body of a request: bytes after it on the connection never reach the origin."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Final

from hermes_sandbox.egress.request import RequestRefusedError
from hermes_sandbox.egress.tunnel import CHUNK, Tunnel

_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?")
_TRAILERS: Final = 64


async def read_body(tunnel: Tunnel, length: int | None) -> AsyncIterator[bytes]:
    """Yield the bytes for the origin; a length of None means a body in chunks, which are written again.

    Raises:
        RequestRefusedError: The chunks are malformed.
        asyncio.IncompleteReadError: The program ended before its body did.
    """
    if length is not None:
        async for piece in _exactly(tunnel, length):
            yield piece
        return
    while size := await _chunk_size(tunnel):
        async for piece in _exactly(tunnel, size):
            yield b"%x\r\n%b\r\n" % (len(piece), piece)
        if await _line(tunnel):
            raise RequestRefusedError(400, "a chunk is longer than it says")
    for _ in range(_TRAILERS):
        if not await _line(tunnel):
            yield b"0\r\n\r\n"
            return
    raise RequestRefusedError(400, f"more than {_TRAILERS} trailers")


async def _exactly(tunnel: Tunnel, size: int) -> AsyncIterator[bytes]:
    while size:
        piece = await tunnel.read(min(size, CHUNK))
        if not piece:
            raise asyncio.IncompleteReadError(b"", size)
        size -= len(piece)
        yield piece


async def _line(tunnel: Tunnel) -> bytes:
    try:
        return await tunnel.line()
    except asyncio.LimitOverrunError:
        raise RequestRefusedError(400, "a line of the body is not ended") from None


async def _chunk_size(tunnel: Tunnel) -> int:
    line = await _line(tunnel)
    found = _SIZE.fullmatch(line)
    if found is None:
        raise RequestRefusedError(400, f"expected the size of a chunk, got {line[:80]!r}")
    return int(found[1], 16)
