"""The first line of a program's standard error, which any process in the sandbox may have written."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

import pytest

from hermes_backend_modal.stream import ExecErrors


async def _pieces(data: Iterable[bytes]) -> AsyncIterator[bytes]:
    for piece in data:
        yield piece


@pytest.mark.parametrize(
    ("pieces", "line", "rest"),
    [
        ([b"fir", b"st", b"\nrest", b" of it\n"], b"first", "rest of it\n"),
        ([b"first\n"], b"first", ""),
        ([b"\n\n"], b"", "\n"),
        ([b"no end"], None, "no end"),
    ],
)
async def test_the_first_line_is_told_from_the_rest(pieces: list[bytes], line: bytes | None, rest: str) -> None:
    errors = ExecErrors(_pieces(pieces))
    assert await errors.first_line() == line
    assert await errors.last_words() == rest


async def test_a_first_line_without_end_ends_at_64_kib() -> None:
    errors = ExecErrors(_pieces([bytes(1 << 10)] * 5000 + [b"\nlast words"]))
    line = await errors.first_line()
    assert line == bytes(1 << 16)
    assert (await errors.last_words()).endswith("\nlast words")
