"""An agent that says nothing is given up in its time, by the name of where it is."""

from __future__ import annotations

import asyncio
import errno
import json
from typing import cast

import pytest

from hermes_core.contracts.errors import BackendError, SandboxLostError
from hermes_sandbox.agent.wire import PREFIX
from hermes_sandbox.protocol.client import AgentClient
from hermes_sandbox.protocol.streams import AgentStream


class Mute:
    """Takes everything and says nothing."""

    def __init__(self) -> None:
        self.transport = self
        self.written = b""

    def write(self, data: bytes | memoryview, /) -> None:
        """Take it."""
        self.written += data

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


async def _ask_and_answer(*answers: object) -> None:
    """Ask for a listing, and have the agent answer; `None` stands for the number of the question."""
    stream = _stream()
    client = AgentClient(stream)
    asked = asyncio.create_task(client.collect({"op": "list"}))
    async with asyncio.timeout(60):
        while not (written := cast("Mute", stream.writer).written):
            await asyncio.sleep(0)
        head, _ = PREFIX.unpack_from(written)
        number = json.loads(written[PREFIX.size : PREFIX.size + head])["id"]
        for answer in answers:
            text = json.dumps(answer).replace("null", str(number)).encode()
            cast("asyncio.StreamReader", stream.reader).feed_data(PREFIX.pack(len(text), 0) + text)
        await asked
    await client.aclose()


@pytest.mark.parametrize(
    "answer",
    [[], {"id": [1], "ok": {}}, {"id": None, "part": 7}, {"id": None, "error": 7}, {"id": None, "ok": 7}, {"no": 1}],
)
async def test_an_agent_that_talks_nonsense_is_given_up(answer: object) -> None:
    with pytest.raises(SandboxLostError, match="stream is broken"):
        await _ask_and_answer(answer)


ENTRY = {"path": "a", "kind": "file", "size": 1, "mode": 420, "mtime": 1.5}


@pytest.mark.parametrize(
    "part",
    [
        [[[], []]],
        ["name"],
        [{"path": ["a"]}],
        [{"path": {"a": {}}}],
        [{**ENTRY, "path": "a" * 5000}],
        [{str(number): number for number in range(100)}],
        [ENTRY] * 1001,
    ],
)
async def test_a_part_of_a_listing_that_is_no_list_of_entries_ends_the_sandbox(part: object) -> None:
    """Lists in lists have fifty times the size in memory that they have on the wire."""
    with pytest.raises(SandboxLostError, match="expected a list of entries as part of an answer"):
        await _ask_and_answer({"id": None, "part": part}, {"id": None, "ok": {}})


async def test_the_parts_of_an_honest_listing_are_taken() -> None:
    await _ask_and_answer({"id": None, "part": [ENTRY] * 1000}, {"id": None, "part": []}, {"id": None, "ok": {}})


async def test_a_listing_without_end_is_refused_and_no_more_of_it_is_kept() -> None:
    entry = {**ENTRY, "path": "a" * 4000}
    # 24 MB; and there is no end of it.
    with pytest.raises(OSError, match="more entries than can be listed at once") as caught:
        await _ask_and_answer(*[{"id": None, "part": [entry] * 200}] * 30)
    assert caught.value.errno == errno.EFBIG
