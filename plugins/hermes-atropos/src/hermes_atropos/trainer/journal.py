"""JSON Lines files that are written without blocking the event loop."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hermes_core.cancellation import run_uncancelled
from hermes_core.contracts.errors import OutputError
from hermes_core.contracts.model import encode
from hermes_runner import JsonlFile


class Journal:
    """An append-only JSONL file, of one or several processes; lines are serialised at once and written by a thread.

    If a write fails, the next `append` raises `OutputError` once, and the lines are written with the lines after them.
    `aclose` waits for the last line. The first write cuts off half a line that a killed process left.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.open("ab").close()
        except OSError as error:
            raise _unwritable_error(path, error) from error
        self._file: JsonlFile | None = None
        self._waiting = bytearray()
        self._writing: asyncio.Task[None] | None = None

    def append(self, value: Mapping[str, Any]) -> None:
        """Add a line; returns before it is written. If it raises, the line is not added and can be added again."""
        self._raise_if_failed()
        self._waiting += encode(value) + b"\n"
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._flush())

    async def aclose(self) -> None:
        """Write pending lines, including those of a failed write, and close the file; a cancelled caller also waits."""
        try:
            await run_uncancelled(self._write_rest())
        finally:
            if self._file is not None:
                self._file.close()

    async def _write_rest(self) -> None:
        if self._writing is not None:
            await asyncio.gather(self._writing, return_exceptions=True)  # there may be room now
        self._writing = asyncio.create_task(self._flush())
        await self._writing

    async def _flush(self) -> None:
        while self._waiting:
            lines, self._waiting = bytes(self._waiting), bytearray()
            try:
                await asyncio.to_thread(self._write, lines)
            except OutputError:
                self._waiting[:0] = lines  # the next write tries them again
                raise

    def _write(self, lines: bytes) -> None:
        try:
            self._file = self._file or JsonlFile(self.path)
            self._file.append_line(lines)
        except OutputError as error:
            raise _unwritable_error(self.path, error.__cause__) from error

    def _raise_if_failed(self) -> None:
        if self._writing is None or not self._writing.done() or self._writing.cancelled():
            return
        error = self._writing.exception()
        if error is not None:
            self._writing = None
            raise error


def _unwritable_error(path: Path, error: BaseException | None) -> OutputError:
    hint = "free space there, or give another path"
    return OutputError(f"{path} cannot be written: {getattr(error, 'strerror', None) or error}", hint=hint)


def unused_path(path: Path) -> Path:
    """Return the path, or the first of path_1, path_2, … that does not exist: earlier data is never overwritten."""
    return next(candidate for candidate in candidates(path) if not candidate.exists())


def candidates(path: Path) -> Iterator[Path]:
    """Yield the path, path_1, path_2, …."""
    yield path
    for number in itertools.count(1):
        yield path.with_stem(f"{path.stem}_{number}")
