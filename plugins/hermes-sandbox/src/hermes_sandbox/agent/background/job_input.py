"""Writes the input of a background process: in order, at its pace, without blocking the agent."""

from __future__ import annotations

import os

from hermes_sandbox.agent.basics.stdlib import TYPE_CHECKING, suppress

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_PATIENCE = 2.0
"""Seconds without progress after which a write is answered with the number of bytes taken so far."""


class _Write:
    def __init__(self, data: bytes, answer: Any) -> None:
        self.left = memoryview(data)
        self.taken = 0
        self.answer = answer


class JobInput:
    """The writing end of a pipe or of a terminal; `close` waits for earlier writes."""

    def __init__(self, loop: Any, fd: int) -> None:
        self._loop = loop
        self._fd = fd
        self._waiting: list[_Write] = []
        self._alarm = 0
        self._watched = False
        self._closing = False
        os.set_blocking(fd, False)

    def write(self, data: bytes, answer: Any) -> Callable[[], None]:
        """Write the bytes, answer how many were taken, and return a function that cancels the rest."""
        entry = _Write(data, answer)
        if self._closing or self._fd < 0:
            answer({"taken": 0, "broken": True}, b"")
            return lambda: None
        self._waiting.append(entry)
        self._push(self._fd)
        return lambda: self._withdraw(entry)

    def close(self) -> None:
        """End the input after everything is written."""
        self._closing = True
        if not self._waiting:
            self._shut()

    def abandon(self) -> None:
        """End the input now; waiting writes are answered as broken."""
        self._closing = True
        self._break()

    def _push(self, _fd: int) -> None:
        progress = False
        try:
            while self._waiting:
                entry = self._waiting[0]
                while entry.left:
                    count = os.write(self._fd, entry.left)
                    entry.left = entry.left[count:]
                    entry.taken += count
                    progress = True
                self._finish(self._waiting.pop(0), broken=False)
        except BlockingIOError:
            self._wait_for_room(progress=progress)
            return
        except OSError:
            self._break()
            return
        self._rest()

    def _wait_for_room(self, *, progress: bool) -> None:
        if not self._watched:
            self._watched = True
            self._loop.watch_room(self._fd, self._push)
        if progress or not self._alarm:
            self._loop.cancel(self._alarm)
            self._alarm = self._loop.after(_PATIENCE, self._give_up)

    def _rest(self) -> None:
        self._unwatch()
        if self._closing:
            self._shut()

    def _unwatch(self) -> None:
        self._loop.cancel(self._alarm)
        self._alarm = 0
        if self._watched:
            self._watched = False
            self._loop.forget_room(self._fd)

    def _give_up(self) -> None:
        self._alarm = 0
        waiting, self._waiting = self._waiting, []
        for entry in waiting:
            self._finish(entry, broken=False)
        self._rest()

    def _withdraw(self, entry: _Write) -> None:
        if entry in self._waiting:
            self._waiting.remove(entry)
            self._finish(entry, broken=False, cancelled=True)
            if not self._waiting:
                self._rest()

    def _break(self) -> None:
        self._shut()
        waiting, self._waiting = self._waiting, []
        for entry in waiting:
            self._finish(entry, broken=True)

    def _shut(self) -> None:
        self._unwatch()
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with suppress(OSError):
                os.close(fd)

    def _finish(self, entry: _Write, *, broken: bool, cancelled: bool = False) -> None:
        values: dict[str, Any] = {"taken": entry.taken, "broken": broken}
        if cancelled:
            values["cancelled"] = True
        entry.answer(values, b"")
