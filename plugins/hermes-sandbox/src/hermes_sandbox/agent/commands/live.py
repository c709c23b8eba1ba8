"""The live session: a long-running bash with job control, which reads commands from files and reports on a pipe."""

from __future__ import annotations

import os
import select
import stat
import time

from hermes_sandbox.agent.basics.stdlib import TYPE_CHECKING, signal, suppress
from hermes_sandbox.agent.commands.fifos import NamedOutputs, NamedPipes
from hermes_sandbox.agent.commands.late_output import Filters, last_process
from hermes_sandbox.agent.commands.live_shell import CLOSED_IN_COMMANDS, DENY_BEGIN, TELL_BEGIN, Shell, tell_end
from hermes_sandbox.agent.commands.robust import Command
from hermes_sandbox.agent.commands.script import NO_STATE, assignments, quote, saving
from hermes_sandbox.agent.commands.session import Session
from hermes_sandbox.agent.processes import (
    TICKS_A_SECOND,
    Process,
    read_marker,
    read_process,
    read_table,
    send,
    stop_and_kill,
    with_descendants,
)
from hermes_sandbox.agent.slot import Slot

if TYPE_CHECKING:
    from typing import Any

_SHELL_PATIENCE = 0.1
_TERM_AFTER, _KILL_AFTER = 0.2, 0.5
_SHELL_AFTER = 1.2
"""Seconds after which a shell that does not return to its prompt is killed, once the killed processes have ended."""
_SHELL_AT_LATEST = 10.0
"""Seconds after which it is killed even if it, or what it waits for, had no processor time to return."""
_SHELL_WORK = 0.3
"""Seconds of processor time that are enough for a shell to return to its prompt."""
_SNAPSHOT_PATIENCE = 2.0
_GLANCE = 10
"""Milliseconds between checks whether an awaited shell is back at its prompt without a report."""
_TICK = 0.02
_FIRST_LOOK, _LONGEST_LOOK = 0.002, 0.5
"""Seconds until the first check whether the shell is back, and the longest pause between checks. Most commands end
before the first one."""
_ENDED = b"hermes: the shell of this session has ended; this is a new one, without its variables and its directory\n"
_REPLACED = b"hermes: the shell of this session no longer runs commands; this is a new one, without its variables\n"
_SILENT = b"hermes: the shell of this session did not report how this command ended; the exit code is the shell's\n"
# Interactive, so that an interrupt returns to the prompt. But there is no typed input, and no file of the user is used.
_BEGIN = (
    r"\builtin set -m +o history +o histexpand +o emacs; \builtin shopt -u checkwinsize;"
    r" \builtin unset -v HISTFILE MAILCHECK PS4; PS1= PS2=; "
)
_NOT_SAVED = "PS1 PS2"


