"""Writes entries of a sandbox to a .tar.gz of this machine."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import posixpath
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hermes_sandbox.agent.file_access.archive_format import EntryReader, EntrySink
from hermes_sandbox.agent.file_access.atomic_file import Partial
from hermes_sandbox.agent.file_access.packing import shortfall
from hermes_sandbox.agent.wire import FrameError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_BLOCK: Final = tarfile.BLOCKSIZE
_ZEROS: Final = memoryview(bytes(1 << 20))
_LEVEL: Final = 6


class _Hashed(io.RawIOBase):
    """A file that computes the hash of the bytes written to it."""

    def __init__(self, fd: int) -> None:
        super().__init__()
        self.digest = hashlib.sha256()
        self._fd = fd

    def forget(self) -> None:
        """Ignore further writes: an unfinished gzip stream writes its rest when it is garbage-collected.

        By then the descriptor's number may belong to another file.
        """
        self._fd = -1

    def write(self, data: ReadableBuffer, /) -> int:
        view = memoryview(data)
        self.digest.update(view)
        while view and self._fd >= 0:
            view = view[os.write(self._fd, view) :]
        return len(memoryview(data))


class TarWriter(EntrySink):
    """Writes entries into an archive, to a temporary file until it is complete.

    The same entries give the same bytes: it holds no users, and no times except those of the entries.
    """

    def __init__(self, target: Path, *, max_bytes: int | None = None, max_entries: int | None = None) -> None:
        self.omissions: list[tuple[str, str]] = []
        self.files = 0
        self.bytes = 0
        self.entries = 0
        self._limits = (max_bytes, max_entries)
        self._target = target
        self._directory = -1
        self._partial: Partial | None = None
        self._names: list[str] = []
        self._reader: EntryReader | None = None
        self._prefix = ""
        self._written = 0
        self._size = 0
        self._last = ""

    def open(self) -> None:
        """Create the file."""
        self._target.parent.mkdir(parents=True, exist_ok=True)
        self._directory = os.open(self._target.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._partial = Partial(self._directory, nameless=True, mode=0o666)
        self._below = _Hashed(self._partial.fd)
        self._gzip = gzip.GzipFile("", "wb", _LEVEL, self._below, 0)

    def allowance(self) -> tuple[int | None, int | None]:
        """Return how many bytes of content and how many entries may still be added."""
        used = (self.bytes, self.entries)
        left = [None if limit is None else limit - count for limit, count in zip(self._limits, used, strict=True)]
        return left[0], left[1]

    def _require_within_limits(self) -> None:
        if any(left is not None and left < 0 for left in self.allowance()):
            text = f"{self.entries} entries with {self.bytes} bytes were sent, more than requested"
            raise FrameError(text)

    def begin(self, path: str, *, single: bool) -> None:
        """Begin the entries of one requested path; its members are named after it, and cannot leave it."""
        self._prefix = member_name(path)
        self._names = []
        self._reader = EntryReader(self, single=single)

    def add(self, piece: bytes) -> None:
        """Take the next bytes of the stream."""
        assert self._reader is not None
        self._reader.add(piece)

    def end(self, sha256: str) -> None:
        """Check that the path is complete."""
        assert self._reader is not None
        self._reader.check_end(sha256)

    def commit(self) -> str:
        """Close the archive, move it to its name and return its hash."""
        self._gzip.write(bytes(tarfile.RECORDSIZE - self._written % tarfile.RECORDSIZE or tarfile.RECORDSIZE))
        self._gzip.close()
        assert self._partial is not None
        self._below.forget()
        self._partial.settle(self._target.name)
        return self._below.digest.hexdigest()

    def abort(self) -> None:
        """Delete the unfinished archive and close everything; harmless after `commit`."""
        if self._partial is not None:
            self._below.forget()
            self._partial.drop()
        if self._directory >= 0:
            os.close(self._directory)
            self._directory = -1

    def directory(self, name: str, mode: int, mtime: int) -> None:
        """Write a directory and enter it."""
        self._names.append(name)
        self._member("", tarfile.DIRTYPE, mode, mtime)

    def leave(self) -> None:
        """Leave a directory."""
        self._names.pop()

    def file(self, name: str, mode: int, mtime: int, size: int) -> None:
        """Begin a file."""
        self.files += 1
        self._size = size
        self._member(name, tarfile.REGTYPE, mode, mtime, size=size)
        self._last = self._path(name)

    def data(self, piece: memoryview) -> None:
        """Write bytes of a file."""
        self.bytes += len(piece)
        self._require_within_limits()
        self._gzip.write(piece)

    def hole(self, length: int) -> None:
        """Write zeros."""
        self.bytes += length
        self._require_within_limits()
        self._zeros(length)

    def file_end(self, missing: int) -> None:
        """Fill the member with zeros."""
        if missing:
            self.omissions.append((self._last, f"{shortfall(missing)}; there are zeros instead"))
            self.hole(missing)
        filling = -self._size % _BLOCK
        self._zeros(filling)
        self._written += self._size + filling

    def symlink(self, name: str, target: str, mtime: int) -> None:
        """Write a symlink."""
        self._member(name, tarfile.SYMTYPE, 0o777, mtime, target=target)

    def omission(self, path: str, reason: str) -> None:
        """Record an omission."""
        self.omissions.append((self._path(path, flat=True), reason))

    def _zeros(self, count: int) -> None:
        for start in range(0, count, len(_ZEROS)):
            self._gzip.write(_ZEROS[: count - start])

    def _path(self, name: str, *, flat: bool = False) -> str:
        inside = [name] if flat else [*self._names, name]
        return "/".join(part for part in (self._prefix, *inside) if part) or "."

    def _member(self, name: str, kind: bytes, mode: int, mtime: int, *, size: int = 0, target: str = "") -> None:
        info = tarfile.TarInfo(self._path(name))
        info.type, info.mode, info.mtime, info.size, info.linkname = kind, mode, mtime // 10**9, size, target
        header = info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
        self.entries += 1
        self._require_within_limits()
        self._written += len(header)
        self._gzip.write(header)


def member_name(path: str) -> str:
    """Return a path as a member's name, neither absolute nor leading out of the archive; "" for the workspace."""
    parts = [part for part in posixpath.normpath(path).split("/") if part not in {"", ".", ".."}]
    return "/".join(parts)
