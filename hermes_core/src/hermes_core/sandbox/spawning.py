"""Starting an agent as a child process of this one, and ending it."""

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

from hermes_core.contracts.errors import BackendError
from hermes_core.sandbox.client import AgentStream

_STREAM_BUFFER: Final = 1 << 18


class AgentProcess:
    """A child process that talks over its standard input and output.

    asyncio's own subprocesses cost a waiting thread each on Python 3.11; a descriptor that becomes readable when the
    process has ended costs nothing.
    """

    def __init__(self, process: subprocess.Popen[bytes], stream: AgentStream) -> None:
        self._process = process
        self.stream = stream

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str],
        errors: Path,
        uid: int | None = None,
        pass_fds: Sequence[int] = (),
    ) -> Self:
        """Start a program with nothing of the caller's: neither environment, nor directory, nor descriptors."""
        ours, theirs = socket.socketpair()
        with contextlib.ExitStack() as stack:
            stack.callback(theirs.close)
            # Spawned on the event loop's thread: bubblewrap dies with the *thread* that started it.
            try:
                process = _spawn(
                    argv, theirs.fileno(), environment=environment, errors=errors, uid=uid, pass_fds=pass_fds
                )
            except OSError as error:
                ours.close()
                raise BackendError(f"{argv[0]} cannot be started: {error}") from error

        async def diagnose() -> str:
            return await asyncio.to_thread(errors.read_text, errors="replace")

        try:
            reader, writer = await asyncio.open_connection(sock=ours, limit=_STREAM_BUFFER)
        except BaseException:
            ours.close()
            process.kill()
            process.wait()
            raise
        return cls(process, AgentStream(reader, writer, diagnose))

    @property
    def pid(self) -> int:
        """Process id of the program."""
        return self._process.pid

    async def end(self, grace: float) -> bool:
        """Wait for it to end, kill it after `grace` seconds; True if it ended by itself, and well."""
        if not await self._wait(grace):
            self._process.kill()
            await self._wait(None)
        return self._process.wait() == 0

    async def _wait(self, seconds: float | None) -> bool:
        if self._process.poll() is not None:
            return True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await readable(os.pidfd_open(self._process.pid))
                return True
        return False


def _spawn(
    argv: Sequence[str],
    stream: int,
    *,
    environment: Mapping[str, str],
    errors: Path,
    uid: int | None,
    pass_fds: Sequence[int],
) -> subprocess.Popen[bytes]:
    with errors.open("wb") as sink:
        return subprocess.Popen(
            argv,
            stdin=stream,
            stdout=stream,
            stderr=sink,
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


async def readable(fd: int) -> None:
    """Wait until a descriptor is readable, and close it."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    loop.add_reader(fd, _resolve, future)
    try:
        await future
    finally:
        loop.remove_reader(fd)
        os.close(fd)


async def read_all(fd: int, seconds: float) -> bytes:
    """Read a pipe to its end, and close it."""
    data = b""
    try:
        async with asyncio.timeout(seconds):
            while True:
                await readable(os.dup(fd))
                more = os.read(fd, 4096)
                if not more:
                    return data
                data += more
    finally:
        os.close(fd)


async def kill_and_wait(pid: int, seconds: float) -> bool:
    """Kill a process that may not be a child of ours and wait until it is gone; True if it is."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(fd, signal.SIGKILL)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await readable(fd)
            return True
    return False
