"""A channel as a stream: bounded buffers on both sides, and it ends on request."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import sys
from pathlib import Path

import pytest

from hermes_backend_ssh.connection import SshConnection
from hermes_backend_ssh.options import SshOptions
from hermes_testing.watching import eventually

pytestmark = pytest.mark.component("sshd")
_SIZE = 64 << 20
_FLOOD = """
import os, sys
left = int(sys.argv[1])
while left:
    left -= os.write(1, bytes(min(left, 65536)))
    with open(sys.argv[2] + ".new", "w") as file:
        file.write(str(left))
    os.rename(sys.argv[2] + ".new", sys.argv[2])  # atomic, so a reader finds the whole number
"""


@pytest.fixture
async def connection(sshd):
    connection = await SshConnection.open(SshOptions(**sshd.options))
    yield connection
    await connection.aclose()


def sleeps(pid):
    """Tell whether a process waits for something; false of one that would run and has no processor."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"
    return True  # it has ended


def rests(server, look):
    """Return a condition: that many looks in a row have found the same thing, and found something.

    And whoever has to do with it at the other end slept each time.
    """
    seen, others = [], []

    def condition():
        found = look()
        if found and not others:
            others.extend([*server.sessions(), *server.agents()])
        seen.append(found if all(map(sleeps, others)) else None)
        return bool(seen[-1]) and seen[-25:] == 25 * seen[-1:]

    return condition


async def test_unread_output_waits_at_the_other_end(sshd, connection, tmp_path):
    left = tmp_path / "left"
    program = await connection.start(shlex.join(["exec", sys.executable, "-c", _FLOOD, str(_SIZE), str(left)]))
    assert await eventually(rests(sshd, lambda: left.read_text() if left.exists() else ""))
    # The window of the channel, the buffers on the way, and the reader's.
    assert int(left.read_text()) > _SIZE - (16 << 20)
    for _ in range(_SIZE >> 20):
        assert len(await program.stream.reader.readexactly(1 << 20)) == 1 << 20
    program.stream.writer.close()
    assert await program.wait(60)


async def test_unread_input_makes_the_writer_wait_and_is_dropped_by_an_abort(sshd, connection):
    program = await connection.start("exec sleep 600")
    writer = program.stream.writer
    writer.write(bytes(16 << 20))
    waiting = asyncio.ensure_future(writer.drain())
    assert await eventually(rests(sshd, writer.transport.get_write_buffer_size))
    assert not waiting.done()
    waiting.cancel()
    writer.transport.abort()
    assert writer.transport.is_closing()
    # The end of input reaches it although its input is full; it does not care, so it ends with the connection.
    assert not program.over
    await asyncio.wait_for(connection.aclose(), 60)
    await asyncio.wait_for(writer.wait_closed(), 60)


async def test_bytes_arrive_as_they_were_sent(connection):
    program = await connection.start("exec cat")
    reader, writer = program.stream.reader, program.stream.writer
    data = bytes(range(256)) * 40_000

    async def send():
        for start in range(0, len(data), 333_333):
            writer.write(data[start : start + 333_333])
            await writer.drain()

    sending = asyncio.ensure_future(send())
    assert await reader.readexactly(len(data)) == data
    await sending
    writer.close()
    assert await program.wait(60)
    await writer.wait_closed()


async def test_a_program_s_end_and_complaints_are_known(connection):
    assert (await connection.run("cat; exit 3", b"given", timeout=60)).output == b"given"
    ended = await connection.run("echo alas >&2; exit 3", timeout=60)
    assert (ended.status, ended.complaint) == (3, "alas")
