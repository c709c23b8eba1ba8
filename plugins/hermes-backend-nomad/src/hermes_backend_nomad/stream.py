"""The streams of a program started by Nomad's `alloc exec`, over a websocket, as the stream of an agent.

Each frame is a JSON object with base64 data. Sent: {"stdin": {"data": …}}. Received: {"stdout": {"data": …}},
{"stderr": …}, {"stdout": {"close": true}} and finally {"exited": true, "result": {"exit_code": 3}}; exit code 0 is an
empty result.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import aiohttp

from hermes_sandbox.backends import AgentStream, CallbackReader

_PIECE: Final = 1 << 15
"""Maximum bytes of one frame; Nomad copies whole frames several times."""
_HIGH: Final = 1 << 18
"""Bytes in the send queue before a writer has to wait."""
HEARTBEAT: Final = 10.0
"""Seconds between empty frames, as in Nomad's own client, because proxies close idle connections."""
_LINGER: Final = 5.0
"""Seconds for a program to end after the end of its input, before the websocket is closed."""
_KEPT: Final = 8192
"""How many bytes at the end of the error output are kept for messages."""
_NO_PROGRAM: Final = frozenset({126, 127})
_RUNTIME: Final = b"OCI runtime exec failed"
"""The engine's message for a missing program; it is the first thing on standard output."""

Explain = Callable[[], Awaitable[str | None]]


