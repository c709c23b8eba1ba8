"""The robust session: a new bash for each command, with the state that the previous command left."""

from __future__ import annotations

import os
import time

from hermes_sandbox.agent.basics.stdlib import TYPE_CHECKING, signal
from hermes_sandbox.agent.commands.capture import Capture
from hermes_sandbox.agent.commands.late_output import LATE_OUTPUT, Filters, last_process
from hermes_sandbox.agent.commands.outputs import Outputs
from hermes_sandbox.agent.commands.session import NO_PROCESS, Session, anonymous_file
from hermes_sandbox.agent.launch import ForkRefusedError
from hermes_sandbox.agent.processes import (
    Patience,
    Process,
    read_marker,
    read_table,
    send,
    stop_and_kill,
    ticks_since_boot,
    with_descendants,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_TICK = 0.02
_ESCALATION = ((signal.SIGINT, 0.2), (signal.SIGTERM, 0.3))
"""Signals that ask a command to end, and the seconds until the next one. After them the command is killed."""
_NOT_BEGUN = b"hermes: this command had not begun when it was ended\n"
_KILLING = 2.0
"""Seconds without progress after which the remaining processes count as unkillable."""


class RobustSession(Session):
    """A session whose commands save its state when they end."""

    def command(self, request: dict[str, Any], body: bytes, marker: str) -> Command:
        """Return a command that has not started yet."""
        return Command(self, request, body, marker=marker)


class Command:
    """A command from its start until its answer: its output, its end, and the killing of everything it started."""

    def __init__(self, session: Session, request: dict[str, Any], body: bytes, *, marker: str) -> None:
        self.request = request
        self.pid = 0
        self.done: Callable[[dict[str, Any], bytes], None] | None = None
        self._slot = session.slot
        self._loop = session.slot.loop
        self._session = session
        self._body = body
        self._marker = marker
        self._capture = Capture(request["limit"], merge_stderr=request["merge_stderr"])
        self._outputs = self._open_outputs()
        self._began = time.monotonic()
        self._born = self._newest = 0
        self._status: int | None = None
        self._reason = ""
        self._alarm = 0
        self._stage = -1
        self._stage_ends = 0.0
        self._killing = Patience(_KILLING)
        self._tries = 0

    def _open_outputs(self) -> Outputs:
        return Outputs(self._loop, self._take, self._pipe_ended, merge_stderr=self.request["merge_stderr"])

    def start(self) -> None:
        """Run the command. If its directory cannot be entered, answer with exit code 126, as a shell would."""
        self._born, self._newest = ticks_since_boot(), last_process()
        self._try()
        if not self._is_answered() and self.request["timeout"] is not None:
            self._alarm = self._loop.after(self.request["timeout"], lambda: self.stop("timeout"))

    def _try(self) -> None:
        size = self.request["command"]
        try:
            note = self._enter()
        except OSError as error:
            wanted = self._session.directory(self.request["cwd"])
            self._refuse(f"bash: cd: {wanted}: {error.strerror}", 126)
            return
        if note:
            self._capture.add(1, os.fsencode(note))
        try:
            self._spawn(self._body[:size], self._body[size:])
        except ForkRefusedError as error:
            # The slot has reached its process limit, so the command fails as it would in its own shell.
            self._refuse(f"bash: fork: {error.strerror}", NO_PROCESS)

    def _refuse(self, why: str, code: int) -> None:
        self._capture.add(1, os.fsencode(f"{why}\n"))
        self._answer(code)

    def _start_over(self, code: int) -> None:
        """Run the command again after its shell ended before the command began, or answer that it cannot be run."""
        self._tries += 1
        note = self._step_back(code)
        if note is None:
            self._refuse(f"hermes: this command was not run: bash ended before it, with status {code}", NO_PROCESS)
            return
        self._capture.add(1, note)
        try:
            self._try()
        except OSError as error:
            self._refuse(f"hermes: this command was not run: {error}", NO_PROCESS)

    def _step_back(self, code: int) -> bytes | None:
        self._outputs.release()
        self._outputs = self._open_outputs()
        # If a signal killed the shell, the session's state is not necessarily the reason.
        return b"" if code < 0 and self._tries == 1 else self._session.step_back()

    def _give_up_state(self) -> bytes | None:
        return self._session.step_back()

    def _enter(self) -> str:
        return self._session.enter(self.request["cwd"])

    def _spawn(self, command: bytes, stdin: bytes) -> None:
        given = self.request["stdin"]
        source = anonymous_file(stdin) if given else os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        sinks = self._outputs.open()
        try:
            self.pid = self._session.spawn(self.request, command, self._marker, (source, *sinks))
        except OSError:
            self._outputs.release()
            raise
        finally:
            for fd in {source, *sinks}:
                os.close(fd)
            os.chdir("/")
        self._loop.on_exit(self.pid, self.note_exit)

    def _take(self, stream: int, data: bytes | memoryview) -> None:
        self._capture.add(stream, data)

    def _pipe_ended(self) -> None:
        if not self._outputs and self._status is not None and not self._reason:
            self._finish()

    def note_exit(self, status: int) -> None:
        """Handle the end of bash. Later output of other processes is read, so that they do not block, and dropped."""
        self.over(-os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))

    def over(self, code: int) -> None:
        """Handle the end of the command, with its exit code or the negative number of the signal that ended it."""
        if not self._reason and not self._has_begun():
            self._start_over(code)
            return
        self._status = code
        self._outputs.drain()
        if self._reason:
            self._hunt()
        elif not self._outputs:
            self._finish()
        else:
            filters = self._filters()
            self._loop.after(LATE_OUTPUT, lambda: self._await(filters))

    def _has_begun(self) -> bool:
        return self._session.has_begun()

    def _filters(self) -> Filters:
        return Filters(self.pid)

    def _await(self, filters: Filters) -> None:
        if self._is_answered():
            return
        with self._slot.acting():
            seconds = filters.next_look(self._outputs.links())
        if seconds:
            self._loop.after(seconds, lambda: self._await(filters))
        else:
            self._finish()

    def stop(self, reason: str) -> None:
        """Stop the command and all it started: signal them, then kill them. If its shell has ended, only answer."""
        if self._is_answered() or self._reason:
            return
        if self._status is not None:
            # Deferred: a caller that stops several commands in a row must not start the next one in between.
            self._loop.after(0.0, self._finish)
        else:
            self._reason = reason
            self._hunt()

    def _hunt(self) -> None:
        if self._is_answered():
            return
        # As the slot's user, a signal to a wrong process can only reach the slot's own.
        with self._slot.acting():
            self._pursue()

    def _pursue(self) -> None:
        members = self._members(read_table())
        now = time.monotonic()
        if not members and self._status is not None:
            self._finish()
            return
        if now >= self._stage_ends:
            self._stage += 1
            if self._stage < len(_ESCALATION):
                number, seconds = _ESCALATION[self._stage]
                self._stage_ends = now + seconds
                send(members, number)
        if self._stage >= len(_ESCALATION):
            stop_and_kill(lambda: self._members(read_table()))
            if self._killing.is_over(len(members)):
                self._finish(survivors=len(members))
                return
        self._loop.after(_TICK, self._hunt)

    def _members(self, table: dict[int, Process]) -> set[int]:
        """Return the processes of this command, including those that left its session and lost their parents."""
        mine = {process.pid for process in table.values() if process.session == self.pid}
        agent = os.getpid()
        mine.update(p.pid for p in table.values() if p.parent == agent and p.pid not in mine and self._has_started(p))
        return with_descendants(table, mine)

    def _has_started(self, orphan: Process) -> bool:
        marker = read_marker(orphan.pid)
        # Commands run one after another, so an unmarked orphan that is younger than this command belongs to it.
        return marker == self._marker or (marker is None and self._is_older_than(orphan) and self._slot.owns(orphan))

    def _is_older_than(self, process: Process) -> bool:
        """Tell whether a process has started after this command; in the same clock tick, by the order of the ids."""
        return process.start > self._born or (process.start == self._born and process.pid > self._newest)

    def _is_answered(self) -> bool:
        return self.done is None

    def _finish(self, survivors: int = 0) -> None:
        if self._is_answered():
            return
        self._outputs.drain()
        if self._is_answered():
            return  # `drain` found the end of the last pipe, which has answered
        if self._reason and not self._has_begun():
            self._capture.add(1, _NOT_BEGUN + (self._give_up_state() or b""))
        else:
            self._session.save(keep_cwd=self.request["cwd"] is not None)
        if self._reason == "timeout":
            self._answer(124, survivors)
        else:
            status = self._status if self._status is not None else -signal.SIGKILL
            self._answer(128 - status if status < 0 else status, survivors)

    def _answer(self, exit_code: int, survivors: int = 0) -> None:
        self._loop.cancel(self._alarm)
        layout, body = self._capture.report()
        header = {
            "exit_code": exit_code,
            "timed_out": self._reason == "timeout",
            "cancelled": self._reason == "cancel",
            "seconds": time.monotonic() - self._began,
            "survivors": survivors,
            "streams": layout,
        }
        self._outputs.release()
        self._body = b""
        done, self.done, self._capture = self.done, None, Capture(0, merge_stderr=True)
        if done is not None:
            done(header, body)
