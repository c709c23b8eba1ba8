"""A byte stream to an agent: the methods that are needed of its two ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol


class ByteReader(Protocol):
    """The methods needed of the agent's output; `asyncio.StreamReader` has them."""

    async def readexactly(self, n: int, /) -> bytes:
        """Return n bytes or raise `asyncio.IncompleteReadError`."""
        ...


class Abortable(Protocol):
    """The methods needed of the transport; `asyncio.WriteTransport` has them."""

    def is_closing(self) -> bool:
        """Tell whether it was closed or aborted."""
        ...

    def abort(self) -> None:
        """Close at once, dropping unsent bytes."""
        ...


class ByteWriter(Protocol):
    """The methods needed of the agent's input; `asyncio.StreamWriter` has them."""

    @property
    def transport(self) -> Abortable:
        """The transport, to abort the stream of an agent that does not read any more."""
        ...

    def write(self, data: bytes | memoryview, /) -> None:
        """Queue bytes."""
        ...

    async def drain(self) -> None:
        """Wait until there is room for more."""
        ...

    def close(self) -> None:
        """Close the stream, which makes the agent kill everything and exit."""
        ...

    async def wait_closed(self) -> None:
        """Wait until it is closed."""
        ...


async def _nothing_known() -> str:
    return ""


@dataclass(frozen=True, slots=True)
class AgentStream:
    """A byte stream to a Python that was started with `hermes_sandbox.backends.PYTHON_FLAGS`.

    `diagnose` returns its standard error, for messages; `where` follows "the agent" in them, such as " in it". If it
    `is_agent`, the agent is in it already, and is not sent.
    """

    reader: ByteReader
    writer: ByteWriter
    diagnose: Callable[[], Awaitable[str]] = _nothing_known
    where: str = ""
    is_agent: bool = False
