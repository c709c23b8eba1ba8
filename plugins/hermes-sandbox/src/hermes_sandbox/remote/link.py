"""The connection to another machine, as backends provide it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from hermes_sandbox.protocol.streams import AgentStream


@dataclass(frozen=True, slots=True)
class CompletedCommand:
    """The result of a program on the machine; its status is -1 if the link was lost before it was known."""

    status: int
    output: bytes
    complaint: str


class RemoteProgram(Protocol):
    """A running program whose standard input and output are a stream."""

    @property
    def stream(self) -> AgentStream:
        """Its standard input and output."""
        ...

    @property
    def over(self) -> bool:
        """Whether it is known to have ended."""
        ...

    async def wait(self, seconds: float) -> bool:
        """Wait for its end; True if it ended by itself, and well."""
        ...


class Link(Protocol):
    """A way to start programs on one machine: an SSH connection, a node of an allocation, an actor.

    `command` is a POSIX shell command line wherever one is taken.
    """

    @property
    def name(self) -> str:
        """The machine's name in messages; the same for two links to one machine."""
        ...

    @property
    def alive(self) -> bool:
        """Whether it is usable, as far as is known."""
        ...

    async def run(self, command: str, data: bytes = b"", *, timeout: float) -> CompletedCommand:
        """Run a program to its end, with `data` as its input; `timeout` is in seconds.

        Raises:
            SandboxLostError: The link was lost, or the program takes too long.
            BackendError: The program cannot be started.
        """
        ...

    async def start(self, command: str) -> RemoteProgram:
        """Start a program that communicates with the caller until its input ends."""
        ...

    async def aclose(self) -> None:
        """End every program started through it, and the link; safe to call twice."""
        ...
