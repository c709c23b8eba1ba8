"""A program in a sandbox as the stream of an agent.

The SDK delivers output in pieces and sends input with one request at a time, which is confirmed by its answer. It loses
data written to its buffer during such a request, so the buffer is kept here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

from hermes_backend_modal.failures import SDK_ERRORS
from hermes_sandbox.backends import AgentStream

_PIECE: Final = 1 << 20
"""Bytes of one request, which takes a round trip."""
_AHEAD: Final = 1 << 20
"""Bytes of buffered output; more stay at the service, and so in the sandbox."""
_ROOM: Final = 1 << 20
"""Bytes of buffered input before `drain` waits."""
_KEPT: Final = 8192
"""How many bytes at the end of standard error are kept."""
_LONGEST_LINE: Final = 1 << 16
"""Maximum bytes of the first line of standard error; a longer line is truncated."""
_LAST_WORDS: Final = 1.0

Explain = Callable[[], Awaitable[str | None]]


class _Reading:
    """One output stream, read by a separate task, because an interrupted read would end the SDK's stream."""

    def __init__(self, source: AsyncIterator[bytes]) -> None:
        self.ready = bytearray()
        self.failure: Exception | None = None
        self._changed = asyncio.Condition()
        self._task = asyncio.ensure_future(self._run(source))

    @property
    def ended(self) -> bool:
        return self._task.done()

    async def _run(self, source: AsyncIterator[bytes]) -> None:
        try:
            async for data in source:
                async with self._changed:
                    self.ready += data
                    self._changed.notify_all()
                    await self._changed.wait_for(lambda: len(self.ready) < _AHEAD)
        except SDK_ERRORS as error:
            self.failure = error
        finally:
            # Not awaited: a waiter also checks the task.
            asyncio.get_running_loop().call_soon(self._wake)

    def _wake(self) -> None:
        self._waking = asyncio.ensure_future(self._notify())

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def wait_for(self, enough: Callable[[], bool]) -> bool:
        """Wait for enough bytes; return False if the stream ends before."""
        async with self._changed:
            await self._changed.wait_for(lambda: enough() or self.ended)
        return enough()

    async def take(self, size: int) -> bytes:
        """Take available bytes."""
        async with self._changed:
            data = bytes(self.ready[:size])
            del self.ready[:size]
            self._changed.notify_all()
        return data

    def cancel(self) -> None:
        """Stop reading."""
        self._task.cancel()


class ExecReader:
    """The program's standard output."""

    def __init__(self, source: AsyncIterator[bytes], explain: Explain) -> None:
        self.reading = _Reading(source)
        self._explain = explain

    async def readexactly(self, n: int, /) -> bytes:
        """Return n bytes; raise `IncompleteReadError` at the end, or `ConnectionAbortedError` with a known reason."""
        reading = self.reading
        if await reading.wait_for(lambda: len(reading.ready) >= min(n, _AHEAD)):
            return await self._whole(n)
        why = await self._explain() or (str(reading.failure) if reading.failure else None)
        if why is not None:
            raise ConnectionAbortedError(why)
        raise asyncio.IncompleteReadError(bytes(reading.ready), n)

    async def _whole(self, n: int) -> bytes:
        data = await self.reading.take(n)
        while len(data) < n:
            data += await self.readexactly(min(n - len(data), _AHEAD))
        return data