class _Flow:
    """Pauses the reading of frames while their data is not consumed; the transport of a `CallbackReader`."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()

    def pause_reading(self) -> None:
        self._open.clear()

    def resume_reading(self) -> None:
        self._open.set()

    def is_reading(self) -> bool:
        return self._open.is_set()

    def is_closing(self) -> bool:
        return False

    async def await_open(self) -> None:
        if not self._open.is_set():
            await self._open.wait()


class ExecStream:
    """One program's streams. The object is also the writer and the writer's transport.

    Args:
        websocket: The connection.
        explain: Returns how the allocation ended; called when the connection ends.
        window: Seconds for which written bytes are collected.
        heartbeat: Seconds of silence after which an empty frame is sent.
    """

    def __init__(
        self,
        websocket: aiohttp.ClientWebSocketResponse,
        explain: Explain,
        *,
        window: float = 0.0,
        heartbeat: float = HEARTBEAT,
    ) -> None:
        self.reader = CallbackReader()
        self.exit_code: int | None = None
        self._websocket = websocket
        self._explain = explain
        self._window = window
        self._heartbeat = heartbeat
        self._flow = _Flow()
        self.reader.set_transport(self._flow)  # type: ignore[arg-type]  # the three methods that it calls
        self._said = bytearray()
        self._runtime = bytearray()
        self._has_output = False
        self._unsent = bytearray()
        self._is_closing = False
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._linger: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._sending = self._loop.create_task(self._send())
        self._receiving = self._loop.create_task(self._receive())

    def as_agent_stream(self, where: str = "") -> AgentStream:
        """Return the streams as an `AgentStream`; `where` follows "the agent" in messages."""
        return AgentStream(self.reader, self, self.last_words, where)

    async def last_words(self) -> str:
        """Return the end of what the program wrote to its standard error."""
        return bytes(self._runtime + self._said)[-_KEPT:].decode(errors="replace")

    # The writer.

    @property
    def transport(self) -> ExecStream:
        """This object, which can be aborted."""
        return self

    def write(self, data: bytes | memoryview, /) -> None:
        """Queue bytes; bytes after the end of the connection are dropped."""
        if self._is_closing:
            return
        self._unsent += data
        if len(self._unsent) > _HIGH:
            self._room.clear()
        self._wake.set()

    async def drain(self) -> None:
        """Wait until the queue has room.

        Raises:
            ConnectionResetError: The connection has ended.
        """
        await self._room.wait()
        if self._receiving.done():
            raise ConnectionResetError("the websocket has been closed")

    def is_closing(self) -> bool:
        """Return whether it was closed or aborted."""
        return self._is_closing

    def close(self) -> None:
        """Send the queued bytes and the end of the input; the program then has a few seconds to end."""
        if not self._is_closing:
            self._is_closing = True
            self._wake.set()
            self._linger = self._loop.call_later(_LINGER, self.abort)

    def abort(self) -> None:
        """Close the websocket at once, which ends the program's input."""
        self._is_closing = True
        self._unsent.clear()
        self._room.set()
        self._sending.cancel()
        self._receiving.cancel()

    async def wait_closed(self) -> None:
        """Wait until the websocket is closed."""
        await asyncio.wait((self._sending, self._receiving))

    # Sending.

    async def _send(self) -> None:
        with contextlib.suppress(ConnectionError, aiohttp.ClientError):  # the receiver reports the reason
            while not (self._is_closing and not self._unsent):
                if not self._unsent:
                    await self._beat()
                    continue
                if self._window:
                    await asyncio.sleep(self._window)
                await self._send_piece()
            await self._websocket.send_str('{"stdin":{"close":true}}')

    async def _send_piece(self) -> None:
        piece = bytes(self._unsent[:_PIECE])
        del self._unsent[:_PIECE]
        if len(self._unsent) <= _HIGH:
            self._room.set()
        # No JSON encoder is needed for base64.
        await self._websocket.send_str('{"stdin":{"data":"' + base64.b64encode(piece).decode("ascii") + '"}}')

    async def _beat(self) -> None:
        self._wake.clear()
        try:
            async with asyncio.timeout(self._heartbeat):
                await self._wake.wait()
        except TimeoutError:
            await self._websocket.send_str("{}")

    # Receiving.

    async def _receive(self) -> None:
        error: OSError | None = ConnectionAbortedError("the connection was aborted")
        try:
            error = await self._take_all()
        finally:
            self._is_closing = True
            self._room.set()
            self._wake.set()
            if self._linger is not None:
                self._linger.cancel()
            self._sending.cancel()
            self.reader.finish(error)
            await self._close_websocket()

    async def _close_websocket(self) -> None:
        # In a separate task: the caller of abort does not wait, and must not cancel it.
        closing = asyncio.ensure_future(self._websocket.close())
        with contextlib.suppress(aiohttp.ClientError, OSError):
            await asyncio.shield(closing)

    async def _take_all(self) -> OSError | None:
        """Read frames to the end; return the error that broke the stream, or None if the program ended by itself."""
        while True:
            await self._flow.await_open()
            message = await self._websocket.receive()
            if message.type is not aiohttp.WSMsgType.TEXT:
                return await self._end_of(message)
            try:
                self._take(json.loads(message.data))
            except (ValueError, TypeError, AttributeError, binascii.Error) as error:
                return ConnectionAbortedError(f"expected a frame of alloc exec from Nomad, got another: {error}")

    def _take(self, frame: Mapping[str, Any]) -> None:
        for name in ("stdout", "stderr"):
            data = (frame.get(name) or {}).get("data")
            if data:
                self._take_output(name, base64.b64decode(data, validate=True))
        if frame.get("exited"):
            self.exit_code = int((frame.get("result") or {}).get("exit_code", 0))

    def _take_output(self, name: str, data: bytes) -> None:
        if name == "stderr":
            self._said += data
            del self._said[:-_KEPT]
        elif self._runtime or (not self._has_output and data.startswith(_RUNTIME)):
            self._runtime += data
            del self._runtime[:-_KEPT]
        else:
            self._has_output = True
            self.reader.push(data)

    async def _end_of(self, message: aiohttp.WSMessage) -> OSError | None:
        if self.exit_code == 0:
            return None
        if self.exit_code in _NO_PROGRAM:
            said = (await self.last_words()).strip()
            return ConnectionAbortedError(f"the image lacks the program (exit code {self.exit_code}): {said}")
        why = await self._explain()
        if self.exit_code is not None:
            said = (await self.last_words()).strip()
            told = "; ".join(part for part in (why, said) if part)
            return ConnectionAbortedError(f"it ended with exit code {self.exit_code}{told and f': {told}'}")
        reason = str(message.extra or "") if message.type is aiohttp.WSMsgType.CLOSE else str(message.data or "")
        code = self._websocket.close_code
        return ConnectionAbortedError(
            why or f"the websocket of alloc exec was closed with code {code} {reason}".strip()
        )


async def run(
    websocket: aiohttp.ClientWebSocketResponse, explain: Explain, *, timeout: float
) -> tuple[int | None, str]:
    """Run a program without input; return its exit code, None if unknown, and its output."""
    stream = ExecStream(websocket, explain)
    stream.close()
    output = bytearray()
    over: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
    stream.reader.subscribe(output.extend, lambda error: None if over.done() else over.set_result(error))
    try:
        async with asyncio.timeout(timeout):
            error = await over
    finally:
        stream.abort()
        await stream.wait_closed()
    said = bytes(output).decode(errors="replace") + await stream.last_words()
    return stream.exit_code, said.strip() or str(error or "")
