"""A socket whose bytes are handed on as they come: nothing is lost between those who take them."""

from __future__ import annotations

import asyncio
import socket

import pytest

from hermes_sandbox.protocol.push_reader import open_callback_reader


@pytest.fixture
async def pair():
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    reader, writer = await open_callback_reader(ours)
    yield reader, writer, theirs
    theirs.close()
    writer.close()
    await writer.wait_closed()


async def test_bytes_that_came_before_anybody_subscribed_are_handed_on_first(pair):
    reader, _, theirs = pair
    theirs.send(b"early ")
    assert await reader.readexactly(2) == b"ea"
    taken, ended = bytearray(), asyncio.Event()
    reader.subscribe(taken.extend, lambda _error: ended.set())
    theirs.send(b"late")
    theirs.shutdown(socket.SHUT_WR)
    await ended.wait()
    assert taken == b"rly late"


async def test_what_comes_after_one_has_left_is_the_next_one_s(pair):
    reader, _, theirs = pair
    first = bytearray()
    reader.subscribe(first.extend, lambda _error: None)
    reader.unsubscribe()
    theirs.send(b"for the second")
    assert await reader.readexactly(14) == b"for the second"
    assert first == b""


async def test_whoever_reads_beyond_the_end_learns_what_there_was(pair):
    reader, _, theirs = pair
    theirs.send(b"rest")
    theirs.close()
    with pytest.raises(asyncio.IncompleteReadError) as caught:
        await reader.readexactly(5)
    assert caught.value.partial == b"rest"


async def test_the_other_end_waits_while_nobody_takes_what_comes(pair):
    reader, _, theirs = pair
    loop = asyncio.get_running_loop()
    size = 64 << 20
    sending = asyncio.ensure_future(loop.sock_sendall(theirs, bytes(size)))
    assert await reader.readexactly(1000) == bytes(1000)
    assert not (await asyncio.wait([sending], timeout=0.3))[0]
    assert len(await reader.readexactly(size - 1000)) == size - 1000
    await sending
