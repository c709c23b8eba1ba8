"""A channel as an asyncio stream: paramiko blocks, so two threads connect it to the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Final

from paramiko import Channel

_PIECE: Final = 1 << 18
"""Bytes per read from the channel."""
_AHEAD: Final = 4
"""Pieces queued for the event loop; more stay in the channel, and so at the other end."""
_PACKET: Final = 1 << 15
"""Bytes per send: the size of a packet for sshd, because `Channel.sendall` copies the rest after each packet."""
_HIGH: Final = 1 << 20
_LOW: Final = 1 << 18
_TICK: Final = 1.0
"""Seconds after which a waiting thread checks whether it should stop."""


class ChannelTransport(asyncio.Transport):
    """Connects a channel to an asyncio protocol, with back-pressure in both directions."""

    def __init__(self, channel: Channel, protocol: asyncio.StreamReaderProtocol) -> None:
        super().__init__()
        self._channel = channel
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._room = threading.Semaphore(_AHEAD)
        self._held = 0
        self._reading = True
        self._closing = False
        self._dropping = False
        self._lost = False
        self._written = 0
        self._sent = 0
        self._full = False
        channel.settimeout(_TICK)
        protocol.connection_made(self)
        for work in (self._receive, self._transmit):
            threading.Thread(target=work, name=f"hermes-ssh-{work.__name__}", daemon=True).start()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Queue bytes for the thread that sends them."""
        if self._closing or not data:
            return
        self._written += len(data)
        if not self._full and self.get_write_buffer_size() > _HIGH:
            # Set before the bytes are queued, so that the sending thread sees it.
            self._full = True
            self._protocol.pause_writing()
        self._outgoing.put(bytes(data))

    def get_write_buffer_size(self) -> int:
        """Return the number of unsent bytes."""
        return self._written - self._sent

    def can_write_eof(self) -> bool:
        """Return True: the end of input ends the agent."""
        return True

    def write_eof(self) -> None:
        """Send the end of input after everything that was written."""
        if not self._closing:
            self._closing = True
            self._outgoing.put(None)

    def close(self) -> None:
        """Send the end of input and drop further data; the other end then closes."""
        self.write_eof()

    def abort(self) -> None:
        """Drop unsent bytes and close."""
        self._dropping = True
        self.write_eof()
        self.resume_reading()

    def is_closing(self) -> bool:
        """Return whether the end was sent or queued."""
        return self._closing

    def pause_reading(self) -> None:
        """Stop reading from the channel until resumed."""
        self._reading = False

    def resume_reading(self) -> None:
        """Resume reading."""
        self._reading = True
        held, self._held = self._held, 0
        if held:
            self._room.release(held)

    def is_reading(self) -> bool:
        """Return whether reading is not paused."""
        return self._reading

    def _receive(self) -> None:
        data = b"-"
        while data:
            self._room.acquire()
            data = self._take()
            if not self._post(self._deliver, data):
                return

    def _take(self) -> bytes:
        while True:
            try:
                return self._channel.recv(_PIECE)
            except TimeoutError:
                continue
            except Exception:  # noqa: BLE001 - whatever paramiko raises here, the channel has ended
                return b""

    def _deliver(self, data: bytes) -> None:
        if not data:
            self._end_connection()
            return
        if not self._closing:
            self._protocol.data_received(data)
        if self._reading or self._closing:
            self._room.release()
        else:
            self._held += 1

    def _end_connection(self) -> None:
        if self._lost:
            return
        self._lost = True
        self.abort()
        self._protocol.eof_received()
        self._protocol.connection_lost(None)

    def _transmit(self) -> None:
        more = True
        while more:
            data, more = self._gather()
            try:
                self._send(data)
                if not more:
                    self._channel.shutdown_write()
            except Exception:  # noqa: BLE001 - whatever paramiko raises here, the channel takes nothing any more
                more = False
                self._post(self._end_connection)

    def _gather(self) -> tuple[memoryview, bool]:
        """Wait for bytes and take all written so far; the flag is False if the end follows them."""
        pieces = [self._outgoing.get()]
        with contextlib.suppress(queue.Empty):
            while pieces[-1] is not None:
                pieces.append(self._outgoing.get_nowait())
        data = [piece for piece in pieces if piece is not None]
        return memoryview(data[0] if len(data) == 1 else b"".join(data)), len(data) == len(pieces)

    def _send(self, data: memoryview) -> None:
        while data and not self._dropping:
            try:
                sent = self._channel.send(data[:_PACKET].tobytes())
            except TimeoutError:
                continue
            if not sent:
                raise ConnectionResetError("the channel is closed")
            data = data[sent:]
            self._sent += sent
            if self._full and self.get_write_buffer_size() < _LOW:
                self._post(self._resume_writing)

    def _resume_writing(self) -> None:
        if self._full and self.get_write_buffer_size() < _LOW:
            self._full = False
            self._protocol.resume_writing()

    def _post(self, callback: Callable[..., None], *arguments: bytes) -> bool:
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:  # the event loop is closed, so there is no receiver
            return False
        return True


def open_stream(channel: Channel) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a channel as a reader and a writer of the running event loop."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_PIECE, loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport = ChannelTransport(channel, protocol)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)
