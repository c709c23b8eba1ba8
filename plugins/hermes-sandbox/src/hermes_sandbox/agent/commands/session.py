"""State of a session: what commands leave behind, and how the next bash starts with it."""

from __future__ import annotations

import os
import stat

from hermes_sandbox.agent.basics.stdlib import TYPE_CHECKING, suppress
from hermes_sandbox.agent.commands.script import NO_STATE, assignments, compose, compose_apart, read_state
from hermes_sandbox.agent.file_access.directories import make_directories
from hermes_sandbox.agent.slot import Slot

if TYPE_CHECKING:
    from typing import Any

NO_PROCESS = 254
"""Exit code of a command that has not begun. bash itself uses it when it cannot fork."""
_MAX_STATE = 1 << 24
COMMAND_FD = 3
"""In use from the start, so that no other descriptor gets this number before it is duplicated."""
_LAST_LOST = b"""\
hermes: the state that the previous command left stops bash; this command has the variables, functions and options
hermes: from before it
"""
_ALL_LOST = b"""\
hermes: the state of this session stops bash; this command begins without its variables, functions and options
"""


def anonymous_file(data: bytes) -> int:
    """Return a descriptor of an anonymous file, at its start. Unlike a pipe, it takes any size and needs no writer."""
    fd = os.memfd_create("hermes", os.MFD_CLOEXEC)
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


