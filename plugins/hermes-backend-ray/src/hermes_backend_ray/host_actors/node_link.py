"""Links to nodes: one that starts programs with streams, and one for a departed node, which does nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from typing import Final

from hermes_backend_ray.host_actors.host_actor import HostActor
from hermes_backend_ray.host_actors.node_actor import TOKEN
from hermes_backend_ray.host_actors.node_reader import NodeReader
from hermes_core.cancellation import run_uncancelled
from hermes_core.contracts.errors import BackendError, SandboxLostError
from hermes_sandbox.backends import Abortable, AgentStream, open_callback_reader
from hermes_sandbox.remote import CompletedCommand, RemoteProgram

_CONNECT: Final = 15.0
"""Seconds in which a node must accept a connection."""
_STARTING: Final = 30.0
"""Seconds in which a node's actor must start a program; a stopped or starved actor never answers."""
_SLACK: Final = 10.0
"""Seconds beyond a command's own time until the call that runs it counts as lost."""


class RayProgram:
    """A running program on a node."""

    def __init__(self, host: HostActor, number: int, reader: NodeReader, writer: asyncio.StreamWriter) -> None:
        self.stream = AgentStream(reader, writer, self._diagnose)
        self._reader = reader
        self._host = host
        self._number = number
        self._status: int | None = None

    @property
    def over(self) -> bool:
        """Whether it is known that the program has ended, successfully or not."""
        return self._status is not None or self._host.lost is not None

    async def wait(self, seconds: float) -> bool:
        """Wait at most `seconds` for the program's end; return True if it ended by itself with status 0."""
        self._reader.expected = True
        with contextlib.suppress(SandboxLostError, TimeoutError):
            async with asyncio.timeout(seconds + _SLACK):
                self._status = await self._host.call("wait", self._number, seconds)
        return self._status == 0

    async def _diagnose(self) -> str:
        try:
            async with asyncio.timeout(_SLACK):
                said: bytes = await self._host.call("last_words", self._number)
        except (BackendError, TimeoutError) as error:
            return str(error)
        return said.decode(errors="replace")

    async def end(self) -> None:
        """Kill the program if it runs, and close its stream."""
        await self._reader.end()
        self.stream.writer.close()
        with contextlib.suppress(SandboxLostError, TimeoutError):
            async with asyncio.timeout(_SLACK):
                await self._host.call("drop", self._number)
        # Data that the program has not read by now will never be read.
        _abort(self.stream.writer.transport)
        await asyncio.sleep(0)


def _abort(transport: Abortable) -> None:
    # A transport that was closed with data to write, and has written it since, has no loop any more and raises this.
    with contextlib.suppress(AttributeError):
        transport.abort()


class RayLink:
    """One host's link to a node; the node's actor serves several links.

    Args:
        host: The actor.
        leave: Called once, when the link is closed.
    """

    def __init__(self, host: HostActor, leave: Callable[[], None]) -> None:
        self.host = host
        self.name = host.node.name
        self._programs: list[RayProgram] = []
        self._transports: list[Abortable] = []
        self._closed = False
        self._leave = leave
        host.on_loss(self._abort_transports)

    @property
    def alive(self) -> bool:
        """Whether the link can be used, as far as is known."""
        return not self._closed and self.host.lost is None

    def _abort_transports(self, _error: SandboxLostError) -> None:
        # A node that fails silently does not close its connections.
        for transport in self._transports:
            _abort(transport)

    async def run(self, command: str, data: bytes = b"", *, timeout: float) -> CompletedCommand:
        """Run a program to its end; raise `SandboxLostError` if the node is lost or the program takes too long."""
        self._check()
        try:
            async with asyncio.timeout(timeout + _SLACK):
                answer = await self.host.call("run", command, data, timeout)
        except TimeoutError:
            answer = None
        if answer is None:
            raise SandboxLostError(f"{self.name} did not finish within {timeout:g} s")
        status, output, complaint = answer
        return CompletedCommand(status, output, complaint.decode(errors="replace").strip())

    def _check(self) -> None:
        if self._closed:
            raise SandboxLostError(f"the link to {self.name} was closed")

    async def start(self, command: str) -> RayProgram:
        """Start a program that talks to the caller until its input ends."""
        self._check()
        return await run_uncancelled(self._start(command))

    async def _start(self, command: str) -> RayProgram:
        token = os.urandom(TOKEN)
        try:
            async with asyncio.timeout(_STARTING):
                number, port = await self.host.call("start", command, self.host.node.address, token)
        except TimeoutError as error:
            raise SandboxLostError(
                f"{self.name} did not start a program within {_STARTING:g} s",
                hint="is the node overloaded? `ray status`, and `top` there",
            ) from error
        try:
            reader, writer = await self._connect(number, port, token)
        except BaseException:
            with contextlib.suppress(BackendError, TimeoutError):
                async with asyncio.timeout(_SLACK):
                    await self.host.call("drop", number)
            raise
        program = RayProgram(self.host, number, reader, writer)
        self._programs.append(program)
        self._transports.append(writer.transport)
        if self.host.lost is not None:
            writer.transport.abort()
        return program

    async def _connect(self, number: int, port: int, token: bytes) -> tuple[NodeReader, asyncio.StreamWriter]:
        address = (self.host.node.address, port)
        sock = None
        try:
            async with asyncio.timeout(_CONNECT):
                sock = await _dial(address)
            reader = NodeReader(self.host, number)
            _, writer = await open_callback_reader(sock, reader)
        except (OSError, TimeoutError) as error:
            if sock is not None:
                sock.close()
            reason = "no answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
            raise BackendError(
                f"{self.name} cannot be reached directly, at port {port}: {reason}",
                hint="open the nodes' ports for this machine, or start the run on a node of the cluster",
            ) from error
        writer.write(token)
        return reader, writer

    async def aclose(self) -> None:
        """Close the link and end every program started through it; safe to call twice."""
        if self._closed:
            return
        self._closed = True
        self.host.forget(self._abort_transports)
        try:
            await asyncio.gather(*(program.end() for program in self._programs))
        finally:
            self._leave()


async def _dial(address: tuple[str, int]) -> socket.socket:
    loop = asyncio.get_running_loop()
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await loop.sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


class Departed:
    """A link to a departed node: nothing can be started, and there is nothing to remove."""

    alive = True

    def __init__(self, name: str) -> None:
        self.name = name

    async def run(self, command: str, data: bytes = b"", *, timeout: float) -> CompletedCommand:
        """Return success, because the processes have ended and Ray cannot reach the machine's files."""
        del command, data, timeout
        return CompletedCommand(0, b"", "")

    async def start(self, command: str) -> RemoteProgram:
        """Raise `SandboxLostError`."""
        del command
        raise SandboxLostError(f"{self.name} is no longer part of the cluster")

    async def aclose(self) -> None:
        """Do nothing."""
