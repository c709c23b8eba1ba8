"""The robust session: a fresh bash for every command, with the state of the one before."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hermes_sandbox.agent.commands.capture import Capture
from hermes_sandbox.agent.commands.late_output import LATE_OUTPUT, Filters
from hermes_sandbox.agent.commands.outputs import Outputs, ordered_or_not
from hermes_sandbox.agent.commands.script import COMPOSED_APART, assignments, compose
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
from hermes_sandbox.agent.slot import Slot

_TICK = 0.02
_MAX_STATE = 1 << 24
_ESCALATION = ((signal.SIGINT, 0.2), (signal.SIGTERM, 0.3))
"""Signals that ask a command to end, and the seconds that each has before the next; then it is killed."""
_KILLING = 2.0
"""Seconds without progress after which what is being killed counts as unkillable."""
_NO_PROCESS = 254
"""What bash itself ends with when it cannot fork."""
COMMAND_FD = 3
"""Kept busy from the start, so that no other descriptor gets this number before it is duplicated."""


def anonymous_file(data: bytes) -> int:
    """Return a descriptor, at its start, of a nameless file; unlike a pipe it takes any size and needs no writer."""
    fd = os.memfd_create("hermes", os.MFD_CLOEXEC)
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


class Session:
    """What commands leave behind for the next one: the text that restores it, and the working directory."""

    def __init__(self, slot: Slot, directory: str) -> None:
        self.slot = slot
        self._directory = Path(directory)
        # Unknown beforehand, so that nothing written before this session passes for what its commands left.
        self._number = int.from_bytes(os.urandom(7), "big")
        self._cwd = os.fsencode(slot.workspace)
        self._state = b""

    def begin_in(self, cwd: str | None) -> None:
        """Create and choose the first command's directory."""
        start = self.slot.path(cwd or "")
        with self.slot.acting():
            start.mkdir(parents=True, exist_ok=True)
        self._cwd = os.fsencode(start)

    def follow(self, other: Session) -> None:
        """Go on from where another session is: its directory and all that its commands left."""
        other.snapshot()
        self._state, self._cwd = other._state, other._cwd

    def snapshot(self) -> None:
        """Have the state at hand as it is now; it always is after a command of this kind of session."""

    def enter(self, cwd: str | None) -> str:
        """Make the command's directory current; returns what to tell about it, raises OSError if `cwd` is no use."""
        with self.slot.acting():
            if cwd is not None:
                os.chdir(self.slot.path(cwd))
                return ""
            try:
                os.chdir(self._cwd)
            except OSError as error:
                workspace = self.slot.workspace
                Path(workspace).mkdir(parents=True, exist_ok=True)
                os.chdir(workspace)
                gone, self._cwd = os.fsdecode(self._cwd), os.fsencode(workspace)
                return f"hermes: {gone}: {error.strerror}; continuing in {workspace}\n"
        return ""

    def command(self, request: dict[str, Any], body: bytes, marker: str) -> Command:
        """Return a command that has not started yet."""
        return Command(self, request, body, marker=marker)

    def spawn(self, request: dict[str, Any], command: bytes, marker: str, streams: tuple[int, int, int]) -> int:
        """Start bash on a command whose end is saved; the current directory is the command's."""
        own, cwd = request["env"], request["cwd"]
        forgotten = list(own) + (["OLDPWD"] if cwd is not None else [])
        with self.slot.acting():
            self._prepare(forgotten)
        script = compose(str(self._directory), self._number, forgotten)
        return self._start(script, command, own, cwd, streams, marker=marker)

    def launch(
        self,
        command: bytes,
        streams: tuple[int, int, int],
        *,
        env: dict[str, str],
        cwd: str | None,
        marker: str,
        terminal: bool = False,
    ) -> int:
        """Start bash on a command that finds the session as it is now and changes nothing of it; returns its id.

        Args:
            command: Bash text.
            streams: Descriptors for its standard input, output and error; all one terminal if `terminal`.
            env: Variables besides the session's.
            cwd: Its directory; the session's if None.
            marker: What it and everything it starts can be recognised by.
            terminal: Whether the first of `streams` is the terminal that controls it.
        """
        self.enter(cwd)
        try:
            return self._start(COMPOSED_APART, command, env, cwd, streams, marker=marker, terminal=terminal)
        finally:
            os.chdir("/")

    def directory(self, cwd: str | None) -> str:
        """Return the directory that a command with this `cwd` starts in."""
        return os.fsdecode(self._cwd) if cwd is None else str(self.slot.path(cwd))

    def _start(
        self,
        script: str,
        command: bytes,
        own: dict[str, str],
        cwd: str | None,
        streams: tuple[int, int, int],
        *,
        marker: str,
        terminal: bool = False,
    ) -> int:
        content = b"\0".join((command, os.fsencode(assignments(own)), self._state, b""))
        # Once there is a saved state it says it all; a variable that was unset must not come back.
        environment = {} if self._state else dict(self.slot.environment)
        environment["PWD"] = self.directory(cwd)
        source = anonymous_file(content)
        argv = [self.slot.bash, "--norc", "--noprofile", "-c", script]
        wiring = ((streams[0], 0), (streams[1], 1), (streams[2], 2), (source, COMMAND_FD))
        try:
            return self.slot.spawn(argv, environment, wiring, marker=marker, terminal=terminal)
        finally:
            os.close(source)

    def _prepare(self, forgotten: list[str]) -> None:
        self._number += 1
        state = self._directory / "state"
        if not state.exists():
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            state.touch(mode=0o600)
        if forgotten:
            (self._directory / "call").unlink(missing_ok=True)

    def forget(self) -> None:
        """Delete the saved state, which may hold secrets."""
        try:
            for path in self._directory.iterdir():
                with contextlib.suppress(OSError):
                    path.unlink()
            self._directory.rmdir()
        except FileNotFoundError:
            pass
        except OSError:
            self.slot.leftovers.add(str(self._directory))

    def save(self, *, keep_cwd: bool) -> None:
        """Take over what the command left; a torn or missing file leaves everything as it was before it."""
        try:
            # The session can put anything in this place, such as a pipe or an endless file.
            with self.slot.acting():
                fd = os.open(self._directory / "state", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        except OSError:
            return
        try:
            parts = os.read(fd, min(os.fstat(fd).st_size, _MAX_STATE)).split(b"\0", 4)
        except OSError:
            return
        finally:
            os.close(fd)
        number = str(self._number).encode()
        if len(parts) == 5 and parts[0] == parts[3] == number:
            self._state = parts[1]
            if not keep_cwd and parts[2].startswith(b"/"):
                self._cwd = parts[2][:-1]


class Command:
    """One command from its start until its answer: output, end, and the hunt for everything it started."""

    def __init__(self, session: Session, request: dict[str, Any], body: bytes, *, marker: str) -> None:
        self.request = request
        self.pid = 0
        self.done: Callable[[dict[str, Any], bytes], None] | None = None
        self._slot = session.slot
        self._loop = session.slot.loop
        self._session = session
        self._body = body
        self._marker = marker
        self._capture = Capture(request["limit"])
        self._outputs = self._open_outputs()
        self._began = time.monotonic()
        self._born = 0
        self._status: int | None = None
        self._reason = ""
        self._alarm = 0
        self._stage = -1
        self._stage_ends = 0.0
        self._killing = Patience(_KILLING)

    def _open_outputs(self) -> Outputs:
        return ordered_or_not(self._slot.bell, self._loop, self._take, self._pipe_ended)

    def start(self) -> None:
        """Run it; a directory that cannot be entered answers 126, as a shell would."""
        size = self.request["command"]
        command, stdin = self._body[:size], self._body[size:]
        self._body = b""
        self._born = ticks_since_boot()
        try:
            note = self._enter()
        except OSError as error:
            wanted = self._session.directory(self.request["cwd"])
            self._capture.add(1, os.fsencode(f"bash: cd: {wanted}: {error.strerror}\n"))
            self._answer(126)
            return
        if note:
            self._capture.add(1, os.fsencode(note))
        try:
            self._spawn(command, stdin)
        except ForkRefusedError as error:
            # The slot has as many processes as it may have: what it does next fails as it would in its own shell.
            self._capture.add(1, os.fsencode(f"bash: fork: {error.strerror}\n"))
            self._answer(_NO_PROCESS)
            return
        if self.request["timeout"] is not None:
            self._alarm = self._loop.after(self.request["timeout"], lambda: self.stop("timeout"))

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
            for fd in (source, *sinks):
                os.close(fd)
            os.chdir("/")
        self._loop.on_exit(self.pid, self.ended)

    def _take(self, stream: int, data: bytes | memoryview) -> None:
        self._capture.add(stream, data)

    def _pipe_ended(self) -> None:
        if not self._outputs and self._status is not None and not self._reason:
            self._finish()

    def ended(self, status: int) -> None:
        """Learn that bash has gone; what others still write later is read, so as not to block them, and dropped."""
        self.over(-os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))

    def over(self, code: int) -> None:
        """Learn the exit code, or the negative number of the signal that ended it."""
        self._status = code
        self._outputs.drain()
        if self._reason:
            self._hunt()
        elif not self._outputs:
            self._finish()
        else:
            filters = self._filters()
            self._loop.after(LATE_OUTPUT, lambda: self._await(filters))

    def _filters(self) -> Filters:
        return Filters(self.pid)

    def _await(self, filters: Filters) -> None:
        if self._answered():
            return
        with self._slot.acting():
            seconds = filters.next_look(self._outputs.links())
        if seconds:
            self._loop.after(seconds, lambda: self._await(filters))
        else:
            self._finish()

    def stop(self, reason: str) -> None:
        """End it and everything it started: asked to, told to, killed; one whose shell has gone is answered."""
        if self._answered() or self._reason:
            return
        if self._status is not None:
            # Not at once: whoever stops several commands in a row must not have the next one started in between.
            self._loop.after(0.0, self._finish)
        else:
            self._reason = reason
            self._hunt()

    def _hunt(self) -> None:
        if self._answered():
            return
        # As the slot's user, whatever is signalled by mistake is its own.
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
        """Return what this command started, including what has left its session and lost its parents."""
        mine = {process.pid for process in table.values() if process.session == self.pid}
        agent = os.getpid()
        mine.update(p.pid for p in table.values() if p.parent == agent and p.pid not in mine and self._started(p))
        return with_descendants(table, mine)

    def _started(self, orphan: Process) -> bool:
        marker = read_marker(orphan.pid)
        # Commands run one after another, so an unmarked orphan younger than this command is its.
        return marker == self._marker or (marker is None and orphan.start >= self._born and self._slot.owns(orphan))

    def _answered(self) -> bool:
        return self.done is None

    def _finish(self, survivors: int = 0) -> None:
        if self._answered():
            return
        self._outputs.settle()
        if self._answered():
            return  # the last pipe ended just then
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
        done, self.done, self._capture = self.done, None, Capture(0)
        if done is not None:
            done(header, body)
