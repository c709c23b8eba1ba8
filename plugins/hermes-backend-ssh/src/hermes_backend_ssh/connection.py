"""One connection to a machine: programs in separate channels, and the agent's stream."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Self, TypeVar

from paramiko import Channel, Transport
from paramiko.ssh_exception import ChannelException, SSHException

from hermes_backend_ssh.login import connect, disconnect, reason
from hermes_backend_ssh.options import SshOptions
from hermes_backend_ssh.stream import open_stream
from hermes_core.contracts.errors import BackendError, SandboxLostError
from hermes_sandbox.backends import AgentStream
from hermes_sandbox.remote import CompletedCommand

T = TypeVar("T")
_SAID: Final = 1 << 14
"""Maximum bytes read from a program's standard error."""


class ChannelProgram:
    """A running program with a channel as its standard input and output."""

    def __init__(self, channel: Channel, stream: AgentStream, work: Callable[..., asyncio.Future[bool]]) -> None:
        self._channel = channel
        self._work = work
        self.stream = stream

    @property
    def over(self) -> bool:
        """Whether the program has ended, successfully or not."""
        return self._channel.status_event.is_set()

    async def wait(self, seconds: float) -> bool:
        """Wait for the end; return True if the program ended by itself with success."""
        return await self._work(self._wait, seconds)

    def _wait(self, seconds: float) -> bool:
        return self._channel.status_event.wait(seconds) and self._channel.exit_status == 0


class SshConnection:
    """A logged-in connection to a machine. Blocking calls run in a few threads of its own pool."""

    def __init__(self, options: SshOptions) -> None:
        self._options = options
        self._transports: list[Transport] = []
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="hermes-ssh")

    @classmethod
    async def open(cls, options: SshOptions) -> Self:
        """Connect and log in within the options' timeouts; cancellation does not interrupt it."""
        connection = cls(options)
        try:
            connection._transports = await connection._work(connect, options)
        except BaseException:
            connection._threads.shutdown(wait=False)
            raise
        return connection

    @property
    def name(self) -> str:
        """The machine's name for messages."""
        return self._options.name

    @property
    def alive(self) -> bool:
        """Whether the connection is open, as far as known."""
        return bool(self._transports) and self._transports[-1].is_active()

    def _work(self, function: Callable[..., T], *arguments: object) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)

    async def run(self, command: str, data: bytes = b"", *, timeout: float) -> CompletedCommand:
        """Run a program to its end; raise `SandboxLostError` if the connection breaks or the timeout passes."""
        return await self._work(self._run, command, data, timeout)

    def _run(self, command: str, data: bytes, timeout: float) -> CompletedCommand:
        end = time.monotonic() + timeout
        channel = self._start(command)
        try:
            channel.settimeout(timeout)
            channel.sendall(data)
            channel.shutdown_write()
            output = _drain(channel.recv, channel, end)
            complaint = _drain(channel.recv_stderr, channel, end)
            channel.status_event.wait(max(0.0, end - time.monotonic()))
        except TimeoutError as error:
            raise SandboxLostError(f"{self._options.name} did not finish within {timeout:g} s") from error
        except (SSHException, OSError, EOFError) as error:
            raise self._loss_error(error) from error
        finally:
            with contextlib.suppress(SSHException, OSError, EOFError):
                channel.close()
        return CompletedCommand(channel.exit_status, output, complaint.decode(errors="replace").strip())

    def _start(self, command: str) -> Channel:
        # Never SSHClient.exec_command: from several threads at once it ends the whole connection (paramiko #1584).
        try:
            channel = self._transports[-1].open_session(timeout=self._options.connect_timeout)
            channel.exec_command(command)
        except ChannelException as error:
            raise BackendError(
                f"{self._options.name} refuses another session: {error.text}",
                hint="raise MaxSessions in its sshd_config",
            ) from error
        except (SSHException, OSError, EOFError) as error:
            raise self._loss_error(error) from error
        return channel

    def _loss_error(self, error: Exception) -> SandboxLostError:
        return SandboxLostError(f"the connection to {self._options.name} is lost: {reason(error)}")

    async def start(self, command: str) -> ChannelProgram:
        """Start a program that communicates with the caller until its input ends."""
        channel = await self._work(self._start, command)
        reader, writer = open_stream(channel)

        async def diagnose() -> str:
            return (await self._work(_read_stderr, channel)).decode(errors="replace")

        return ChannelProgram(channel, AgentStream(reader, writer, diagnose), self._work)

    async def aclose(self) -> None:
        """Close the connection; safe to call twice."""
        transports, self._transports = self._transports, []
        if transports:
            await self._work(disconnect, transports)
            self._threads.shutdown(wait=False)


def _drain(receive: Callable[[int], bytes], channel: Channel, end: float) -> bytes:
    pieces: list[bytes] = []
    while True:
        channel.settimeout(max(0.01, end - time.monotonic()))
        piece = receive(1 << 16)
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)


def _read_stderr(channel: Channel) -> bytes:
    # Error output arrives before the end of the program; without an end, take what is there.
    channel.status_event.wait(1.0)
    return channel.recv_stderr(_SAID) if channel.recv_stderr_ready() else b""
