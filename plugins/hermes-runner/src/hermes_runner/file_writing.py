"""Writes files that a kill or a full disk does not damage: appended JSON lines, and files that are replaced.

A file is locked only while something is appended, so several processes can append to one file. A kill can therefore
only tear the last line; the next process that opens the file or appends to it cuts this part off. A line that does not
fit on the disk is cut off at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Final

from hermes_core.contracts.errors import OutputError
from hermes_core.contracts.model import encode

_FULL: Final = frozenset({27, 28, 122})  # EFBIG, ENOSPC, EDQUOT
_BLOCK: Final = 65536
"""Number of bytes read at once in the search for the last whole line."""


class JsonlFile:
    """An append-only file of JSON lines; half a line at its end is cut off."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise unwritable_error(path, error) from error
        with self._file_lock():
            self._cut_torn_tail()

    def append(self, value: Mapping[str, Any]) -> None:
        """Write one line, whole or not at all; raises `OutputError` when the disk is full."""
        self.append_line(encode(value) + b"\n")

    def append_line(self, line: bytes) -> None:
        """Write one line that is already serialised, or several; waits for another process that is writing."""
        with self._file_lock():
            self._cut_torn_tail()
            size = os.fstat(self._fd).st_size
            try:
                written = 0
                while written < len(line):
                    written += os.write(self._fd, memoryview(line)[written:])
            except OSError:
                with contextlib.suppress(OSError):  # only a regular file has a size to restore
                    os.ftruncate(self._fd, size)
                raise

    def lines(self) -> Iterator[bytes]:
        """Read the lines from the start."""
        with self.path.open("rb") as file:
            yield from file

    def close(self) -> None:
        """Close the file; safe to call twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    @contextlib.contextmanager
    def _file_lock(self) -> Iterator[None]:
        """Lock the file against other writers; an `OSError` in the block becomes an `OutputError`."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(self._fd, fcntl.LOCK_UN)  # a child that has the file open would keep the lock
        except OSError as error:
            raise unwritable_error(self.path, error) from error

    def _cut_torn_tail(self) -> None:
        size = os.fstat(self._fd).st_size
        if size == 0 or os.pread(self._fd, 1, size - 1) == b"\n":
            return
        end = size
        while end > 0:
            start = max(0, end - _BLOCK)
            newline = os.pread(self._fd, end - start, start).rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        if end < size:
            os.ftruncate(self._fd, end)


@contextlib.contextmanager
def replace_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a draft that replaces `path` when the block ends, or is removed if the block raises.

    A reader sees the old content or the new one, never a part of it, even after a power loss. Raises `OSError`.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with draft.open("wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def write_atomically(path: Path, text: str) -> Path:
    """Write a text with `replace_file` and return its path; raises `OutputError`."""
    try:
        with replace_file(path) as out:
            # UTF-8 cannot encode a lone surrogate; the backslash form is its escape in JSON.
            out.write(text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise unwritable_error(path, error) from error
    return path


def unwritable_error(path: Path, error: OSError) -> OutputError:
    """Return an error that says why a path cannot be written, and what to do."""
    hint = "free space there, then run the same command again to continue" if error.errno in _FULL else None
    with contextlib.suppress(OSError):
        if hint is None and not os.access(path if path.exists() else path.parent, os.W_OK):
            hint = "choose a writable folder with --out"
    return OutputError(f"cannot write {path}: {error.strerror}", hint=hint or "choose another folder with --out")