class ExecErrors:
    """The program's standard error: its first line, and the end of the rest for messages."""

    def __init__(self, source: AsyncIterator[bytes]) -> None:
        self._line: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        self._said = bytearray()
        self._task = asyncio.ensure_future(self._run(source))

    async def _run(self, source: AsyncIterator[bytes]) -> None:
        try:
            async for data in source:
                known = len(self._said)
                self._said += data
                if self._line.done():
                    del self._said[:-_KEPT]
                else:
                    self._look_for_line(known)
        except SDK_ERRORS as error:
            self._said += str(error).encode()
        finally:
            if not self._line.done():
                self._line.set_result(None)

    def _look_for_line(self, start: int) -> None:
        """End the first line at a newline from `start` on, or at the maximum length."""
        end = self._said.find(b"\n", start, _LONGEST_LINE + 1)
        if end >= 0 or len(self._said) > _LONGEST_LINE:
            cut = _LONGEST_LINE if end < 0 else end
            self._line.set_result(bytes(self._said[:cut]))
            del self._said[: cut + (end >= 0)]

    async def first_line(self) -> bytes | None:
        """Return the first line, truncated to 64 KiB, or None if the program ended before."""
        return await asyncio.shield(self._line)

    async def last_words(self) -> str:
        """Return the end of the output, after a short wait for the rest."""
        await asyncio.wait((self._task,), timeout=_LAST_WORDS)
        return self._said[-_KEPT:].decode(errors="replace")

    def cancel(self) -> None:
        """Stop reading."""
        self._task.cancel()


class ExecWriter:
    """The program's standard input."""

    def __init__(self, stdin: Any) -> None:
        self._stdin = stdin
        self._waiting = bytearray()
        self._closing = False
        self._failure: Exception | None = None
        self._sending: asyncio.Task[None] | None = None
        self._room = asyncio.Event()
        self._room.set()
        self._on_abort: Callable[[], None] = lambda: None

    @property
    def transport(self) -> ExecWriter:
        """The underlying transport, to abort an agent that no longer reads."""
        return self

    def on_abort(self, end: Callable[[], None]) -> None:
        """Call `end` on an abort of the stream."""
        self._on_abort = end

    def is_closing(self) -> bool:
        """Return whether the stream was closed or aborted."""
        return self._closing

    def write(self, data: bytes | memoryview, /) -> None:
        """Queue bytes."""
        if self._closing or self._failure is not None:
            return
        self._waiting += data
        if len(self._waiting) >= _ROOM:
            self._room.clear()
        self._send()

    def _send(self) -> None:
        if self._sending is None or self._sending.done():
            self._sending = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        try:
            while self._waiting:
                piece = bytes(self._waiting[:_PIECE])
                del self._waiting[:_PIECE]
                if len(self._waiting) < _ROOM:
                    self._room.set()
                self._stdin.write(piece)
                await self._stdin.drain.aio()
            if self._closing:
                self._stdin.write_eof()
                await self._stdin.drain.aio()
        except (*SDK_ERRORS, ValueError) as error:
            self._failure = error
        finally:
            self._room.set()

    async def drain(self) -> None:
        """Wait until there is room for more.

        Raises:
            ConnectionAbortedError: The program accepts no more input.
        """
        await self._room.wait()
        if self._failure is not None:
            raise ConnectionAbortedError(str(self._failure)) from self._failure

    def close(self) -> None:
        """End the input after all of it was sent, which makes the agent kill everything and exit."""
        if not self._closing:
            self._closing = True
            if self._failure is None:
                self._send()

    async def wait_closed(self) -> None:
        """Wait until the end of the input was sent."""
        if self._sending is not None:
            await asyncio.wait((self._sending,))
            if self._waiting and self._failure is None:
                self._send()

    def abort(self) -> None:
        """Stop sending and reading."""
        self._closing = True
        self._waiting.clear()
        self._room.set()
        if self._sending is not None:
            self._sending.cancel()
        self._on_abort()


class ExecStream:
    """All three streams of a program; `stream` is their `AgentStream`."""

    def __init__(self, process: Any, explain: Explain, *, where: str = "") -> None:
        self._reader = ExecReader(aiter(process.stdout), explain)
        self.errors = ExecErrors(aiter(process.stderr))
        self._writer = ExecWriter(process.stdin)
        self._writer.on_abort(self._stop_reading)
        self.stream = AgentStream(self._reader, self._writer, self.errors.last_words, where)

    def _stop_reading(self) -> None:
        self._reader.reading.cancel()
        self.errors.cancel()

    async def aclose(self) -> None:
        """Abort all streams at once."""
        tasks = [self._reader.reading._task, self.errors._task, self._writer._sending]  # noqa: SLF001 - its own parts
        self._writer.abort()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*(task for task in tasks if task is not None), return_exceptions=True)
