"""Starts an agent as a child process of this one, and ends it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from hermes_sandbox.protocol.client import AgentStream
from hermes_sandbox.protocol.fd_limits import system_error
from hermes_sandbox.protocol.push_reader import open_callback_reader

_SAID: Final = 1 << 14
"""Bytes to read of a program's standard error."""


class AgentProcess:
    """A child process that communicates over its standard input and output.

    asyncio's subprocesses cost a waiting thread each on Python 3.11; a descriptor that becomes readable when the
    process ends costs nothing. The standard error goes to a nameless file: one with a name could be replaced, by a
    pipe for instance, from inside.
    """

    def __init__(self, process: subprocess.Popen[bytes], stream: AgentStream, errors: int) -> None:
        self._process = process
        self._errors = errors
        self.stream = stream

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
        with contextlib.ExitStack() as ours_until_started:
            # Spawned on the event loop's thread: bubblewrap dies with the *thread* that started it.
            try:
                ours, theirs = socket.socketpair()
                ours_until_started.callback(ours.close)
                with theirs:
                    errors = os.memfd_create("hermes-errors", os.MFD_CLOEXEC)
                    ours_until_started.callback(os.close, errors)
                    process = _spawn(argv, theirs.fileno(), errors, environment=environment, uid=uid, pass_fds=pass_fds)
            except OSError as error:
                raise system_error(f"{argv[0]} cannot be started", error) from error
            try:
                reader, writer = await open_callback_reader(ours)
            except BaseException:
                process.kill()
                process.wait()
                raise
            ours_until_started.pop_all()

        async def diagnose() -> str:
            return (await asyncio.to_thread(_end_of, errors)).decode(errors="replace")

        return cls(process, AgentStream(reader, writer, diagnose), errors)

    @property
    def pid(self) -> int:
        """Process id of the program."""
        return self._process.pid

    async def end(self, grace: float) -> bool:
        """Wait for it to end, kill it after `grace` seconds; True if it ended by itself, and well. Called once."""
        os.close(self._errors)
        if not await self._wait(grace):
            self._process.kill()
            await self._wait(None)
        return self._process.wait() == 0

    async def _wait(self, seconds: float | None) -> bool:
        if self._process.poll() is not None:
            return True
        try:
            fd = os.pidfd_open(self._process.pid)
        except OSError:
            return await asyncio.to_thread(self._wait_without_descriptor, seconds)
        try:
            return await _await_end(fd, seconds)
        finally:
            os.close(fd)

    def _wait_without_descriptor(self, seconds: float | None) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
            return True
        return False


def _end_of(fd: int) -> bytes:
    return os.pread(fd, _SAID, max(0, os.fstat(fd).st_size - _SAID))


def _spawn(
    argv: Sequence[str],
    stream: int,
    errors: int,
    *,
    environment: Mapping[str, str],
    uid: int | None,
    pass_fds: Sequence[int],
) -> subprocess.Popen[bytes]:
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