class LiveSession(Session):
    """A session that is a bash process. Its state is lost when the process ends."""

    def __init__(self, slot: Slot, directory: str) -> None:
        super().__init__(slot, directory)
        self._shell: Shell | None = None
        self._note = b""
        """Text that tells the next command why it has a new shell."""
        self._forgotten = False
        self._current: LiveCommand | None = None
        self._count = self._number
        self._told = 0
        """The last number that the shell has reported."""
        self._pipes: NamedPipes | None = None
        self._to_set_back = 0
        """Number of the command whose settings must be undone, or 0. The shell variable for that has it in its name."""

    def pipes(self) -> NamedPipes:
        """Return pipes for a command. The caller returns them with `keep` if nothing writes to them afterwards."""
        pipes, self._pipes = self._pipes, None
        if pipes is not None:
            if pipes.intact():
                return pipes
            pipes.close()
        with self.slot.acting():
            self._prepare([])
        return NamedPipes(self.slot, self._directory)

    def keep(self, pipes: NamedPipes) -> None:
        """Take back pipes that the next command can use."""
        if self._pipes is None and not self._forgotten:
            self._pipes = pipes
        else:
            pipes.close()

    def command(self, request: dict[str, Any], body: bytes, marker: str) -> Command:
        """Return a command that has not started yet."""
        return LiveCommand(self, request, body, marker=marker)

    def ready(self) -> tuple[Shell, bytes]:
        """Return the shell, which is started if necessary, and a note about that for the command's output."""
        note = b""
        if self._shell is None:
            note = os.fsencode(self.enter(None)) + self._note
            try:
                with self.slot.acting():
                    self._prepare([])
                self._shell = Shell(self.slot, self.take_report)
            finally:
                os.chdir("/")
            self._shell.gone, self._note = self.shell_ended, b""
        return self._shell, note

    def run(self, command: LiveCommand, shell: Shell, text: bytes) -> None:
        """Make the shell apply a command's own settings and run its text."""
        self._count += 1
        begin = f"{_BEGIN}{os.fsdecode(self._state.text)}\n" if shell.fresh else ""
        head = f"{begin}{self._restoring()}{command.settings(self._count)} if {TELL_BEGIN}; then \\builtin eval -- "
        end = os.fsencode(f"; else {DENY_BEGIN}; fi\n{tell_end(self._count)}\n")
        self._to_set_back = self._count if command.leaves_something else 0
        path = self._write("script", os.fsencode(head) + text + end)
        self._current = command
        try:
            shell.obey(self._count, path)
        except OSError:
            self.replace(shell)

    def replace(self, shell: Shell) -> None:
        """Kill a shell that no longer runs commands, and keep its directory."""
        self.directory(None)
        self._note = _REPLACED
        shell.kill()

    def _restoring(self) -> str:
        name = f"_hermes_{self._to_set_back}"
        text = rf'\builtin eval -- "${{{name}-}}" >/dev/null 2>&1; \builtin unset -v {name};'
        return text if self._to_set_back else ""

    def _write(self, name: str, content: bytes) -> str:
        """Write a file for the shell and return its path."""
        try:
            return self._write_here(name, content)
        except OSError:
            with self.slot.acting():
                self._move()
            return self._write_here(name, content)

    def _write_here(self, name: str, content: bytes) -> str:
        path = f"{self._directory}/{name}"
        with self.slot.acting():
            flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            fd = os.open(path, flags, 0o600)
            if stat.S_IMODE(os.fstat(fd).st_mode) != 0o600:
                os.fchmod(fd, 0o600)  # a command has changed its permissions
        try:
            view = memoryview(content)
            while view:
                view = view[os.write(fd, view) :]
            os.ftruncate(fd, len(content))
        finally:
            os.close(fd)
        return path

    def put_input(self, data: bytes) -> str:
        """Write a command's input to a file that its shell can open."""
        return self._write("input", data)

    def take_report(self, number: int, code: int) -> None:
        """Handle the shell's report that the command of a number has ended. The report can arrive more than once."""
        self._told = number
        if number != self._count or self._current is None or self._shell is None:
            return
        if self._shell.has_begun():
            current, self._current = self._current, None
            current.over(code)
        else:
            self.replace(self._shell)

    def shell_ended(self, status: int) -> None:
        """Handle the end of the shell, which also ends the current command."""
        self._shell, self._state = None, NO_STATE
        self._note = self._note or _ENDED
        if self._current is not None:
            current, self._current = self._current, None
            current.note_exit(status)

    def save(self, *, keep_cwd: bool) -> None:
        """Do nothing: the state stays in the shell."""

    def follow(self, other: Session) -> None:
        """Continue with the state of another session. A shell that already runs here is replaced."""
        shell, self._shell = self._shell, None
        if shell is not None:
            shell.close()
            send([shell.pid], signal.SIGKILL)
        super().follow(other)
        self._note = b""

    def launch(self, command: bytes, streams: tuple[int, int, int], **options: Any) -> int:
        """Start bash on a command with the session's state of now, or of when the session was last idle."""
        self.snapshot()
        return super().launch(command, streams, **options)

    def directory(self, cwd: str | None) -> str:
        """Return the directory that a command with this `cwd` starts in."""
        if cwd is None and self._shell is not None:
            with self.slot.acting(), suppress(OSError):
                self._cwd = os.fsencode(os.readlink(f"/proc/{self._shell.pid}/cwd"))
        return super().directory(cwd)

    def snapshot(self) -> None:
        """If the shell is idle, make it save its state as a command of a robust session does."""
        shell = self._shell
        if shell is None or self._current is not None or shell.fresh:
            return
        with self.slot.acting():
            self._prepare([])
        self._count += 1
        inner = f"\\builtin unset -v {_NOT_SAVED}; \\builtin set +m; {saving(self._directory, self._number)}"
        text = f"{self._restoring()} ( {inner} ) {CLOSED_IN_COMMANDS}\n{tell_end(self._count)}\n"
        self._to_set_back = 0
        path = self._write("script", os.fsencode(text))
        with suppress(OSError):
            shell.obey(self._count, path)
            self._await(shell, time.monotonic() + _SNAPSHOT_PATIENCE)
        super().save(keep_cwd=False)

    def _await(self, shell: Shell, end: float) -> None:
        # This blocks the agent for a few milliseconds, because the caller needs the state now.
        ready = select.poll()  # select() takes no descriptor above 1023
        ready.register(shell.status, select.POLLIN)
        while self._told != self._count and time.monotonic() < end and self._shell is shell:
            heard = ready.poll(_GLANCE)
            if heard:
                shell.read()
            if shell.is_mute() or any(event & select.POLLHUP for _, event in heard):
                return

    def forget(self) -> None:
        """Close the shell and delete the session's files."""
        shell, self._shell = self._shell, None
        if shell is not None:
            shell.close()
        self._forgotten = True
        if self._pipes is not None:
            self._pipes.close()
            self._pipes = None
        super().forget()


