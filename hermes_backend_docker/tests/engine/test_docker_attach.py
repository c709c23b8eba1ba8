"""The stream of a container: standard output for the agent's client, standard error for the message when it fails."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterable

import pytest

from hermes_backend_docker.engine.attached_stream import AttachedReader


def _frame(kind: int, data: bytes) -> bytes:
    return struct.pack(">BxxxL", kind, len(data)) + data


def _reader(pieces: Iterable[bytes], *, why: str | None = None) -> AttachedReader:
    raw = asyncio.StreamReader()
    for piece in pieces:
        raw.feed_data(piece)
    raw.feed_eof()

    async def explain() -> str | None:
        return why

    return AttachedReader(raw, explain)


async def test_output_is_the_same_however_the_engine_cuts_it() -> None:
    sent = _frame(1, b"abc") + _frame(2, b"warning\n") + _frame(1, b"") + _frame(1, b"defgh")
    for size in (1, 3, 8, 1000):
        reader = _reader(sent[start : start + size] for start in range(0, len(sent), size))
        assert [await reader.readexactly(2), await reader.readexactly(6)] == [b"ab", b"cdefgh"]
        assert await reader.last_words() == "warning\n"


async def test_only_the_end_of_a_long_complaint_is_kept() -> None:
    reader = _reader([_frame(2, b"x" * 100_000 + b"the end"), _frame(1, b"o")])
    assert await reader.readexactly(1) == b"o"
    said = await reader.last_words()
    assert said.endswith("xthe end")
    assert len(said) == 8192


async def test_the_end_of_the_stream_is_an_error_with_the_reason_where_one_is_known() -> None:
    with pytest.raises(asyncio.IncompleteReadError) as caught:
        await _reader([_frame(1, b"ab")]).readexactly(3)
    assert caught.value.partial == b"ab"
    with pytest.raises(ConnectionAbortedError, match="ran out of memory"):
        await _reader([_frame(1, b"ab")[:-1]], why="the container ran out of memory").readexactly(3)


async def test_a_slow_reader_holds_the_engine_back() -> None:
    raw = asyncio.StreamReader(limit=1 << 16)
    transport = _Paused()
    raw.set_transport(transport)

    async def explain() -> None:
        return None

    reader = AttachedReader(raw, explain)
    raw.feed_data(_frame(1, bytes(1 << 20)))
    assert transport.paused
    await reader.readexactly(1 << 19)
    await reader.readexactly(1 << 19)
    assert not transport.paused


class _Paused(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.paused = False

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False
