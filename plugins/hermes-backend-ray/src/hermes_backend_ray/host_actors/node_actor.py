"""The host actor's class: runs inside a Ray worker on each node, starts programs there and carries their bytes.

It is pickled by value, so that a node needs Ray but none of our packages. It imports only the standard library.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import PIPE, Process
from typing import Any

PIECE = 1 << 18
"""How many bytes are read from a stream at once."""
SAID = 1 << 14
"""How many bytes are kept from the end of a program's standard error."""
GONE = (OSError, RuntimeError)
"""Exceptions of a stream whose other end is closed; uvloop, which Ray prefers, raises the second."""
GUARDED = 'exec 3<&0; /bin/sh -c "$1" 0<&3 3<&- & exec 0</dev/null 3<&-; wait $!'
"""Runs a command as a grandchild, because a Ray worker that ends kills its children. A killed agent cannot end the
processes it has started; an agent that sees the end of its input does."""
TOKEN = 32
"""Length of the token that assigns a connection to a program."""
UNCLAIMED = 30.0
"""Seconds in which the caller must connect to a program that it has started."""


class Program:
    """A running program."""

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self.input = process.stdin
        self.output = process.stdout
        self.said = bytearray()
        self.listening = asyncio.ensure_future(self._listen())
        self.serving: asyncio.Task[Any] | None = None

    async def _listen(self) -> None:
        assert self.process.stderr is not None
        while data := await self.process.stderr.read(PIECE):
            self.said = (self.said + data)[-SAID:]

    def kill(self) -> None:
        """Kill it with its process group."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def end_input(self) -> None:
        """Signal the end of the input."""
        with contextlib.suppress(*GONE):
            self.input.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry the program's bytes over a connection until both directions have ended."""
        await asyncio.gather(self._take(reader), self._give(writer))

    async def _take(self, reader: asyncio.StreamReader) -> None:
        try:
            while data := await reader.read(PIECE):
                self.input.write(data)
                await self.input.drain()
        except GONE:
            pass
        self.end_input()

    async def _give(self, writer: asyncio.StreamWriter) -> None:
        while data := await self.output.read(PIECE):
            # The output is still read after the caller has disconnected, so that the program can end.
            if not writer.is_closing():
                with contextlib.suppress(*GONE):
                    writer.write(data)
                    await writer.drain()
        writer.close()


async def spawn(*arguments: str) -> Process:
    """Start a shell with these arguments in a separate session."""
    return await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", *arguments,
        stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True, limit=PIECE, cwd="/",
    )  # fmt: skip


async def feed(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Write all data and the end of the stream, as far as the receiver reads it."""
    with contextlib.suppress(*GONE):
        writer.write(data)
        await writer.drain()
    with contextlib.suppress(*GONE):
        writer.close()


class NodeActor:
    """The host actor on a node. Every method is a coroutine, so that the actor serves many calls at once."""

    def __init__(self) -> None:
        self._programs: dict[int, Program] = {}
        self._claims: dict[bytes, Program] = {}
        self._number = 0
        self._server: asyncio.Server | None = None
        self._left = asyncio.Event()

    async def watch(self) -> None:
        """Return after `leave`; if the call fails earlier, the node or the actor is lost."""
        await self._left.wait()

    async def leave(self) -> None:
        """Kill every program and let `watch` return; afterwards the caller ends the actor."""
        for program in self._programs.values():
            program.kill()
        if self._server is not None:
            self._server.close()
        self._left.set()

    async def run(self, command: str, data: bytes, timeout: float) -> tuple[int, bytes, bytes] | None:
        """Run a command to its end and return status, standard output and standard error; None if it took too long."""
        process = await spawn(command)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            async with asyncio.timeout(timeout):
                output, complaint, _ = await asyncio.gather(
                    process.stdout.read(), process.stderr.read(), feed(process.stdin, data)
                )
                status = await process.wait()
        except TimeoutError:
            return None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        return status, output, complaint[-SAID:]

    async def start(self, command: str, address: str, token: bytes) -> tuple[int, int]:
        """Start a command; return its number, and the port of `address` that expects a connection with `token`."""
        port = await self._listen(address)
        program = Program(await spawn(GUARDED, "sh", command))
        self._number += 1
        self._programs[self._number] = program
        self._claims[token] = program
        asyncio.get_running_loop().call_later(UNCLAIMED, self._give_up, token)
        return self._number, port

    def _give_up(self, token: bytes) -> None:
        program = self._claims.pop(token, None)
        if program is not None:
            program.end_input()
            program.kill()

    async def _listen(self, address: str) -> int:
        if self._server is None:
            self._server = await asyncio.start_server(self._accept, address, 0, limit=PIECE)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        program = None
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
            token = await asyncio.wait_for(reader.readexactly(TOKEN), UNCLAIMED)
            program = self._claims.pop(token, None)
        if program is None:
            writer.close()
            return
        await program.serve(reader, writer)

    async def wait(self, number: int, seconds: float) -> int | None:
        """Return the exit status of a program if it ends within `seconds`, or else None."""
        program = self._programs.get(number)
        if program is None:
            return None
        try:
            async with asyncio.timeout(seconds):
                return await program.process.wait()
        except TimeoutError:
            return None

    async def last_words(self, number: int) -> bytes:
        """Return the end of a program's standard error, once the program has ended or after one second."""
        program = self._programs[number]
        await asyncio.wait((program.listening,), timeout=1.0)
        return bytes(program.said)

    async def drop(self, number: int) -> None:
        """Kill a program and forget it."""
        program = self._programs.pop(number, None)
        if program is not None:
            program.kill()
            program.end_input()
