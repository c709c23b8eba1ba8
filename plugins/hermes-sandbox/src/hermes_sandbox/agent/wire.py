"""Frames: two 32-bit lengths, a JSON header, a raw body. Used at both ends."""

from __future__ import annotations

import struct

from hermes_sandbox.agent.basics.json_text import from_json, to_json
from hermes_sandbox.agent.basics.stdlib import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

PROTOCOL = 3
CHUNK = 1 << 18
MAX_HEADER = 1 << 20
MAX_BODY = 1 << 24
PREFIX = struct.Struct("!II")


class FrameError(Exception):
    """The other end does not speak the protocol."""


def encode(header: Mapping[str, Any], body: bytes = b"") -> bytes:
    """Return a frame as bytes; names that are not UTF-8 travel as escaped surrogates."""
    return encode_head(header, len(body)) + body


def encode_head(header: Mapping[str, Any], size: int) -> bytes:
    """Return the prefix and header of a body of this size."""
    head = to_json(header).encode()
    if len(head) > MAX_HEADER or size > MAX_BODY:
        raise FrameError(f"a frame may have {MAX_HEADER}+{MAX_BODY} bytes, got {len(head)}+{size}")
    return PREFIX.pack(len(head), size) + head


def lengths(prefix: bytes) -> tuple[int, int]:
    """Return the lengths of header and body; raises `FrameError` for lengths that no honest end sends."""
    head, body = PREFIX.unpack(prefix)
    if head > MAX_HEADER or body > MAX_BODY:
        raise FrameError(f"not a frame: {prefix!r}")
    return head, body


def decode_header(data: bytes) -> dict[str, Any]:
    """Return a frame's header."""
    try:
        header = from_json(data.decode())
    except ValueError as error:
        raise FrameError(f"not a header: {data[:80]!r}") from error
    if not isinstance(header, dict):
        raise FrameError(f"not a header: {data[:80]!r}")
    return header


class Decoder:
    """Cuts a stream of bytes into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._wanted = PREFIX.size

    def feed(self, data: bytes | memoryview) -> Iterator[tuple[dict[str, Any], bytes]]:
        """Take bytes and yield every frame that they complete; all of them are to be taken."""
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._wanted:
                return
            data, self._buffer = memoryview(self._buffer), bytearray()
        view = memoryview(data)
        at, self._wanted = 0, PREFIX.size
        while len(view) - at >= PREFIX.size:
            body = at + PREFIX.size
            head, size = lengths(bytes(view[at:body]))
            body += head
            if body + size > len(view):
                self._wanted = body + size - at
                break
            header = decode_header(bytes(view[body - head : body]))
            at = body + size
            yield header, bytes(view[body:at])
        self._buffer += view[at:]

    def rest(self) -> bytes:
        """Return the first bytes after the last complete frame."""
        return bytes(self._buffer[:200])
