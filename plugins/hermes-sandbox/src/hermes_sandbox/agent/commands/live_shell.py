"""The long bash of a live session: the pipe it reads lines from, and the one it reports on."""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import signal
from collections.abc import Callable

from hermes_sandbox.agent.commands.late_output import link_of
from hermes_sandbox.agent.commands.outputs import unread
from hermes_sandbox.agent.commands.session import anonymous_file
from hermes_sandbox.agent.processes import send
from hermes_sandbox.agent.slot import Slot

REPORT_FD = 250
"""Where the shell tells how a command has ended; closed in the command itself: nothing it prints gets there."""
_MARK_FD = 251
"""Where the shell leaves a mark when a command begins, also closed in it: a file, which wakes nobody."""
CLOSED_IN_COMMANDS = f"{REPORT_FD}>&- {_MARK_FD}>&-"
_LONGEST_REPORT = 64
_MOST_REPORTS = 4096

TELL_BEGIN = rf"\builtin eval '\builtin printf + >&{_MARK_FD} 2>&{REPORT_FD}' <&2 >&2 2>&1"
"""Bash text that marks the beginning of a command; it needs all that the command and the report of its end will."""

DENY_BEGIN = rf"\builtin printf ++ >&{_MARK_FD}"
"""Bash text that says that what was to begin has not; more than the one character of a mark, written or not."""


def tell_end(number: int) -> str:
    """Return bash text that says how a command has ended."""
    return rf'\builtin printf "\n%d %d\n" {number} "$?" >&{REPORT_FD}'


class Shell:
    """A process that is told what to do by lines, marks that a command begins, and says by its number how it has ended.

    What interrupts a command ends the script around it as well, which then says nothing; so it is asked once more.
    """

    def __init__(self, slot: Slot, ended: Callable[[int, int], None]) -> None:
        self.fresh = True
        self.gone: Callable[[int], None] | None = None
        """Called with the wait status when it has ended, unless it was let go of before."""
        self._slot = slot
        self._ended = ended
        self._poked = False
        self._question = b""
        self._questions: list[bytes] = []
        """What is still to be written to learn whether it is back, each when it has read what was written before."""
        self._said = b""
        self._has_begun = False
        self.marker = f"{slot.marker}.0"
        lines, self._lines = os.pipe()
        self.source = link_of(lines)
        """What the kernel calls the pipe that it reads lines from."""
        self.status, reports = os.pipe()
        self._mark = anonymous_file(b"")
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        argv = [slot.bash, "--norc", "--noprofile", "--noediting", "-i"]
        try:
            wiring = [(lines, 0), (null, 1), (null, 2), (reports, REPORT_FD), (self._mark, _MARK_FD)]
            self.pid = slot.spawn(argv, slot.environment, wiring, marker=self.marker)
        except BaseException:
            for fd in (self._lines, self.status, self._mark):
                os.close(fd)
            raise
        finally:
            for fd in (lines, null, reports):
                os.close(fd)
        for fd in (self._lines, self.status):
            os.set_blocking(fd, False)
        self._watched = True
        slot.loop.watch(self.status, lambda _fd: self.read())
        slot.loop.on_exit(self.pid, self._report_exit)

    def obey(self, number: int, script: str) -> None:
        """Have it run a file.

        Raises:
            OSError: It reads no lines any more.
        """
        self.fresh = False
        os.ftruncate(self._mark, 0)
        os.lseek(self._mark, 0, os.SEEK_SET)  # of the shell too
        padding = "        " if self._poked else ""
        self._poked = False
        self._question = os.fsencode(tell_end(number) + "\n")
        self._questions = [self._question, b"\n"]
        os.write(self._lines, os.fsencode(rf"{padding}\builtin . {shlex.quote(script)}" + "\n"))

    def has_begun(self) -> bool:
        """Tell whether it has begun what it runs, or ran last."""
        return self._has_begun if self._lines < 0 else os.fstat(self._mark).st_size == 1

    def poke(self) -> None:
        """Interrupt it, and ask whether it is back; that can cost what it reads next its first bytes."""
        self._poked = True
        send([self.pid], signal.SIGINT)
        self._questions = [b"\n"]
        self._ask(b"        " + self._question)

    def _ask(self, line: bytes) -> None:
        with contextlib.suppress(OSError):
            os.write(self._lines, line)

    def is_mute(self) -> bool:
        """Ask whether it is back, and tell whether it is and cannot say so; to be called now and then.

        It reads on when it has done all that it has read. So once it has read a question and what came after that, its
        answer is there, or there will be none.
        """
        if self._lines < 0 or unread(self._lines):
            return False
        if self._questions:
            self._ask(self._questions.pop(0))
            return False
        if self.has_begun() and self._is_unheard():
            return False  # another program is in its place, whose end tells how the command has ended
        return not (self._watched and unread(self.status))

    def _is_unheard(self) -> bool:
        ready = select.poll()
        ready.register(self._lines, 0)
        return bool(ready.poll(0))

    def read(self) -> None:
        """Read what it has reported, and hand it on."""
        data = b""
        with contextlib.suppress(BlockingIOError):
            data = os.read(self.status, _MOST_REPORTS)
            if not data:
                self._stop_watching()  # nobody can report any more
        *lines, last = (self._said + data).split(b"\n")
        # While a command runs, the shell keeps the pipe under another number, which it can be made to write to.
        self._said = last[-_LONGEST_REPORT:]
        for line in lines:
            with contextlib.suppress(ValueError):
                number, code = map(int, line.split())
                self._ended(number, code)

    def _stop_watching(self) -> None:
        if self._watched:
            self._watched = False
            self._slot.loop.forget(self.status)

    def _report_exit(self, status: int) -> None:
        if self._lines >= 0:
            self.read()
            self.close()
            if self.gone is not None:
                self.gone(status)

    def close(self) -> None:
        """Let go of its pipes, which ends it unless it is busy."""
        if self._lines >= 0:
            self._stop_watching()
            self._has_begun = self.has_begun()
            for fd in (self._lines, self.status, self._mark):
                os.close(fd)
            self._lines = -1

    def kill(self) -> None:
        """End it; what becomes of its command is told when it has gone."""
        send([self.pid], signal.SIGKILL)
