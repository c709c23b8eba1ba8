"""Frames: two 32-bit lengths, a JSON header, a raw body. Used at both ends."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any

PROTOCOL = 2
CHUNK = 1 << 18
MAX_HEADER = 1 << 20
MAX_BODY = 1 << 24
PREFIX = struct.Struct("!II")


class FrameError(Exception):
    """The other end does not speak the protocol."""


def encode(header: dict[str, Any], body: bytes = b"") -> bytes:
    """Return a frame as bytes; names that are not UTF-8 travel as escaped surrogates."""
    head = json.dumps(header, separators=(",", ":")).encode()
    if len(head) > MAX_HEADER or len(body) > MAX_BODY:
        raise FrameError(f"a frame may have {MAX_HEADER}+{MAX_BODY} bytes, wanted {len(head)}+{len(body)}")
    return PREFIX.pack(len(head), len(body)) + head + body


def lengths(prefix: bytes) -> tuple[int, int]:
    """Return the lengths of header and body, refusing what no honest end sends."""
    head, body = PREFIX.unpack(prefix)
    if head > MAX_HEADER or body > MAX_BODY:
        raise FrameError(f"not a frame: {prefix!r}")
    return head, body


def decode_header(data: bytes) -> dict[str, Any]:
    """Return a frame's header."""
    try:
        header = json.loads(data)
    except ValueError as error:
        raise FrameError(f"not a header: {data[:80]!r}") from error
    if not isinstance(header, dict):
        raise FrameError(f"not a header: {data[:80]!r}")
    return header


class Decoder:
    """Cuts a stream of bytes into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[dict[str, Any], bytes]]:
        """Take bytes and yield every frame that they complete."""
        self._buffer += data
        while len(self._buffer) >= PREFIX.size:
            head, body = lengths(bytes(self._buffer[: PREFIX.size]))
            end = PREFIX.size + head + body
            if len(self._buffer) < end:
                return
            header = decode_header(bytes(self._buffer[PREFIX.size : PREFIX.size + head]))
            content = bytes(self._buffer[PREFIX.size + head : end])
            del self._buffer[:end]
            yield header, content
