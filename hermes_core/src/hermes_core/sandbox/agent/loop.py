"""The agent's event loop: descriptors, alarms, ended children, and answers that come in pieces."""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Callable, Generator
from typing import Any

from hermes_core.sandbox.agent.processes import reap

_BACKLOG = 1 << 20
"""Bytes that may wait for the client before producers of more are held back."""
_LONGEST = 3600.0


class Loop:
    """A single thread that waits for everything at once; nothing in it may block."""

    def __init__(self, source: int, sink: int) -> None:
        self.running = True
        self._sink = sink
        self._outgoing = bytearray()
        self._selector = selectors.DefaultSelector()
        self._alarms: dict[int, tuple[float, Callable[[], None]]] = {}
        self._handles = 0
        self._children: dict[int, Callable[[int], None]] = {}
        self._producers: dict[Any, Generator[None, None, None]] = {}
        self._woken, waker = os.pipe()
        for fd in (source, sink, self._woken, waker):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        # Without a handler of its own, the signal would not be written to the waker.
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        self.watch(self._woken, self._reap)

    def watch(self, fd: int, callback: Callable[[int], None]) -> None:
        """Call back whenever there is something to read."""
        self._selector.register(fd, selectors.EVENT_READ, callback)

    def forget(self, fd: int) -> None:
        """Stop watching a descriptor."""
        self._selector.unregister(fd)

    def after(self, seconds: float, callback: Callable[[], None]) -> int:
        """Call back once, later; returns a handle for `cancel`."""
        self._handles += 1
        self._alarms[self._handles] = (time.monotonic() + seconds, callback)
        return self._handles

    def cancel(self, handle: int) -> None:
        """Drop an alarm, if it has not gone off."""
        self._alarms.pop(handle, None)

    def on_exit(self, pid: int, callback: Callable[[int], None]) -> None:
        """Call back with the wait status when a child has ended."""
        self._children[pid] = callback

    def produce(self, key: Any, steps: Generator[None, None, None]) -> None:
        """Advance a producer of answers, a step at a time, as fast as the client reads."""
        self._producers[key] = steps

    def abandon(self, key: Any) -> bool:
        """Drop a producer; False if it has already finished."""
        steps = self._producers.pop(key, None)
        if steps is None:
            return False
        steps.close()
        return True

    def send(self, data: bytes) -> None:
        """Queue bytes for the client."""
        self._outgoing += data
        self._flush()

    def _flush(self) -> None:
        while self._outgoing:
            try:
                sent = os.write(self._sink, memoryview(self._outgoing)[: 1 << 18])
            except BlockingIOError:
                return
            except OSError:
                # Nobody listens any more: the end, as an end of input would be.
                self.running = False
                return
            del self._outgoing[:sent]

    def _reap(self, fd: int) -> None:
        os.read(fd, 4096)
        for pid, status in reap():
            callback = self._children.pop(pid, None)
            if callback is not None:
                callback(status)

    def _ring(self) -> float | None:
        now = time.monotonic()
        for handle, (when, callback) in list(self._alarms.items()):
            if when <= now and self._alarms.pop(handle, None) is not None:
                callback()
        # Waking up now and then costs nothing; an alarm far away would be more than the system can wait for.
        return max(0.0, min(_LONGEST, *(when - now for when, _ in self._alarms.values()))) if self._alarms else None

    def _advance(self) -> None:
        for key, steps in list(self._producers.items()):
            if next(steps, self) is self:
                self._producers.pop(key, None)

    def run(self) -> None:
        """Work until the client has gone."""
        writing = False
        while self.running:
            timeout = self._ring()
            held_back = len(self._outgoing) > _BACKLOG
            if self._producers and not held_back:
                timeout = 0.0
            if bool(self._outgoing) != writing:
                writing = not writing
                if writing:
                    self._selector.register(self._sink, selectors.EVENT_WRITE, lambda _fd: self._flush())
                else:
                    self._selector.unregister(self._sink)
            for key, _ in self._selector.select(timeout):
                # An earlier callback of this round may have closed it.
                if self._selector.get_map().get(key.fd) is key:
                    key.data(key.fd)
            if not held_back:
                self._advance()
