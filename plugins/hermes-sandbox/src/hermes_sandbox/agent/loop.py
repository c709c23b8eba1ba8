"""The agent's event loop: descriptors, timers, ended children, and answers in pieces."""

from __future__ import annotations

import os
import select
import time

from hermes_sandbox.agent.basics.stdlib import TYPE_CHECKING, heapify, heappop, heappush, signal, suppress
from hermes_sandbox.agent.processes import reap

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

_BACKLOG = 1 << 20
"""Unsent bytes above which producers of more are paused."""
_LONGEST = 3600.0
_AT_ONCE = 1 << 18


class Loop:
    """Waits for all events in a single thread; callbacks must not block."""

    def __init__(self, source: int, sink: int) -> None:
        self.running = True
        self._source = source
        self._sink = sink
        self._outgoing = bytearray()
        self._epoll = select.epoll()
        self._watched: dict[int, int] = {}
        self._readers: dict[int, Callable[[int], None]] = {}
        self._writers: dict[int, Callable[[int], None]] = {}
        self._alarms: dict[int, Callable[[], None]] = {}
        # Sorted by their time; cancelled ones stay until then, which is cheaper than finding them.
        self._schedule: list[tuple[float, int]] = []
        self._handles = 0
        self._children: dict[int, Callable[[int], None]] = {}
        self._producers: dict[Any, Generator[None, None, None]] = {}
        self._woken, waker = os.pipe()
        for fd in (source, sink, self._woken, waker):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        # Without a handler, Python would not write the signal to the waker.
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        self.watch(self._woken, self._reap)

    def watch(self, fd: int, callback: Callable[[int], None]) -> None:
        """Call back whenever a descriptor is readable."""
        self._readers[fd] = callback
        self._select(fd)

    def forget(self, fd: int) -> None:
        """Stop watching a descriptor for reading."""
        del self._readers[fd]
        self._select(fd)

    def watch_room(self, fd: int, callback: Callable[[int], None]) -> None:
        """Call back whenever a descriptor is writable."""
        self._writers[fd] = callback
        self._select(fd)

    def forget_room(self, fd: int) -> None:
        """Stop watching a descriptor for writing, if it was watched."""
        if self._writers.pop(fd, None) is not None:
            self._select(fd)

    def watch_changes(self, fd: int, callback: Callable[[int], None]) -> None:
        """Call back when new data or an end arrives, and not again for the same data."""
        self._readers[fd] = callback
        self._watched[fd] = select.EPOLLIN | select.EPOLLET
        self._epoll.register(fd, self._watched[fd])

    def _select(self, fd: int) -> None:
        events = select.EPOLLIN * (fd in self._readers) | select.EPOLLOUT * (fd in self._writers)
        if not events:
            del self._watched[fd]
            with suppress(OSError):  # it may be closed already
                self._epoll.unregister(fd)
        elif fd in self._watched:
            self._epoll.modify(fd, events)
            self._watched[fd] = events
        else:
            self._epoll.register(fd, events)
            self._watched[fd] = events

    def after(self, seconds: float, callback: Callable[[], None]) -> int:
        """Call back once, after some seconds; returns a handle for `cancel`."""
        self._handles += 1
        self._alarms[self._handles] = callback
        heappush(self._schedule, (time.monotonic() + seconds, self._handles))
        return self._handles

    def cancel(self, handle: int) -> None:
        """Cancel a timer, if it is not over."""
        self._alarms.pop(handle, None)
        if len(self._schedule) > 2 * len(self._alarms) + 64:
            self._schedule = [entry for entry in self._schedule if entry[1] in self._alarms]
            heapify(self._schedule)

    def on_exit(self, pid: int, callback: Callable[[int], None]) -> None:
        """Call back with the wait status when a child ends."""
        self._children[pid] = callback

    def produce(self, key: Any, steps: Generator[None, None, None]) -> None:
        """Advance a producer of answers, a step at a time, as fast as the client reads."""
        self._producers[key] = steps

    def abandon(self, key: Any) -> bool:
        """Remove a producer; False if it has already finished."""
        steps = self._producers.pop(key, None)
        if steps is None:
            return False
        steps.close()
        return True

    def send(self, head: bytes, body: bytes = b"") -> None:
        """Send bytes to the client; bytes that it does not take at once are queued."""
        sent = 0
        if not self._outgoing:
            with suppress(OSError):  # its end is noticed below
                sent = os.writev(self._sink, (head, body))
        if sent < len(head) + len(body):
            self._outgoing += memoryview(head)[sent:]
            self._outgoing += memoryview(body)[max(0, sent - len(head)) :]
            self._flush()

    def waiting(self) -> int:
        """Return how many bytes the client has not taken yet; senders of unsolicited frames pause by this number."""
        return len(self._outgoing)

    def hand_over(self) -> None:
        """Send everything queued, however long it takes, and make the stream blocking again for another program."""
        for fd in (self._source, self._sink):
            os.set_blocking(fd, True)
        self._flush()

    def _flush(self) -> None:
        while self._outgoing:
            try:
                sent = os.write(self._sink, memoryview(self._outgoing)[:_AT_ONCE])
            except BlockingIOError:
                return
            except OSError:
                # The client is gone, which ends the loop as an end of input does.
                self.running = False
                return
            del self._outgoing[:sent]

    def _reap(self, fd: int) -> None:
        os.read(fd, 4096)
        self.collect()

    def collect(self) -> None:
        """Reap every ended child, and call back those who wait for it."""
        for pid, status in reap():
            callback = self._children.pop(pid, None)
            if callback is not None:
                callback(status)

    def _ring(self) -> float | None:
        now = time.monotonic()
        while self._schedule and (self._schedule[0][0] <= now or self._schedule[0][1] not in self._alarms):
            callback = self._alarms.pop(heappop(self._schedule)[1], None)
            if callback is not None:
                callback()
        # Waking up now and then costs nothing; a far timer would exceed what the system can wait for.
        return max(0.0, min(_LONGEST, self._schedule[0][0] - now)) if self._schedule else None

    def _advance(self) -> None:
        for key, steps in list(self._producers.items()):
            if next(steps, self) is self:
                self._producers.pop(key, None)

    def _call_back(self, timeout: float | None) -> None:
        ready = []
        for fd, events in self._epoll.poll(timeout):
            # Errors and ends are reported to both, since the next attempt of either will see them.
            if events & ~select.EPOLLOUT and fd in self._readers:
                ready.append((fd, self._readers, self._readers[fd]))
            if events & ~select.EPOLLIN and fd in self._writers:
                ready.append((fd, self._writers, self._writers[fd]))
        for fd, watched, callback in ready:
            # An earlier callback of this round may have closed it, and another descriptor may have its number.
            if watched.get(fd) is callback:
                callback(fd)

    def run(self) -> None:
        """Run until the client is gone."""
        while self.running:
            timeout = self._ring()
            held_back = len(self._outgoing) > _BACKLOG
            if self._producers and not held_back:
                timeout = 0.0
            if bool(self._outgoing) != (self._sink in self._writers):
                if self._outgoing:
                    self.watch_room(self._sink, lambda _fd: self._flush())
                else:
                    self.forget_room(self._sink)
            self._call_back(timeout)
            if not held_back:
                self._advance()
