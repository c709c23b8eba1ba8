"""A background process of a slot: its output, its input and its end."""

from __future__ import annotations

import os
import time

from hermes_sandbox.agent.background.job_input import JobInput
from hermes_sandbox.agent.background.ring_buffer import TailRing
from hermes_sandbox.agent.background.terminal_pty import Terminal
from hermes_sandbox.agent.background.terminate import Hunt
from hermes_sandbox.agent.basics.stdlib import TYPE_CHECKING
from hermes_sandbox.agent.commands.late_output import LATE_OUTPUT, Filters, link_of
from hermes_sandbox.agent.commands.session import NO_PROCESS
from hermes_sandbox.agent.processes import Process, read_process

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

KEPT_OUTPUT = 1 << 20
_NOT_RUN = b"hermes: this was not run: the state of the session ends bash before it\n"
_READ_SIZE = 1 << 16
_READS_AT_ONCE = 16
"""Pieces after which draining pauses: a child that writes without end must not hold the loop."""


class Job:
    """One background process, from its start until its record is dropped."""

    def __init__(self, slot: Any, name: str, marker: str) -> None:
        self.name = name
        self.marker = marker
        self.pid = 0
        self.cwd = ""
        self.started_at = time.time()
        self.ended_at: float | None = None
        self.exit_code: int | None = None
        self._slot = slot
        self._session: Any = None
        self._loop = slot.loop
        self._ring: TailRing | None = TailRing(KEPT_OUTPUT)
        self._terminal: Terminal | None = None
        self._output = -1
        self._input: JobInput | None = None
        self._survivors = 0
        self._own_pipes: set[str] = set()
        self._root: Process | None = None
        self._waiting: list[Callable[[], None]] = []

    @property
    def running(self) -> bool:
        """Whether the process has not ended, or some of its processes could not be killed."""
        return self.ended_at is None or self._survivors > 0

    def describe(self) -> dict[str, Any]:
        """Return its description for the client."""
        return {
            "id": self.name,
            "pid": self.pid,
            "cwd": self.cwd,
            "pty": self._terminal is not None,
            "started_at": self.started_at,
            "running": self.running,
            "exit_code": self.exit_code,
            "output_bytes": 0 if self._ring is None else self._ring.total,
        }

    def start(self, request: dict[str, Any], command: bytes) -> None:
        """Start it with the session's current state; raises OSError if that fails."""
        if request["pty"]:
            self._start_on_terminal(request, command)
        else:
            self._start_on_pipes(request, command)
        # It is not reaped before this loop goes on, so it exists.
        self._root = read_process(self.pid)
        self.cwd = self._slot.session.directory(request["cwd"])
        os.set_blocking(self._output, False)
        self._loop.watch(self._output, lambda _fd: self._take())
        self._loop.on_exit(self.pid, self._note_exit)

    def _start_on_terminal(self, request: dict[str, Any], command: bytes) -> None:
        identity = self._slot.identity
        terminal = Terminal(request["rows"], request["cols"], None if identity is None else identity.uid)
        own = -1
        try:
            own = os.dup(terminal.master)
            self._launch(request, command, (terminal.slave,) * 3, terminal=True)
        except BaseException:
            terminal.close()
            _close(own)
            raise
        finally:
            os.close(terminal.slave)
        self._terminal, self._output = terminal, terminal.master
        self._input = JobInput(self._loop, own)

    def _start_on_pipes(self, request: dict[str, Any], command: bytes) -> None:
        output = theirs = given = own = -1
        try:
            output, theirs = os.pipe()
            given, own = os.pipe()
            self._own_pipes = {link_of(own)}
            self._launch(request, command, (given, theirs, theirs), terminal=False)
        except BaseException:
            _close(output, own)
            raise
        finally:
            _close(theirs, given)
        self._output = output
        self._input = JobInput(self._loop, own)

    def _launch(
        self, request: dict[str, Any], command: bytes, streams: tuple[int, int, int], *, terminal: bool
    ) -> None:
        self._session = self._slot.session
        self.pid = self._session.launch(
            command, streams, env=request["env"], cwd=request["cwd"], marker=self.marker, terminal=terminal
        )

    def _take(self) -> bool:
        """Read one piece; False if there is none now."""
        if self._output < 0:
            return False
        try:
            data = os.read(self._output, _READ_SIZE)
        except BlockingIOError:
            return False
        except OSError:
            data = b""  # a terminal that no process holds any more
        if not data:
            self._close_output()
        elif self._ring is not None:
            self._ring.add(data)
        return bool(data)

    def _close_output(self) -> None:
        fd, self._output = self._output, -1
        if fd < 0:
            return
        self._loop.forget(fd)
        if self._terminal is None:
            os.close(fd)
        else:
            self._terminal.close()

    def _drain(self) -> None:
        for _ in range(_READS_AT_ONCE):
            if not self._take():
                break

    def _note_exit(self, status: int) -> None:
        code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        self._drain()
        # It may have been killed before its start was complete.
        if not self._session.has_run(self.pid) and os.WIFEXITED(status):
            code = NO_PROCESS
            if self._ring is not None:
                self._ring.add(_NOT_RUN)
        if self._output < 0:
            self._end(code)
        else:
            filters = Filters(self.pid, self._own_pipes)
            self._loop.after(LATE_OUTPUT, lambda: self._await_filters(code, filters))

    def _await_filters(self, code: int, filters: Filters) -> None:
        seconds = 0.0
        if self._output >= 0:
            with self._slot.acting():
                seconds = filters.next_look({link_of(self._output)})
        if seconds:
            self._loop.after(seconds, lambda: self._await_filters(code, filters))
        else:
            self._end(code)

    def _end(self, code: int) -> None:
        self._drain()
        self.exit_code, self.ended_at = code, time.time()
        assert self._input is not None
        self._input.abandon()
        waiting, self._waiting = self._waiting, []
        for tell in waiting:
            tell()
        self._slot.tell("job_ended", {"job": self.name, "exit_code": code})

    def read(self, offset: int, limit: int) -> tuple[dict[str, Any], bytes]:
        """Return a piece of its output, and its position in the whole output."""
        assert self._ring is not None
        start, data = self._ring.read(offset, limit)
        return {"start": start, "total": self._ring.total, "running": self.running}, data

    def wait(self, timeout: float | None, answer: Any) -> Callable[[], None]:
        """Answer when it has ended, or after `timeout` seconds; returns a function that cancels the request."""
        alarm = 0

        def finish() -> None:
            self._loop.cancel(alarm)
            if finish in self._waiting:
                self._waiting.remove(finish)
            answer(self.describe())

        def withdraw() -> None:
            self._loop.cancel(alarm)
            if finish in self._waiting:
                self._waiting.remove(finish)
            answer({"cancelled": True})

        if self.ended_at is not None:
            finish()
        else:
            self._waiting.append(finish)
            if timeout is not None:
                alarm = self._loop.after(timeout, finish)
        return withdraw

    def write(self, data: bytes, answer: Any) -> Callable[[], None]:
        """Write to its input; see `JobInput.write`."""
        assert self._input is not None
        return self._input.write(data, answer)

    def kill(self, grace: float, answer: Any) -> Callable[[], None]:
        """End everything it has started, and answer how many are left; cannot be cancelled."""

        def report(left: int) -> None:
            self._survivors = left
            if left or self.ended_at is not None:
                answer(self.describe())
            else:
                self.wait(None, answer)  # killed, and about to be reaped

        assert self._root is not None
        Hunt(self._slot, self._root, self.marker, grace, report).step()
        return lambda: answer({"cancelled": True})

    def close_input(self) -> None:
        """End its input: a pipe is closed, a terminal gets its end-of-file character."""
        assert self._input is not None
        if self._terminal is None:
            self._input.close()
        elif self._output >= 0:
            self._input.write(self._terminal.end_of_file(), lambda _values, _body=b"": None)

    def resize(self, rows: int, cols: int) -> None:
        """Change the size of its terminal."""
        if self._terminal is None:
            raise ValueError(f"process {self.name} has no terminal to resize; start it with pty")
        if self._output >= 0:
            self._terminal.resize(rows, cols)

    def release(self) -> None:
        """Keep no more output; what its children still write is read and dropped, so that they do not block."""
        self._ring = None

    def close(self) -> None:
        """Close its descriptors, and answer waiting requests."""
        self._close_output()
        if self._input is not None:
            self._input.abandon()
        waiting, self._waiting = self._waiting, []
        for tell in waiting:
            tell()


def _close(*fds: int) -> None:
    for fd in fds:
        if fd >= 0:
            os.close(fd)