class LiveCommand(Command):
    """A command in the session's shell, from the line that starts it until its answer."""

    def __init__(self, session: LiveSession, request: dict[str, Any], body: bytes, *, marker: str) -> None:
        super().__init__(session, request, body, marker=marker)
        self._live = session
        self._shell: Shell | None = None
        self._input: str | None = None
        self._look_after = _FIRST_LOOK
        self._look = 0
        self._stopped_at = 0.0
        self._ticks_before = 0
        self._steps: set[str] = set()
        self._dying: set[int] = set()
        """The processes that were killed first. A loop in the shell can start others after them."""
        self._delay = 0.0
        """Seconds in which the shell could not return to its prompt, because those had not ended."""
        self._last_before = 0
        self._named: NamedOutputs | None = None
        self.leaves_something = bool(request["env"] or request["cwd"] is not None)

    def _enter(self) -> str:
        # The shell keeps its own directory; only the directory of this command is checked here.
        if self.request["cwd"] is not None:
            try:
                self._session.enter(self.request["cwd"])
            finally:
                os.chdir("/")
        return ""

    def _spawn(self, command: bytes, stdin: bytes) -> None:
        self._shell, note = self._live.ready()
        if note:
            self._capture.add(1, note)
        self.pid = self._shell.pid
        self._last_before = last_process() or self.pid
        if self._named is None:  # a second try uses the same pipes: the first shell did not begin, so never opened them
            callbacks = (self._take, self._pipe_ended)
            merge_stderr = self.request["merge_stderr"]
            self._outputs = self._named = NamedOutputs(
                self._live.pipes(), self._live.keep, self._loop, *callbacks, merge_stderr=merge_stderr
            )
        try:
            if self.request["stdin"]:
                self._input = self._live.put_input(stdin)
            self._live.run(self, self._shell, _quote(command) + self._redirections(self._named))
        except OSError:
            self._outputs.release()
            raise
        self._look = self._loop.after(self._look_after, self._look_at_shell)

    def _look_at_shell(self) -> None:
        """Check whether the shell is back at its prompt, and replace it if it is but cannot report that."""
        if self._status is not None or self._reason or self._shell is None:
            return
        if self._shell.is_mute():
            if self._has_begun():
                self._capture.add(1, _SILENT)
            self._live.replace(self._shell)
            return
        if not self._has_begun():
            send([self.pid], signal.SIGCONT)  # a process of an earlier command can have stopped the shell
        self._look_after = min(2 * self._look_after, _LONGEST_LOOK)
        self._look = self._loop.after(self._look_after, self._look_at_shell)

    def over(self, code: int) -> None:
        """Handle the end of the command, with its exit code or the negative number of the signal that ended it."""
        self._loop.cancel(self._look)
        if self._named is not None and (self._has_begun() or self._reason):
            self._named.over()
        super().over(code)

    def _has_begun(self) -> bool:
        return self._shell is not None and self._shell.has_begun()

    def _give_up_state(self) -> bytes | None:
        return None  # the state is in the shell, which is killed

    def _step_back(self, code: int) -> bytes | None:
        del code
        # A new shell has nothing of the old one. If the command does not begin there either, it never will.
        return b"" if self._tries == 1 else None

    def _filters(self) -> Filters:
        # A subshell keeps the shell's input open, under another descriptor.
        return Filters(self._last_before, () if self._shell is None else (self._shell.source,))

    def settings(self, number: int) -> str:
        """Return bash text that applies the command's settings, and stores how to undo them in a numbered variable."""
        # The assignment comes first and fails if the variable was made read-only. The export follows, because a command
        # can have removed that attribute.
        mark = f"HERMES_SANDBOX={quote(self._marker)}; \\builtin export HERMES_SANDBOX;"
        return mark + self._own_settings(number) if self.leaves_something else mark

    def _own_settings(self, number: int) -> str:
        names = list(self.request["env"])
        keep = [f"\\builtin unset -v {name}; ${{{name}+${{{name}@A}};}}" for name in names]
        set_all = assignments(self.request["env"])
        if self.request["cwd"] is not None:
            keep.append(r"\builtin cd -- ${PWD@Q}; ${OLDPWD+OLDPWD=${OLDPWD@Q};}")
            set_all += f" \\builtin cd -- {quote(self._slot.path(self.request['cwd']))};"
        kept = "".join(keep).replace("\\builtin", "\\\\builtin")
        return f' _hermes_{number}="{kept}"; {set_all}'

    def _redirections(self, outputs: NamedOutputs) -> bytes:
        """Return the redirections of the command's standard streams. They also close the shell's report descriptors."""
        given = quote(self._input or os.devnull)
        return os.fsencode(f" <{given}{outputs.redirections} {CLOSED_IN_COMMANDS}")

    def stop(self, reason: str) -> None:
        """Kill what the command started, and the shell only if it does not return to its prompt."""
        if not self._stopped_at:
            self._stopped_at = time.monotonic()
            shell = read_process(self.pid) if self._shell else None
            self._ticks_before = shell.ticks if shell else 0
        super().stop(reason)

    def _pursue(self) -> None:
        members = self._members(read_table())
        if not members and self._status is not None:
            self._finish()
            return
        elapsed = time.monotonic() - self._stopped_at
        if elapsed >= _SHELL_AFTER and self._killing.is_over(len(members)):
            self._finish(survivors=len(members))
            return
        self._signal_members(members, elapsed)
        if self._status is None:
            self._signal_shell(elapsed, members)
        self._loop.after(_TICK, self._hunt)

    def _signal_members(self, members: set[int], elapsed: float) -> None:
        if elapsed >= _KILL_AFTER:
            if self._once("kill"):
                self._dying = members
            stop_and_kill(lambda: self._members(read_table()))
        elif elapsed >= _TERM_AFTER and self._once("term"):
            send(members, signal.SIGTERM)
        elif self._once("int"):
            send(members, signal.SIGINT)

    def _signal_shell(self, elapsed: float, members: set[int]) -> None:
        if members & self._dying:
            self._delay = elapsed  # on a busy machine killed processes end late, and the shell sleeps meanwhile
        is_stuck = elapsed - self._delay >= _SHELL_AFTER and not self._may_come_back()
        # Both at once would interrupt the shell twice, and the second time the next command would lose its first byte.
        if (is_stuck or elapsed >= _SHELL_AT_LATEST) and self._once("end the shell"):
            send([self.pid], signal.SIGKILL)
        elif elapsed >= _SHELL_PATIENCE and self._once("poke after killing" if elapsed >= _KILL_AFTER else "poke"):
            self._poke()

    def _may_come_back(self) -> bool:
        """Return whether the shell is ready to run but had too little processor time, as on a busy machine."""
        shell = read_process(self.pid)
        if shell is None or shell.state not in "RD":
            return False
        return shell.ticks - self._ticks_before < _SHELL_WORK * TICKS_A_SECOND

    def _poke(self) -> None:
        if self._shell is not None:
            self._shell.poke()

    def _once(self, step: str) -> bool:
        if step in self._steps:
            return False
        self._steps.add(step)
        return True

    def _members(self, table: dict[int, Process]) -> set[int]:
        """Return the processes of this command, without the jobs of earlier ones, which have the same parent."""
        agent = os.getpid()
        below = with_descendants(table, [self.pid]) - {self.pid}
        orphans = {p.pid for p in table.values() if p.parent == agent and p.pid != self.pid}
        mine = {pid for pid in below if pid in table and self._is_mine(table[pid], known=True)}
        mine |= {pid for pid in orphans if self._is_mine(table[pid], known=False)}
        return with_descendants(table, mine) - {self.pid}

    def _is_mine(self, process: Process, *, known: bool) -> bool:
        if not self._is_older_than(process) or self._shell is None:
            return False
        marker = read_marker(process.pid)
        if marker is None:
            return known or self._slot.owns(process)
        # A fork of the shell that runs no program still shows the environment with which the shell was started.
        return marker in {self._marker, self._shell.marker}

    def _answer(self, exit_code: int, survivors: int = 0) -> None:
        if self._input is not None:
            with self._slot.acting(), suppress(OSError):
                os.unlink(self._input)
        super()._answer(exit_code, survivors)


def _quote(command: bytes) -> bytes:
    return b"'" + command.replace(b"'", b"'\\''") + b"'"
