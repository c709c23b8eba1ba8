"""The two pipes that a command writes to."""

from __future__ import annotations

import fcntl
import os
import struct
import termios
from collections import Counter
from collections.abc import Callable
from typing import Any

from hermes_sandbox.agent.commands.late_output import link_of
from hermes_sandbox.agent.commands.write_order import BULK_LIMIT, Bell, Listener, first_write

_READ_SIZE = 1 << 16
_BULK = 1 << 13
"""Bytes from which on reading packet by packet takes longer."""
_MANY = 200
"""Rounds of reading after which a command that writes that often gets wider pipes."""


def unread(fd: int) -> int:
    """Return how many bytes a pipe holds; either end will do."""
    (size,) = struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0" * 4))
    return int(size)


class Outputs:
    """Reads stdout (0) and stderr (1) of one command, as they come.

    `take` gets the bytes, `ended` is called when a pipe has come to its end.
    """

    def __init__(self, loop: Any, take: Callable[[int, bytes | memoryview], None], ended: Callable[[], None]) -> None:
        self._loop = loop
        self._take = take
        self._ended = ended
        self._pipes: dict[int, int] = {}

    def open(self) -> tuple[int, int]:
        """Return the ends to write to, which the caller has to close."""
        pairs = [self._pipe(), self._pipe()]
        for stream, (fd, _) in enumerate(pairs):
            self._pipes[fd] = stream
        self._begin()
        return pairs[0][1], pairs[1][1]

    def _pipe(self) -> tuple[int, int]:
        return os.pipe()

    def _begin(self) -> None:
        for fd in self._pipes:
            os.set_blocking(fd, False)
            self._loop.watch(fd, self._readable)

    def __bool__(self) -> bool:
        return bool(self._pipes)

    def links(self) -> set[str]:
        """Return what the kernel calls the pipes that are open."""
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
        """Read what is there now, and no more: a child that writes without end must not hold the answer."""
        for fd in list(self._pipes):
            rounds = unread(fd) // _READ_SIZE + 1
            while rounds and fd in self._pipes:
                self._readable(fd)
                rounds -= 1

    def settle(self) -> None:
        """Read what is there now and hold nothing back: the answer is being written."""
        self.drain()

    def release(self) -> None:
        """Read from now on only so as not to block the writers."""
        self._take = lambda _stream, _data: None


class OrderedOutputs(Outputs):
    """The same, where the bytes of both keep the order in which they were written."""

    def __init__(
        self, bell: Bell, loop: Any, take: Callable[[int, bytes | memoryview], None], ended: Callable[[], None]
    ) -> None:
        super().__init__(loop, take, ended)
        self._bell = bell
        self._waiting: dict[int, list[bytes]] = {}
        self._rounds = 0
        self._listener = Listener(self._hear)

    def _pipe(self) -> tuple[int, int]:
        return self._bell.pipe()

    def _begin(self) -> None:
        self._waiting = {fd: [] for fd in self._pipes}
        self._bell.listen(self._listener, self._pipes)

    def _hear(self) -> None:
        if not self._waiting:
            return  # released since
        self._rounds += 1
        if self._rounds == _MANY:
            for fd in self._pipes:
                self._bell.widen(fd)
        self._collect(everything=False)

    def _collect(self, *, everything: bool) -> None:
        before = {fd: unread(fd) for fd in self._pipes}
        self._bell.gather(self._listener)
        rings, lost = self._listener.take(), self._listener.lost
        self._listener.lost = False
        rung = set(rings) & self._pipes.keys()
        gone = []
        for fd in list(self._pipes) if everything or lost else rung:
            size = self._bell.take(fd)
            if size == 0:
                gone.append(fd)
            elif _BULK <= size <= BULK_LIMIT and rung == {fd} and size == before[fd] and not self._waiting[fd]:
                # What was there before the rings were counted has rung, so all of this is accounted for.
                self._take(self._pipes[fd], self._bell.bulk(size))
            elif size > 0:
                self._waiting[fd] += self._bell.packets(size)
        if gone:
            # Whoever has closed a pipe has rung before.
            self._bell.gather(self._listener)
            rings += self._listener.take()
        self._merge(rings)
        for fd in list(self._pipes) if lost else gone:
            self._flush(fd)
        self._bell.drop(gone)
        for fd in gone:
            del self._waiting[fd]
            self._close(fd)

    def _merge(self, rings: list[int]) -> None:
        left = Counter(rings)
        run: list[bytes] = []
        last = -1
        for fd in rings:
            waiting = self._waiting.get(fd)
            if waiting:
                if fd != last:
                    self._hand_over(last, run)
                    run, last = [], fd
                size = first_write(waiting, left[fd])
                run += waiting[:size]
                del waiting[:size]
            left[fd] -= 1
        self._hand_over(last, run)

    def _hand_over(self, fd: int, packets: list[bytes]) -> None:
        if packets:
            self._take(self._pipes[fd], b"".join(packets))

    def _flush(self, fd: int) -> None:
        self._hand_over(fd, self._waiting[fd])
        self._waiting[fd] = []

    def drain(self) -> None:
        """Read what is there now, as far as its order is known."""
        if self._waiting:
            self._collect(everything=True)
        else:
            super().drain()

    def settle(self) -> None:
        """Read what is there now and hold nothing back: the answer is being written."""
        self.drain()
        for fd in self._waiting:
            self._flush(fd)

    def release(self) -> None:
        """Read from now on only so as not to block the writers."""
        super().release()
        if not self._waiting:
            return
        self._bell.leave(self._waiting)
        for fd in self._waiting:
            self._bell.detach(fd)
            self._loop.watch(fd, self._readable)
        self._waiting = {}


def ordered_or_not(
    bell: Bell | None, loop: Any, take: Callable[[int, bytes | memoryview], None], ended: Callable[[], None]
) -> Outputs:
    """Return the pipes of a command, in the order of writes if there is a bell to tell it."""
    return Outputs(loop, take, ended) if bell is None else OrderedOutputs(bell, loop, take, ended)
