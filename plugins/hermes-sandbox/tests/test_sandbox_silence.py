"""An agent that says nothing is given up in its time, by the name of where it is."""

from __future__ import annotations

import asyncio

import pytest

from hermes_core.contracts.errors import BackendError, SandboxLostError
from hermes_sandbox.protocol.client import AgentClient, AgentStream


class Mute:
    """Takes everything and says nothing."""

    def __init__(self) -> None:
        self.transport = self

    def write(self, data: bytes | memoryview, /) -> None:
        """Take it."""

    async def drain(self) -> None:
        """There is always room."""

    def close(self) -> None:
        """End."""

    def is_closing(self) -> bool:
        """Tell that it is not."""
        return False

    def abort(self) -> None:
        """End."""

    async def wait_closed(self) -> None:
        """It is."""


def _stream() -> AgentStream:
    return AgentStream(asyncio.StreamReader(), Mute(), where=" in the cellar")


async def test_a_start_without_an_answer_takes_its_time_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    # Who cancels a request waits until the agent has stopped it; one that never answered is not waited for.
    monkeypatch.setattr("hermes_sandbox.protocol.client._ACKNOWLEDGE", 1e6)
    async with asyncio.timeout(60):
        with pytest.raises(BackendError, match=r"the agent in the cellar did not start within 0\.1 s"):
            await AgentClient.connect(_stream(), {}, timeout=0.1)


async def test_an_agent_that_falls_silent_is_named_by_where_it_is() -> None:
    client = AgentClient(_stream(), patience=0.1)
    async with asyncio.timeout(60):
        with pytest.raises(SandboxLostError, match="the agent in the cellar has been silent"):
            await client.request({"op": "ping"})
    await client.aclose()