class Session:
    """State that commands leave for the next one: the text that restores it, and the working directory."""

    def __init__(self, slot: Slot, directory: str) -> None:
        self.slot = slot
        self._directory = directory
        # Unpredictable, so that no file written before this session can be mistaken for the state of its commands.
        self._number = int.from_bytes(os.urandom(7), "big")
        self._cwd = os.fsencode(slot.workspace)
        self._state = self._proven = NO_STATE
        """The state that the last command left, and the last state with which a command has begun."""
        self._source, self._size = -1, 0
        """Descriptor from which the last command was read, and the file's size before the command began."""
        self._launched: dict[int, tuple[int, int]] = {}
        """The same for background processes, by pid."""

    def begin_in(self, cwd: str | None) -> None:
        """Create the directory of the first command and use it."""
        start = self.slot.path(cwd or "")
        with self.slot.acting():
            make_directories(start)
        self._cwd = os.fsencode(start)

    def follow(self, other: Session) -> None:
        """Continue with the state of another session: its directory and everything that its commands left."""
        other.snapshot()
        self._state, self._proven, self._cwd = other._state, other._proven, other._cwd

    def snapshot(self) -> None:
        """Update the saved state. In this kind of session, each command has already done so."""

    def enter(self, cwd: str | None) -> str:
        """Change to the command's directory. Return a note for its output; raise OSError if `cwd` cannot be entered."""
        with self.slot.acting():
            if cwd is not None:
                os.chdir(self.slot.path(cwd))
                return ""
            try:
                os.chdir(self._cwd)
            except OSError as error:
                workspace = self.slot.workspace
                make_directories(workspace)
                os.chdir(workspace)
                gone, self._cwd = os.fsdecode(self._cwd), os.fsencode(workspace)
                return f"hermes: {gone}: {error.strerror}; continuing in {workspace}\n"
        return ""

    def spawn(self, request: dict[str, Any], command: bytes, marker: str, streams: tuple[int, int, int]) -> int:
        """Start bash, in the current directory, on a command whose state is saved at its end."""
        own, cwd = request["env"], request["cwd"]
        forgotten = list(own) + (["OLDPWD"] if cwd is not None else [])
        with self.slot.acting():
            self._prepare(forgotten)
        script = compose(self._directory, self._number, forgotten)
        self._drop_source()
        pid, self._source, self._size = self._start(script, command, own, cwd, streams, marker=marker)
        return pid

    def has_begun(self) -> bool:
        """Return whether the last command has begun. Before that, its bash restores the session."""
        # After `forget` there is no descriptor to check, and no command must be started again.
        return self._source < 0 or os.fstat(self._source).st_size == self._size + 1

    def step_back(self) -> bytes | None:
        """Give up state that prevents a command from beginning. Return a note about it, or None if no state is left."""
        if self._state != self._proven:
            self._state = self._proven
            return _LAST_LOST
        if self._state != NO_STATE:
            self._state = self._proven = NO_STATE
            return _ALL_LOST
        return None

    def _drop_source(self) -> None:
        source, self._source = self._source, -1
        if source >= 0:
            os.close(source)

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
        """Start bash on a command with the session's current state, which it does not change. Return its pid.

        Args:
            command: Bash text.
            streams: Descriptors for its standard input, output and error; all one terminal if `terminal`.
            env: Variables besides the session's.
            cwd: Its directory; the session's if None.
            marker: Marker that identifies it and everything it starts.
            terminal: Whether the first of `streams` becomes its controlling terminal.
        """
        self.enter(cwd)
        try:
            script = compose_apart(self._number)
            pid, source, size = self._start(script, command, env, cwd, streams, marker=marker, terminal=terminal)
        finally:
            os.chdir("/")
        self._launched[pid] = source, size
        return pid

    def has_run(self, pid: int) -> bool:
        """Return whether a launched process began its command before it ended. Call this once, after its end."""
        source, size = self._launched.pop(pid, (-1, 0))
        if source < 0:
            return True
        try:
            return os.fstat(source).st_size == size + 1
        finally:
            os.close(source)

    def directory(self, cwd: str | None) -> str:
        """Return the directory that a command with this `cwd` starts in."""
        return os.fsdecode(self._cwd) if cwd is None else self.slot.path(cwd)

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
    ) -> tuple[int, int, int]:
        content = b"\0".join((self._state.options + command, os.fsencode(assignments(own)), self._state.text, b""))
        # A saved state has all variables; a variable that was unset must not come back from the environment.
        environment = {} if self._state.text else dict(self.slot.environment)
        environment["PWD"] = self.directory(cwd)
        source = anonymous_file(content)
        argv = [self.slot.bash, "--norc", "--noprofile", "-c", script]
        wiring = ((streams[0], 0), (streams[1], 1), (streams[2], 2), (source, COMMAND_FD))
        try:
            pid = self.slot.spawn(argv, environment, wiring, marker=marker, terminal=terminal)
        except BaseException:
            os.close(source)
            raise
        return pid, source, len(content)

    def _prepare(self, forgotten: list[str]) -> None:
        self._number += 1
        try:
            self._make_place(forgotten)
        except OSError:
            self._move()
            self._make_place(forgotten)

    def _move(self) -> None:
        """Choose another directory for the saved state, because a command has blocked the old one."""
        self.slot.leftovers.add(self._directory)
        self._directory = f"/tmp/hermes-{os.urandom(8).hex()}"  # noqa: S108 - its name is unguessable
        os.mkdir(self._directory, 0o700)

    def _make_place(self, forgotten: list[str]) -> None:
        state = f"{self._directory}/state"
        try:
            found = os.lstat(state).st_mode
        except FileNotFoundError:
            make_directories(self._directory, 0o700)
            os.close(os.open(state, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC | os.O_NONBLOCK, 0o600))
        else:
            if not stat.S_ISREG(found) or found & 0o600 != 0o600:
                raise OSError("another file is in the place of the saved state")
        if forgotten:
            with suppress(FileNotFoundError):
                os.unlink(f"{self._directory}/call")

    def forget(self) -> None:
        """Delete the saved state, which can contain secrets."""
        self._drop_source()
        for pid in list(self._launched):
            self.has_run(pid)
        try:
            for name in os.listdir(self._directory):
                with suppress(OSError):
                    os.unlink(f"{self._directory}/{name}")
            os.rmdir(self._directory)
        except FileNotFoundError:
            pass
        except OSError:
            self.slot.leftovers.add(self._directory)

    def save(self, *, keep_cwd: bool) -> None:
        """Load the state that the command left. If the file is torn or missing, keep the state from before."""
        self._proven = self._state
        try:
            # Commands can put anything in this place, such as a pipe or an endless file.
            with self.slot.acting():
                fd = os.open(f"{self._directory}/state", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        except OSError:
            return
        try:
            parts = os.read(fd, min(os.fstat(fd).st_size, _MAX_STATE)).split(b"\0", 6)
        except OSError:
            return
        finally:
            os.close(fd)
        found = read_state(parts, self._number)
        if found is not None:
            self._state, cwd = found
            if not keep_cwd and cwd.startswith(b"/"):
                self._cwd = cwd
