"""A proxy port of a slot: each connection to it is relayed to the client as a tunnel of frames.

Each end of a tunnel may have `TUNNEL_WINDOW` bytes in flight that the other has not taken; `tunnel_credit` frames
report taken bytes. An empty `tunnel_data` ends one direction, `tunnel_close` both.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections import deque

from hermes_sandbox.agent.basics.stdlib import TYPE_CHECKING, suppress
from hermes_sandbox.agent.loop import Loop
from hermes_sandbox.agent.slot import Slot

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

TUNNEL_WINDOW = 1 << 18
TUNNELS_MAX = 256
_CHUNK = 1 << 16
_EVENTS = 64
_LINGER = 5.0
"""Seconds for a program to close a connection after everything was delivered; what it sends then is dropped."""
_PAUSE = 0.2
_RATE = 200.0
"""Average connections a second; each costs the caller, whose event loop serves others too, a task."""
_RESET = struct.pack("ii", 1, 0)


class _Tunnel:
    def __init__(self, number: int, connection: socket.socket) -> None:
        self.number = number
        self.connection = connection
        self.credit = TUNNEL_WINDOW
        self.inbox = bytearray()
        self.taken = 0
        self.reading = True
        self.queued = False
        self.ending = False
        self.closing = False

    def wanted_events(self) -> int:
        readable = self.reading and not self.queued and (self.credit > 0 or self.closing)
        return (select.EPOLLIN if readable else 0) | (select.EPOLLOUT if self.inbox else 0)


class Tunnels:
    """The connections of one slot. `emit` sends a frame to the client: event name, tunnel number, further fields, body.

    More than `TUNNELS_MAX` connections wait in the port's queue. Data is read like a producer of the loop:
    as fast as the client reads, and only if it has room.
    """

    def __init__(self, loop: Loop, emit: Callable[[str, int, dict[str, Any], bytes], None]) -> None:
        self._loop = loop
        self._emit = emit
        self._tunnels: dict[int, _Tunnel] = {}
        self._by_fd: dict[int, _Tunnel] = {}
        self._last = 0
        self._due: deque[_Tunnel] = deque()
        self._pumping = False
        self._accepting = True
        self._tokens = float(TUNNELS_MAX)
        self._counted = time.monotonic()
        # A poll within the loop's: for the loop, all connections are one descriptor, which can also be paused.
        self._poll = select.epoll()
        self._listener = socket.socket()
        try:
            self._listener.bind(("127.0.0.1", 0))
            self._listener.listen(128)
            self._listener.setblocking(False)
            self._poll.register(self._listener.fileno(), select.EPOLLIN)
            loop.watch(self._poll.fileno(), self._ready)
        except BaseException:
            self._listener.close()
            self._poll.close()
            raise
        self.port: int = self._listener.getsockname()[1]

    def close(self) -> None:
        """Close every connection and the port."""
        self._loop.forget(self._poll.fileno())
        self._due.clear()
        for tunnel in list(self._tunnels.values()):
            self._remove(tunnel)
        self._accepting = False
        self._listener.close()
        self._poll.close()

    def data(self, number: int, body: bytes) -> None:
        """Deliver bytes to a program; no bytes end its input."""
        tunnel = self._tunnels.get(number)
        if tunnel is None:
            return  # It was closed here, but the client does not know yet.
        tunnel.inbox += body
        tunnel.ending = tunnel.ending or not body
        self._write(tunnel)

    def credit(self, number: int, size: int) -> None:
        """Note that the client has taken bytes."""
        tunnel = self._tunnels.get(number)
        if tunnel is not None:
            tunnel.credit += size
            self._arm(tunnel)

    def finish(self, number: int, *, broken: bool) -> None:
        """Close a tunnel after the rest was delivered; reset a broken one at once, so that the program notices."""
        tunnel = self._tunnels.get(number)
        if tunnel is None:
            return
        if broken:
            with suppress(OSError):
                tunnel.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._remove(tunnel)
            return
        tunnel.ending = tunnel.closing = True
        self._write(tunnel)

    def _ready(self, _fd: int) -> None:
        for fd, events in self._poll.poll(0, _EVENTS):
            if fd == self._listener.fileno():
                self._accept()
                continue
            tunnel = self._by_fd.get(fd)
            if tunnel is None:
                continue  # removed by an earlier event of this round
            if tunnel.inbox:
                self._write(tunnel)
            if tunnel.number in self._tunnels and tunnel.reading and events & ~select.EPOLLOUT:
                self._enqueue(tunnel)
            self._arm(tunnel)

    def _accept(self) -> None:
        now = time.monotonic()
        self._tokens = min(float(TUNNELS_MAX), self._tokens + (now - self._counted) * _RATE)
        self._counted = now
        if self._tokens < 1:
            self._pause(after=_PAUSE)
            return
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError:
            # No descriptor is left, most likely.
            self._pause(after=_PAUSE)
            return
        self._tokens -= 1
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._last += 1
        tunnel = _Tunnel(self._last, connection)
        self._tunnels[tunnel.number] = self._by_fd[connection.fileno()] = tunnel
        # One event, and then none until it is re-armed: a broken connection would be reported forever.
        self._poll.register(connection.fileno(), tunnel.wanted_events() | select.EPOLLONESHOT)
        self._emit("tunnel_open", tunnel.number, {}, b"")
        if len(self._tunnels) >= TUNNELS_MAX:
            self._pause()

    def _pause(self, after: float | None = None) -> None:
        self._accepting = False
        self._poll.modify(self._listener.fileno(), 0)
        if after is not None:
            self._loop.after(after, self._resume)

    def _resume(self) -> None:
        if not self._accepting and not self._poll.closed and len(self._tunnels) < TUNNELS_MAX:
            self._accepting = True
            self._poll.modify(self._listener.fileno(), select.EPOLLIN)

    def _arm(self, tunnel: _Tunnel) -> None:
        wanted = tunnel.wanted_events()
        if wanted and tunnel.number in self._tunnels:
            self._poll.modify(tunnel.connection.fileno(), wanted | select.EPOLLONESHOT)

    def _enqueue(self, tunnel: _Tunnel) -> None:
        if tunnel.queued or not (tunnel.credit > 0 or tunnel.closing):
            return
        tunnel.queued = True
        self._due.append(tunnel)
        if not self._pumping:
            self._pumping = True
            self._loop.produce(("tunnels", self._poll.fileno()), self._pump())

    def _pump(self) -> Generator[None, None, None]:
        while self._due:
            tunnel = self._due.popleft()
            tunnel.queued = False
            if tunnel.number in self._tunnels:
                self._read(tunnel)
                self._arm(tunnel)
            yield
        self._pumping = False

    def _read(self, tunnel: _Tunnel) -> None:
        try:
            data = tunnel.connection.recv(_CHUNK if tunnel.closing else min(_CHUNK, tunnel.credit))
        except BlockingIOError:
            return
        except OSError:
            self._break(tunnel)
            return
        tunnel.reading = bool(data)
        if not tunnel.closing:
            tunnel.credit -= len(data)
            self._emit("tunnel_data", tunnel.number, {}, data)
        elif not data and not tunnel.inbox:
            self._remove(tunnel)

    def _write(self, tunnel: _Tunnel) -> None:
        try:
            while tunnel.inbox:
                size = tunnel.connection.send(memoryview(tunnel.inbox)[:TUNNEL_WINDOW])
                del tunnel.inbox[:size]
                tunnel.taken += size
        except BlockingIOError:
            pass
        except OSError:
            self._break(tunnel)
            return
        if tunnel.taken >= TUNNEL_WINDOW // 4:
            self._emit("tunnel_credit", tunnel.number, {"size": tunnel.taken}, b"")
            tunnel.taken = 0
        if tunnel.ending and not tunnel.inbox:
            self._end_writing(tunnel)
        self._arm(tunnel)

    def _end_writing(self, tunnel: _Tunnel) -> None:
        with suppress(OSError):
            tunnel.connection.shutdown(socket.SHUT_WR)
        if tunnel.closing and not tunnel.reading:
            self._remove(tunnel)
        elif tunnel.closing:
            # If it were closed with unread data, the system would report a broken connection to the program.
            self._loop.after(_LINGER, lambda: self._remove(tunnel))

    def _break(self, tunnel: _Tunnel) -> None:
        if not tunnel.closing:
            self._emit("tunnel_close", tunnel.number, {}, b"")
        self._remove(tunnel)

    def _remove(self, tunnel: _Tunnel) -> None:
        if self._tunnels.pop(tunnel.number, None) is None:
            return
        fd = tunnel.connection.fileno()
        del self._by_fd[fd]
        self._poll.unregister(fd)
        tunnel.connection.close()
        tunnel.inbox.clear()
        self._resume()


def listen_for_tunnels(slot: Slot, request: dict[str, Any], _body: bytes) -> dict[str, Any]:
    """Open the slot's proxy port and set it in the environment of processes started from now on."""

    def emit(event: str, number: int, values: dict[str, Any], body: bytes) -> None:
        slot.tell(event, {"tunnel": number, **values}, body)

    before = slot.features.pop("tunnels", None)
    if before is not None:
        before.close()
    tunnels = slot.features["tunnels"] = Tunnels(slot.loop, emit)
    url = f"http://{request['credentials']}@127.0.0.1:{tunnels.port}"
    slot.environment.update(dict.fromkeys(request["names"], url))
    return {"port": tunnels.port}


def relay_to_tunnel(slot: Slot, request: dict[str, Any], body: bytes) -> dict[str, Any]:
    """Apply a client's frame to a tunnel; ignore it if the tunnel is gone."""
    tunnels = slot.features.get("tunnels")
    if tunnels is None:
        return {}
    number, operation = request["tunnel"], request["op"]
    if operation == "tunnel_data":
        tunnels.data(number, body)
    elif operation == "tunnel_credit":
        tunnels.credit(number, request["size"])
    else:
        tunnels.finish(number, broken=request["broken"])
    return {}


CALLS = {
    "tunnel_listen": listen_for_tunnels,
    **dict.fromkeys(("tunnel_data", "tunnel_credit", "tunnel_close"), relay_to_tunnel),
}
