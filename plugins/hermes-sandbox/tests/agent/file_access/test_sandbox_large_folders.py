"""Directories of very many entries: others have their turn while one is listed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from hermes_core.contracts.errors import WorkspaceError
from hermes_core.contracts.sandbox import ExecResult, FileStat
from hermes_sandbox.backend.agent_sandbox import AgentSandbox
from hermes_sandbox.backend.changes import take_changes
from hermes_sandbox.posix_shell.client import Captured, Ran
from hermes_sandbox.posix_shell.files import PlainFiles

MANY = 100_000


async def turns_of_others(work: Awaitable[Any]) -> tuple[Any, int]:
    """Return what comes of it, and how many turns of the event loop others had meanwhile."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    try:
        return await work, turns
    finally:
        counting.cancel()


def entry(number: int) -> dict[str, Any]:
    return {"path": f"{number:06}", "kind": "file", "size": number, "mode": 0o644, "mtime": 1.5}


async def test_a_listing_of_an_agent_is_made_in_many_turns() -> None:
    batches = [[entry(start + number) for number in range(500)] for start in range(0, MANY, 500)]

    class Slot:
        exclusive = True

        async def collect(self, header: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
            del header
            return {}, batches

        def suspend(self, reason: str) -> None:
            """Be closed."""

        async def aclose(self) -> None:
            """Be closed."""

    async def connect(before: Any) -> Any:
        del before
        return Slot()

    async def release(sandbox: AgentSandbox) -> None:
        del sandbox

    host: Any = SimpleNamespace(workspace="/w", provenance={})
    spec: Any = None
    sandbox = AgentSandbox(sandbox_id="s", host=host, spec=spec, provenance={}, connect=connect, release=release)
    await sandbox.start()
    listed, turns = await turns_of_others(sandbox.list_dir())
    assert listed == [FileStat(**one) for batch in batches for one in batch]
    assert turns > MANY // 2000
    await sandbox.aclose()


async def test_a_listing_of_a_shell_is_made_in_many_turns_and_sorted_whatever_the_shell_does() -> None:
    order = [(number * 7919) % MANY for number in range(MANY)]
    said = b"".join(b"81a4 %d 1 %06d/\n" % (number, number) for number in order)

    async def run(script: bytes, stdin: bytes) -> Ran:
        del script, stdin
        return Ran(0, Captured(said, b"", len(said)), Captured(b"", b"", 0))

    listed, turns = await turns_of_others(PlainFiles(run, "/w").list_dir("."))
    assert [(one.path, one.size) for one in listed] == [(f"{number:06}", number) for number in range(MANY)]
    assert turns > MANY // 2000


class Holding:
    """A sandbox with one large folder."""

    workspace = "/w"
    provenance: ClassVar[dict[str, Any]] = {}

    def __init__(self, *, odd: str = "") -> None:
        self.entries = [FileStat(**entry(number)) for number in range(MANY)]
        if odd:
            self.entries[-1] = FileStat(**{**entry(0), "path": odd})

    async def exec(self, command: str, **fields: Any) -> ExecResult:
        del fields
        return ExecResult(exit_code=0, stdout=b"/w/big\n" if "readlink -f -- /w/big;" in command else b"")

    async def list_dir(self, path: str = ".") -> list[FileStat]:
        if path == "/w":
            return [FileStat(path="big", kind="directory", size=0, mode=0o755, mtime=0.0)]
        return self.entries


async def test_two_large_folders_are_compared_in_many_turns() -> None:
    target: Any = Holding()
    source: Any = Holding()
    said, turns = await turns_of_others(take_changes(target, source, "/w/big"))
    assert said == "copied"
    assert turns > 3 * MANY // 2000


@pytest.mark.parametrize("name", ["..", ".", "/", "a/b", "nul\0"])
async def test_a_name_that_is_none_is_found_among_many(name: str) -> None:
    target: Any = Holding()
    source: Any = Holding(odd=name)
    with pytest.raises(WorkspaceError, match="expected a file name in"):
        await take_changes(target, source, "/w/big")
