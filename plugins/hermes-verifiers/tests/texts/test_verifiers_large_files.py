"""Files of the maximum size, or larger than their stated size: other rollouts do not wait for them."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import pytest

from hermes_core.contracts.sandbox import ExecResult, FileStat
from hermes_verifiers.texts.file_content import FileContentVerifier
from hermes_verifiers.texts.normalization import TextForm
from hermes_verifiers.texts.workspace_files import read_untrusted


class Answers:
    """A sandbox with one file for every path, which may report a false size."""

    workspace = "/work"

    def __init__(self, data: bytes, size: int | None = None) -> None:
        self.data = data
        self.size = len(data) if size is None else size
        self.asked: list[int | None] = []

    async def exec(self, command: str, **fields: Any) -> ExecResult:
        del command, fields
        return ExecResult(exit_code=0, stdout=b"/work\n/work/a\n")

    async def stat(self, path: str) -> FileStat:
        return FileStat(path=path, kind="file", size=self.size, mode=0o644, mtime=0.0)

    async def read_file(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        del path, offset
        self.asked.append(length)
        return self.data if length is None else self.data[:length]


async def score(data: bytes, *checks: dict[str, Any]) -> list[float]:
    options = FileContentVerifier.Options.model_validate(
        {"checks": [{"path": "a", "name": f"c{number}", **check} for number, check in enumerate(checks)]}
    )
    context = SimpleNamespace(sandbox=Answers(data))
    found = await FileContentVerifier(options).score(None, context)  # type: ignore[arg-type]  # it is not looked at
    return list(found.parts.values())


async def test_a_file_that_is_longer_than_it_says_is_read_no_further_than_it_may_be() -> None:
    sandbox: Any = Answers(bytes(2000), size=3)
    found = await read_untrusted(sandbox, "a", max_bytes=1000)
    assert (found.data, found.problem) == (None, "a has more than 1000 bytes")
    assert sandbox.asked == [1001]
    found = await read_untrusted(Answers(bytes(1000)), "a", max_bytes=1000)  # type: ignore[arg-type]  # what is needed
    assert found.data == bytes(1000)


async def test_a_large_file_is_made_a_text_once_for_all_its_checks() -> None:
    """It took a fifth of a second each, and again for a pattern, while all other rollouts waited."""
    checks = [{"contains": f"no {number}", "collapse_whitespace": True} for number in range(1000)]
    async with asyncio.timeout(60):
        assert set(await score(b"abc " * (1 << 20), *checks)) == {0.0}


async def test_others_go_on_while_a_file_is_compared() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    assert await score(b"a\r\n" * 1_000_000, {"contains": "a\na"}) == [1.0]
    counting.cancel()
    assert turns > 1


SHARP = "\N{LATIN SMALL LETTER SHARP S}".encode()
PIECES = (b"a", b" ", b"\r", b"\n", b"\r\n", b"\xff", SHARP, b"\xe2\x80", b"\xc2\x85")


@pytest.mark.parametrize("collapse", [False, True])
@pytest.mark.parametrize("strip", [False, True])
def test_a_text_is_the_same_wherever_a_slice_of_it_ends(strip, collapse):
    form = TextForm(strip, collapse, ignore_case=True)
    for seed in range(500):
        chance = random.Random(seed)
        data = b"A" * chance.randint((1 << 16) - 9, 1 << 16) + b"".join(chance.choices(PIECES, k=12))
        data = data if seed % 3 else data[(1 << 16) - 9 :]
        text = data.decode(errors="replace").replace("\r\n", "\n")
        text = " ".join(text.split()) if collapse else text
        wanted = (text.strip() if strip else text).casefold()
        assert form.of_bytes(data) == form.of(data.decode(errors="replace")) == wanted
