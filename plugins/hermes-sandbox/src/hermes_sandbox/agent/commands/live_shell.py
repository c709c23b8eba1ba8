"""The bash of a live session: the pipe from which it reads lines, and the pipe on which it reports."""

from __future__ import annotations

import os
import select

from hermes_sandbox.agent.basics.stdlib import TYPE_CHECKING, signal, suppress
from hermes_sandbox.agent.commands.late_output import link_of
from hermes_sandbox.agent.commands.outputs import unread
from hermes_sandbox.agent.commands.script import quote
from hermes_sandbox.agent.commands.session import anonymous_file
from hermes_sandbox.agent.processes import send
from hermes_sandbox.agent.slot import Slot

if TYPE_CHECKING:
    from collections.abc import Callable

REPORT_FD = 250
"""Descriptor on which the shell reports how a command ended. It is closed in commands, so they cannot write to it."""
_MARK_FD = 251
"""Descriptor of the file in which the shell marks that a command begins. It is also closed in commands. It is a file
because a write to a file wakes no reader."""
CLOSED_IN_COMMANDS = f"{REPORT_FD}>&- {_MARK_FD}>&-"
_LONGEST_REPORT = 64
_MOST_REPORTS = 4096

TELL_BEGIN = rf"\builtin eval '\builtin printf + >&{_MARK_FD} 2>&{REPORT_FD}' <&2 >&2 2>&1"
"""Bash text that marks the beginning of a command. It fails if the command or its report lacks anything it needs."""

DENY_BEGIN = rf"\builtin printf ++ >&{_MARK_FD}"
"""Bash text that says that a command did not begin: with it, the file has more than the one character of a mark."""


def tell_end(number: int) -> str:
    """Return bash text that reports a command's number and exit code."""
    return rf'\builtin printf "\n%d %d\n" {number} "$?" >&{REPORT_FD}'


class Shell:
    """A bash process that reads lines, marks when a command begins, and reports its number and exit code at the end.

    An interrupt of a command also ends the script around it, which then reports nothing. Therefore the shell is asked
    again.
    """

    def __init__(self, slot: Slot, ended: Callable[[int, int], None]) -> None:
        self.fresh = True
        self.gone: Callable[[int], None] | None = None
        """Called with the wait status when the shell has ended, unless it was closed before."""
        self._slot = slot
        self._ended = ended
        self._poked = False
        self._question = b""
        self._questions: list[bytes] = []
        """Lines to write to learn whether it is back at its prompt, each after it has read the one before."""
        self._said = b""
        self._has_begun = False
        self.marker = f"{slot.marker}.0"
        lines, self._lines = os.pipe()
        self.source = link_of(lines)
        """The kernel's name of the pipe from which it reads lines."""
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
        """Make the shell run a file.

        Raises:
            OSError: The shell no longer reads lines.
        """
        self.fresh = False
        os.ftruncate(self._mark, 0)
        os.lseek(self._mark, 0, os.SEEK_SET)  # the shell shares the position
        padding = "        " if self._poked else ""
        self._poked = False
        self._question = os.fsencode(tell_end(number) + "\n")
        self._questions = [self._question, b"\n"]
        os.write(self._lines, os.fsencode(rf"{padding}\builtin . {quote(script)}" + "\n"))

    def has_begun(self) -> bool:
        """Return whether the current or last command has begun."""
        return self._has_begun if self._lines < 0 else os.fstat(self._mark).st_size == 1

    def poke(self) -> None:
        """Interrupt the shell, and ask whether it is back. The next line that it reads can lose its first bytes."""
        self._poked = True
        send([self.pid], signal.SIGINT)
        self._questions = [b"\n"]
        self._ask(b"        " + self._question)

    def _ask(self, line: bytes) -> None:
        with suppress(OSError):
            os.write(self._lines, line)

    def is_mute(self) -> bool:
        """Ask the shell whether it is back, and return whether it is but cannot report. Call this repeatedly.

        The shell reads a line only after it has executed all lines before. So once it has read a question and the line
        after it, either its answer has arrived or there will be none.
        """
        if self._lines < 0 or unread(self._lines):
            return False
        if self._questions:
            self._ask(self._questions.pop(0))
            return False
        if self.has_begun() and self._is_unheard():
            return False  # `exec` replaced the shell by another program, whose end is the command's
        return not (self._watched and unread(self.status))

    def _is_unheard(self) -> bool:
        ready = select.poll()
        ready.register(self._lines, 0)
        return bool(ready.poll(0))

    def read(self) -> None:
        """Read the shell's reports and pass them on."""
        data = b""
        with suppress(BlockingIOError):
            data = os.read(self.status, _MOST_REPORTS)
            if not data:
                self._stop_watching()  # no process can report any more
        *lines, last = (self._said + data).split(b"\n")
        # While a command runs, the shell keeps the pipe under another descriptor, so a command can make it write there.
        self._said = last[-_LONGEST_REPORT:]
        for line in lines:
            with suppress(ValueError):
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
        """Close its pipes, which ends the shell unless it is busy."""
        if self._lines >= 0:
            self._stop_watching()
            self._has_begun = self.has_begun()
            for fd in (self._lines, self.status, self._mark):
                os.close(fd)
            self._lines = -1

    def kill(self) -> None:
        """Kill the shell. Its command is answered when the shell has ended."""
        send([self.pid], signal.SIGKILL)
