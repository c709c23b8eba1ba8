"""The robust session: what commands leave behind, and the fresh bash that the next one gets with it."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import Any

from hermes_sandbox.agent.commands.script import NO_STATE, assignments, compose, compose_apart, read_state
from hermes_sandbox.agent.slot import Slot

NO_PROCESS = 254
"""What bash itself ends with when it cannot fork: the exit code of what has not begun."""
_MAX_STATE = 1 << 24
COMMAND_FD = 3
"""Kept busy from the start, so that no other descriptor gets this number before it is duplicated."""
_LAST_LOST = b"""\
hermes: what the command before this one has left keeps bash from going on; this one has the variables, functions and
hermes: options from before it
"""
_ALL_LOST = b"""\
hermes: what is left of this session keeps bash from going on; this command begins without its variables, functions and
hermes: options
"""


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
        self._state = self._proven = NO_STATE
        """What the last command has left, and the last with which a command has begun."""
        self._source, self._size = -1, 0
        """What the last command was read from, and its size before the command began."""
        self._launched: dict[int, tuple[int, int]] = {}
        """The same of what runs in the background, by its process."""

    def begin_in(self, cwd: str | None) -> None:
        """Create and choose the first command's directory."""
        start = self.slot.path(cwd or "")
        with self.slot.acting():
            start.mkdir(parents=True, exist_ok=True)
        self._cwd = os.fsencode(start)

    def follow(self, other: Session) -> None:
        """Go on from where another session is: its directory and all that its commands left."""
        other.snapshot()
        self._state, self._proven, self._cwd = other._state, other._proven, other._cwd

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

    def spawn(self, request: dict[str, Any], command: bytes, marker: str, streams: tuple[int, int, int]) -> int:
        """Start bash on a command whose end is saved; the current directory is the command's."""
        own, cwd = request["env"], request["cwd"]
        forgotten = list(own) + (["OLDPWD"] if cwd is not None else [])
        with self.slot.acting():
            self._prepare(forgotten)
        script = compose(str(self._directory), self._number, forgotten)
        self._drop_source()
        pid, self._source, self._size = self._start(script, command, own, cwd, streams, marker=marker)
        return pid

    def has_begun(self) -> bool:
        """Tell whether the command that was started last has begun; until then its bash restores the session."""
        # Nothing is known after `forget`, and nothing is to be started any more.
        return self._source < 0 or os.fstat(self._source).st_size == self._size + 1

    def step_back(self) -> bytes | None:
        """Give up what keeps a command from beginning; returns what to tell about it, None if nothing is left."""
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
            script = compose_apart(self._number)
            pid, source, size = self._start(script, command, env, cwd, streams, marker=marker, terminal=terminal)
        finally:
            os.chdir("/")
        self._launched[pid] = source, size
        return pid

    def has_run(self, pid: int) -> bool:
        """Tell whether what was launched has begun before its end; to be asked once, when it has ended."""
        source, size = self._launched.pop(pid, (-1, 0))
        if source < 0:
            return True
        try:
            return os.fstat(source).st_size == size + 1
        finally:
            os.close(source)

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
    ) -> tuple[int, int, int]:
        content = b"\0".join((self._state.options + command, os.fsencode(assignments(own)), self._state.text, b""))
        # Once there is a saved state it says it all; a variable that was unset must not come back.
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
        """Take another place for what is saved: a command has put something into its way, or shut it."""
        self.slot.leftovers.add(str(self._directory))
        self._directory = Path(f"/tmp/hermes-{os.urandom(8).hex()}")  # noqa: S108 - its name is unguessable
        self._directory.mkdir(mode=0o700)

    def _make_place(self, forgotten: list[str]) -> None:
        state = self._directory / "state"
        try:
            found = state.lstat().st_mode
        except FileNotFoundError:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            state.touch(mode=0o600)
        else:
            if not stat.S_ISREG(found) or found & 0o600 != 0o600:
                raise OSError("the place of the saved state is taken")
        if forgotten:
            (self._directory / "call").unlink(missing_ok=True)

    def forget(self) -> None:
        """Delete the saved state, which may hold secrets."""
        self._drop_source()
        for pid in list(self._launched):
            self.has_run(pid)
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
        self._proven = self._state
        try:
            # The session can put anything in this place, such as a pipe or an endless file.
            with self.slot.acting():
                fd = os.open(self._directory / "state", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
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
