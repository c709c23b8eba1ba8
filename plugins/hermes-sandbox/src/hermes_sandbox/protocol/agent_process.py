"""An agent that is a child process of this one: its streams, its start and its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final, NamedTuple, Protocol, Self

from hermes_sandbox.protocol.fd_limits import system_error
from hermes_sandbox.protocol.push_reader import open_callback_reader
from hermes_sandbox.protocol.streams import AgentStream, ByteReader, ByteWriter

_SAID: Final = 1 << 14
"""Bytes to read of a program's standard error."""
_REAPED_ELSEWHERE: Final = 0
"""The exit code of a child for which something else in this process has waited, as in `subprocess`."""
_GLANCE: Final = 0.005
"""Seconds between looks whether a child has ended."""


class Child(Protocol):
    """The methods needed of a child process; `subprocess.Popen` has them."""

    @property
    def pid(self) -> int:
        """Its process id."""
        ...

    def poll(self) -> int | None:
        """Return its exit code, None while it runs."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return its exit code; raises `subprocess.TimeoutExpired`."""
        ...

    def kill(self) -> None:
        """Kill it, if it runs."""
        ...


class ForkedChild:
    """A child process that another process has forked for this one.

    One that nobody has waited for is waited for later, when the next one is made, as by `subprocess`.
    """

    _dropped: ClassVar[list[int]] = []

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None
        dropped, ForkedChild._dropped = ForkedChild._dropped, []
        ForkedChild._dropped += [each for each in dropped if not _has_ended(each)]

    def __del__(self) -> None:
        if self._code is None and not _has_ended(self.pid):
            ForkedChild._dropped.append(self.pid)

    def poll(self) -> int | None:
        """Return its exit code, below 0 for a signal, None while it runs."""
        return self._reap(os.WNOHANG)

    def _reap(self, flags: int) -> int | None:
        if self._code is None:
            try:
                pid, status = os.waitpid(self.pid, flags)
            except ChildProcessError:
                self._code = _REAPED_ELSEWHERE
            else:
                self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return its exit code.

        Raises:
            subprocess.TimeoutExpired: It still runs after that many seconds.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while (code := self._reap(0 if end is None else os.WNOHANG)) is None:
            if end is not None and time.monotonic() >= end:
                raise subprocess.TimeoutExpired("agent", timeout or 0.0)
            time.sleep(_GLANCE)
        return code

    def kill(self) -> None:
        """Kill it, if it runs."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def _has_ended(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True


class Ends(NamedTuple):
    """The two ends of a child's stream, and the descriptor of the nameless file of its standard error.

    The file has no name because it could be replaced, by a pipe for instance, from inside.
    """

    ours: socket.socket
    theirs: socket.socket
    errors: int


@contextlib.contextmanager
def open_ends() -> Iterator[Ends]:
    """Open a child's stream and file of errors, for a block that gives them to a child.

    `theirs` is closed at the latest after the block, the others only if the block raises.
    """
    with contextlib.ExitStack() as unless_kept:
        ours, theirs = socket.socketpair()
        unless_kept.callback(ours.close)
        with theirs:
            errors = os.memfd_create("hermes-errors", os.MFD_CLOEXEC)
            unless_kept.callback(os.close, errors)
            yield Ends(ours, theirs, errors)
        unless_kept.pop_all()


class AgentProcess:
    """A child process that communicates over its standard input and output.

    asyncio's subprocesses cost a waiting thread each on Python 3.11; a descriptor that becomes readable when the
    process ends costs nothing.

    Args:
        process: The process.
        reader: What it writes.
        writer: What it reads.
        errors: Descriptor of the file of its standard error; `end` closes it.
        is_agent: Whether it is an agent already, rather than a Python that waits for one.
    """

    def __init__(
        self, process: Child, reader: ByteReader, writer: ByteWriter, errors: int, *, is_agent: bool = False
    ) -> None:
        self._process = process
        self._errors = errors

        async def diagnose() -> str:
            return await asyncio.to_thread(read_errors, errors)

        self.stream = AgentStream(reader, writer, diagnose, is_agent=is_agent)

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str],
        uid: int | None = None,
        pass_fds: Sequence[int] = (),
    ) -> Self:
        """Start a program without the caller's environment, directory and descriptors."""
        # Spawned on the event loop's thread: bubblewrap dies with the *thread* that started it.
        try:
            with open_ends() as ends:
                process = spawn(
                    argv, ends.theirs.fileno(), ends.errors, environment=environment, uid=uid, pass_fds=pass_fds
                )
                try:
                    reader, writer = await open_callback_reader(ends.ours)
                except BaseException:
                    process.kill()
                    process.wait()
                    raise
        except OSError as error:
            raise system_error(f"{argv[0]} cannot be started", error) from error
        return cls(process, reader, writer, ends.errors)

    @property
    def pid(self) -> int:
        """Process id of the program."""
        return self._process.pid

    async def end(self, grace: float) -> bool:
        """Wait for it to end, kill it after `grace` seconds; True if it ended by itself, and well. Called once."""
        os.close(self._errors)
        return await end_child(self._process, grace)


