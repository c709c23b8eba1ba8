"""Reads the pipes that a command writes to."""

from __future__ import annotations

import fcntl
import os
import struct
import termios

from hermes_sandbox.agent.basics.stdlib import TYPE_CHECKING
from hermes_sandbox.agent.commands.late_output import link_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_READ_SIZE = 1 << 16


def unread(fd: int) -> int:
    """Return how many bytes are in a pipe. Either of its ends can be passed."""
    (size,) = struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0" * 4))
    return int(size)


class Outputs:
    """Reads stdout (0) and stderr (1) of one command as they arrive. Merged, they are one pipe, read as stdout.

    `take` receives the bytes; `ended` is called at the end of each pipe.
    """

    def __init__(
        self,
        loop: Any,
        take: Callable[[int, bytes | memoryview], None],
        ended: Callable[[], None],
        *,
        merge_stderr: bool,
    ) -> None:
        self._merge_stderr = merge_stderr
        self._loop = loop
        self._take = take
        self._ended = ended
        self._pipes: dict[int, int] = {}

    def open(self) -> tuple[int, int]:
        """Return the write ends, which the caller must close. Merged, both are the same descriptor."""
        pairs = [os.pipe() for _ in range(1 if self._merge_stderr else 2)]
        for stream, (fd, _) in enumerate(pairs):
            self._pipes[fd] = stream
            os.set_blocking(fd, False)
            self._loop.watch(fd, self._readable)
        return pairs[0][1], pairs[-1][1]

    def __bool__(self) -> bool:
        return bool(self._pipes)

    def links(self) -> set[str]:
        """Return the kernel's names of the open pipes."""
        return {link_of(fd) for fd in self._pipes}

    def _readable(self, fd: int) -> None:
        try:
            data = os.read(fd, _READ_SIZE)
        except BlockingIOError:
            return
        if data:
            self._take(self._pipes[fd], data)
        else:
            self._loop.forget(fd)
            self._close(fd)

    def _close(self, fd: int) -> None:
        del self._pipes[fd]
        os.close(fd)
        self._ended()

    def drain(self) -> None:
        """Read what is in the pipes now, and no more: a child that keeps writing must not delay the answer."""
        for fd in list(self._pipes):
            rounds = unread(fd) // _READ_SIZE + 1
            while rounds and fd in self._pipes:
                self._readable(fd)
                rounds -= 1

    def release(self) -> None:
        """Drop all further output. It is still read, so that the writers do not block."""
        self._take = lambda _stream, _data: None
