"""Files of JSON lines that are written without holding up the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from hermes_core.contracts.errors import OutputError
from hermes_core.contracts.model import encode


class Journal:
    """An append-only JSONL file; lines are serialised at once and written by a thread, in order.

    `aclose` waits for the last line; a line that could not be written raises `OutputError` there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: BinaryIO = path.open("ab")
        except OSError as error:
            raise OutputError(f"{path} cannot be written: {error.strerror}", hint="name another path") from error
        self._waiting = bytearray()
        self._writing: asyncio.Task[None] | None = None

    def append(self, value: Mapping[str, Any]) -> None:
        """Add a line; returns before it is written."""
        self._waiting += encode(value) + b"\n"
        if self._writing is None or self._writing.done():
            self._raise_if_failed()
            self._writing = asyncio.create_task(self._flush())

    async def aclose(self) -> None:
        """Write what waits and close the file."""
        try:
            while self._waiting or (self._writing is not None and not self._writing.done()):
                if self._writing is None or self._writing.done():
                    self._raise_if_failed()
                    self._writing = asyncio.create_task(self._flush())
                await asyncio.wait([self._writing])
            self._raise_if_failed()
        finally:
            # Every line has been flushed; closing fails only where that has failed, with the same cause.
            with contextlib.suppress(OSError):
                self._file.close()

    async def _flush(self) -> None:
        while self._waiting:
            lines, self._waiting = bytes(self._waiting), bytearray()
            await asyncio.to_thread(self._write, lines)

    def _write(self, lines: bytes) -> None:
        self._file.write(lines)
        self._file.flush()

    def _raise_if_failed(self) -> None:
        if self._writing is None or not self._writing.done() or self._writing.cancelled():
            return
        error = self._writing.exception()
        if error is not None:
            self._writing = None
            raise OutputError(f"{self.path} cannot be written: {error}") from error


def unused_path(path: Path) -> Path:
    """Return the path, or the first of path_1, path_2, … that does not exist: earlier data is never overwritten."""
    return next(candidate for candidate in candidates(path) if not candidate.exists())


def candidates(path: Path) -> Iterator[Path]:
    """Yield the path, path_1, path_2, …."""
    yield path
    for number in itertools.count(1):
        yield path.with_stem(f"{path.stem}_{number}")