async def end_child(process: Child, grace: float) -> bool:
    """Wait for a child to end, kill it after `grace` seconds; True if it ended by itself, and well."""
    if not await _wait(process, grace):
        process.kill()
        await _wait(process, None)
    return process.wait() == 0


async def _wait(process: Child, seconds: float | None) -> bool:
    if process.poll() is not None:
        return True
    try:
        fd = os.pidfd_open(process.pid)
    except OSError:
        return await asyncio.to_thread(_wait_without_descriptor, process, seconds)
    try:
        return await _await_end(fd, seconds)
    finally:
        os.close(fd)


def _wait_without_descriptor(process: Child, seconds: float | None) -> bool:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
        return True
    return False


def read_errors(fd: int) -> str:
    """Return the end of a child's standard error, see `Ends`."""
    return os.pread(fd, _SAID, max(0, os.fstat(fd).st_size - _SAID)).decode(errors="replace")


def spawn(
    argv: Sequence[str],
    stream: int,
    errors: int,
    *,
    environment: Mapping[str, str],
    uid: int | None = None,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a program with these descriptors in a new session, without the caller's environment and directory."""
    return subprocess.Popen(
        argv,
        stdin=stream,
        stdout=stream,
        stderr=errors,
        env=dict(environment),
        cwd="/",
        start_new_session=True,
        pass_fds=tuple(pass_fds),
        user=uid,
        group=uid,
        extra_groups=None if uid is None else [],
    )


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    loop.add_reader(fd, _resolve, future)
    try:
        await future
    finally:
        loop.remove_reader(fd)


async def read_all(fd: int, seconds: float) -> bytes:
    """Read a pipe to its end, and close it."""
    data = b""
    try:
        async with asyncio.timeout(seconds):
            while True:
                await _readable(fd)
                more = os.read(fd, 4096)
                if not more:
                    return data
                data += more
    finally:
        os.close(fd)


async def _await_end(pidfd: int, seconds: float | None) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await _readable(pidfd)
            return True
    except TimeoutError:
        return False


async def kill_and_wait(pidfd: int, seconds: float) -> bool:
    """Kill a process that may not be a child of ours and wait until it is gone, True if it is; closes `pidfd`.

    The first process of a PID namespace ends after all others in it, and each needs processor time to end: so it
    is waited for while any of them has run in the last `seconds`. Only that check needs a free descriptor.
    """
    try:
        number = _number_of(pidfd)
        namespace = _inner_namespace(number)
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        seen: Mapping[str, int] | None = None
        while not await _await_end(pidfd, seconds):
            before, seen = seen, await asyncio.to_thread(_run_times, number, namespace)
            if seen == before:
                return False
        return True
    finally:
        os.close(pidfd)


def _number_of(pidfd: int) -> str:
    """Return the id of a process; "-1" if it is gone."""
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/self/fdinfo/{pidfd}").read_text(encoding="ascii").splitlines()
        return next(line.split()[1] for line in lines if line.startswith("Pid:"))
    return "-1"


def _inner_namespace(number: str) -> str | None:
    """Return the PID namespace of a process if it is not ours: other processes of this machine do not count."""
    namespace = _pid_namespace(number)
    return namespace if namespace != _pid_namespace("self") else None


def _pid_namespace(pid: str) -> str | None:
    with contextlib.suppress(OSError):
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    return None


def _run_times(number: str, namespace: str | None) -> Mapping[str, int]:
    """Return how many nanoseconds a process has run, and each living process of a PID namespace."""
    pids = [number]
    if namespace is not None:
        with contextlib.suppress(OSError):
            found = [entry.name for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
            pids += [pid for pid in found if _pid_namespace(pid) == namespace]
    return {pid: _run_time(pid) for pid in pids}


def _run_time(pid: str) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0])
    return 0
