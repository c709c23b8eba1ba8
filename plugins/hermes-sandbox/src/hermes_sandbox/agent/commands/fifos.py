"""Named pipes, which the running shell of a live session opens for each command."""

from __future__ import annotations

import os
import stat

from hermes_sandbox.agent.basics.stdlib import TYPE_CHECKING, suppress
from hermes_sandbox.agent.commands.outputs import Outputs
from hermes_sandbox.agent.commands.script import quote

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_PIECE = 1 << 16
_PIECES = 18
"""Pieces that are read before other events are handled: more than a pipe can hold, even if a writer enlarged it."""
_SOON = 0.002
"""Seconds after which a command's pipes are watched. A command that ends earlier costs only two reads."""


class NamedPipes:
    """The two pipes of a session's commands. They are replaced if a process still writes to them or a name is gone."""

    def __init__(self, slot: Any, folder: str) -> None:
        self._slot = slot
        self.fds: list[int] = []
        self._names = [f"{folder}/{kind}-{os.urandom(6).hex()}" for kind in ("out", "err")]
        self._made: list[tuple[int, int, int]] = []
        try:
            with slot.acting():
                for name in self._names:
                    self._make(name)
        except OSError:
            self.close()
            raise

    def _make(self, name: str) -> None:
        os.mkfifo(name, 0o600)
        self.fds.append(os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW))
        found = os.fstat(self.fds[-1])
        self._made.append(_identity(found))
        if not stat.S_ISFIFO(found.st_mode):
            raise OSError("a pipe was replaced by something else")

    def redirections(self, *, merge_stderr: bool) -> str:
        """Return the bash redirections of a command's output to these pipes, or to the first alone if merged."""
        out, err = (quote(name) for name in self._names)
        return f" >{out} 2>&1" if merge_stderr else f" >{out} 2>{err}"

    def intact(self) -> bool:
        """Return whether the names still lead to the pipes. A command can delete or change files of its own user."""
        try:
            with self._slot.acting():
                found = [os.lstat(name) for name in self._names]
        except OSError:
            return False
        return [_identity(each) for each in found] == self._made

    def unlink(self) -> None:
        """Remove the names, so that no process opens the pipes again."""
        with self._slot.acting():
            for name in self._names:
                with suppress(OSError):
                    os.unlink(name)

    def close(self) -> None:
        """Remove the names and close the pipes."""
        self.unlink()
        for fd in self.fds:
            os.close(fd)
        self.fds = []


def _identity(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_dev, found.st_ino, found.st_mode


class NamedOutputs(Outputs):
    """Reads what one command writes to named pipes.

    A pipe without writers is at its end only after the command: before, the shell has not opened it yet. `unused`
    receives the pipes when no process can write to them any longer.
    """

    def __init__(
        self,
        pipes: NamedPipes,
        unused: Callable[[NamedPipes], None],
        loop: Any,
        *callbacks: Any,
        merge_stderr: bool,
    ) -> None:
        super().__init__(loop, *callbacks, merge_stderr=merge_stderr)
        self._unused = unused
        self._named = pipes
        self._over = self._watched = self._released = False
        self._pipes = {fd: stream for stream, fd in enumerate(pipes.fds)}
        self._alarm = loop.after(_SOON, self._watch)

    @property
    def redirections(self) -> str:
        """The bash redirections of the command's output."""
        return self._named.redirections(merge_stderr=self._merge_stderr)

    def over(self) -> None:
        """Note that the command has ended: from now on, a pipe without writers is at its end."""
        self._over = True

    def _watch(self) -> None:
        if not self._watched and not self._released:
            self._watched = True
            for fd in self._pipes:
                self._loop.watch_changes(fd, self._empty_on_change)

    def _empty_on_change(self, fd: int) -> None:
        # The loop reports only changes, so this must remember a pipe that is not empty yet.
        if fd in self._pipes and not self._released and not self._empty(fd):
            self._loop.after(0.0, lambda: self._empty_on_change(fd))

    def _empty(self, fd: int) -> bool:
        try:
            for _ in range(_PIECES):
                data = os.read(fd, _PIECE)
                if not data:
                    if self._over:
                        self._end(fd)
                    return True
                self._take(self._pipes[fd], data)
        except BlockingIOError:
            return True
        return False

    def _end(self, fd: int) -> None:
        del self._pipes[fd]
        if self._watched:
            self._loop.forget(fd)
        self._ended()

    def drain(self) -> None:
        """Read what is in the pipes now. After the end of the command, also watch them for late output."""
        for fd in list(self._pipes):
            self._empty(fd)
        if self._over:
            self._watch()

    def release(self) -> None:
        """Give back the pipes. If a process can still write to them, read and drop its output instead."""
        if self._released:
            return
        self._released = True
        super().release()
        self._loop.cancel(self._alarm)
        for fd in self._pipes if self._watched else ():
            self._loop.forget(fd)
        if not self._pipes:
            self._unused(self._named)
            return
        self._named.unlink()
        for fd in self._named.fds:
            if fd in self._pipes:
                self._loop.watch(fd, self._readable)
            else:
                os.close(fd)
