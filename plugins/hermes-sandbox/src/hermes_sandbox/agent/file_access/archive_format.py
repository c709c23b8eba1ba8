"""The format of a file or tree in transit: records whose names cannot lead elsewhere. Used at both ends."""

from __future__ import annotations

import struct

from hermes_sandbox.agent.basics.stdlib import TYPE_CHECKING
from hermes_sandbox.agent.wire import FrameError

if TYPE_CHECKING:
    from typing import Any

RECORD = struct.Struct("!cHIIQqI")
"""Kind, mode, lengths of the name and of the content, a number (a size, a hole), seconds and nanoseconds of a time.

Nanoseconds alone would end in the year 2262; the time of a file can be anything."""
DIRECTORY, LEAVE, FILE, DATA, HOLE, FILE_END, SYMLINK, OMITTED, END = (
    b"D", b"U", b"F", b"B", b"H", b"E", b"L", b"O", b"Z",
)  # fmt: skip
PIECE = 1 << 19
"""Approximate bytes of records that are sent together."""
LONGEST_HOLE = 1 << 24
"""The most zeros of a hole that are hashed at a time, so that hashing does not block others for long."""
MOST_HOLES = 8
"""The most holes of a single file in one piece: a sender ends a piece after five."""
KEPT_MODE = 0o1777
"""Permission bits that are copied: none that would let a copy run with its owner's rights."""
_ZEROS = memoryview(bytes(1 << 20))
_NAME_MAX = 4096
_PATH_MAX = 1 << 20
_SECOND = 10**9


def entry_record(
    kind: bytes, name: bytes = b"", content: bytes = b"", *, mode: int = 0, number: int = 0, mtime: int = 0
) -> bytes:
    """Return a record with its name and its content; DATA is followed by `number` bytes of content instead."""
    seconds, nanoseconds = divmod(mtime, _SECOND)
    return RECORD.pack(kind, mode, len(name), len(content), number, seconds, nanoseconds) + name + content


def hash_zeros(digest: Any, count: int) -> None:
    """Add so many zeros to a hash."""
    for start in range(0, count, len(_ZEROS)):
        digest.update(_ZEROS[: count - start])


def new_digest() -> Any:
    """Return an empty hash."""
    import hashlib  # imported here, because that is a third of the agent's start

    return hashlib.sha256()


class EntrySink:
    """Receives the entries of a copy as they arrive; names are single components, the root's is empty."""

    def directory(self, name: str, mode: int, mtime: int) -> None:
        """Receive a directory and enter it."""
        raise NotImplementedError

    def leave(self) -> None:
        """Return to the parent of the current directory."""
        raise NotImplementedError

    def file(self, name: str, mode: int, mtime: int, size: int) -> None:
        """Begin a file."""
        raise NotImplementedError

    def data(self, piece: memoryview) -> None:
        """Receive the next bytes of the file."""
        raise NotImplementedError

    def hole(self, length: int) -> None:
        """Receive a hole of so many zeros, which need not be written."""
        raise NotImplementedError

    def file_end(self, missing: int) -> None:
        """End the file; `missing` bytes of its size no longer existed when the sender read them."""
        raise NotImplementedError

    def symlink(self, name: str, target: str, mtime: int) -> None:
        """Receive a symlink."""
        raise NotImplementedError

    def omission(self, path: str, reason: str) -> None:
        """Receive the omission of an entry; `path` is relative to the root, empty for the root itself."""
        raise NotImplementedError


class EntryReader:
    """Splits a stream into records for a sink, and refuses what no honest sender writes.

    The hash is of the content of a single file, and of the stream of a directory.
    """

    def __init__(self, sink: EntrySink, *, single: bool) -> None:
        self.files = 0
        self.bytes = 0
        self.digest = new_digest()
        self._sink = sink
        self._single = single
        self._head = bytearray()
        self._wanted = RECORD.size
        self._data = 0
        self._missing = -1
        self._holes = 0
        self._depth = 0
        self._rooted = False
        self._ended = False

    def add(self, piece: bytes) -> None:
        """Take the next bytes of the stream."""
        if not self._single:
            self.digest.update(piece)
        self._holes = 0
        view = memoryview(piece)
        while view:
            if self._data:
                part = view[: self._data]
                view = view[len(part) :]
                self._content(part)
            else:
                part = view[: self._wanted - len(self._head)]
                view = view[len(part) :]
                self._head += part
                if len(self._head) == self._wanted:
                    self._complete()

    def check_end(self, sha256: str) -> None:
        """Raise `FrameError` unless all of it has arrived, undamaged."""
        found = self.digest.hexdigest()
        if not self._ended or self._head:
            raise FrameError("a copy ended before it was complete")
        if found != sha256:
            raise FrameError(f"a copy was damaged in transit: expected hash {sha256}, got {found}")

    def _content(self, part: memoryview) -> None:
        if self._single:
            self.digest.update(part)
        self._sink.data(part)
        self._data -= len(part)
        self.bytes += len(part)

    def _complete(self) -> None:
        kind, mode, name, content, number, seconds, nanoseconds = RECORD.unpack_from(self._head)
        if self._wanted == RECORD.size and name + content:
            if name > _PATH_MAX or content > _NAME_MAX:
                raise FrameError(f"a name of {name} bytes, with {content} bytes")
            self._wanted += name + content
            return
        text = bytes(self._head[RECORD.size :])
        self._head.clear()
        self._wanted = RECORD.size
        self._entry(
            kind, text[:name], text[name:], (mode & KEPT_MODE, number, seconds * _SECOND + nanoseconds % _SECOND)
        )

    def _entry(self, kind: bytes, name: bytes, content: bytes, values: tuple[int, int, int]) -> None:
        mode, number, mtime = values
        if self._ended or (self._missing >= 0) != (kind in {DATA, HOLE, FILE_END}):
            raise FrameError(f"unexpected record {kind!r}")
        if kind in {DATA, HOLE}:
            self._part(kind, number)
        elif kind == FILE_END:
            missing, self._missing = self._missing, -1
            self._sink.file_end(missing)
        elif kind == OMITTED:
            self._sink.omission(_decode(name), _decode(content))
        elif kind == END and self._depth == 0:
            self._ended = True
        elif kind == LEAVE and self._depth:
            self._depth -= 1
            self._sink.leave()
        else:
            self._new_entry(kind, self._check_name(kind, name), content, (mode, number, mtime))

    def _part(self, kind: bytes, number: int) -> None:
        if number > self._missing or (kind == HOLE and number > LONGEST_HOLE):
            raise FrameError(f"{number} bytes of a file that lacks {self._missing}")
        self._missing -= number
        if kind == DATA:
            self._data = number
            return
        if self._single:
            self._holes += 1
            if self._holes > MOST_HOLES:
                raise FrameError(f"more than {MOST_HOLES} holes at once")
            hash_zeros(self.digest, number)
        self.bytes += number
        self._sink.hole(number)

    def _check_name(self, kind: bytes, name: bytes) -> str:
        """Return a name if it can only mean an entry of the current directory."""
        if self._depth == 0 and (self._rooted or name):
            raise FrameError(f"a second root {name!r}")
        if self._depth and (name in {b"", b".", b".."} or b"/" in name or b"\0" in name or len(name) > _NAME_MAX):
            raise FrameError(f"{name!r} is not a name of an entry")
        if self._single and kind != FILE:
            raise FrameError(f"expected a record of a file, got {kind!r}")
        self._rooted = True
        return _decode(name)

    def _new_entry(self, kind: bytes, name: str, content: bytes, values: tuple[int, int, int]) -> None:
        mode, number, mtime = values
        if kind == DIRECTORY:
            self._depth += 1
            self._sink.directory(name, mode, mtime)
        elif kind == FILE:
            self.files += 1
            self._missing = number
            self._sink.file(name, mode, mtime, number)
        elif kind == SYMLINK and content and b"\0" not in content:
            self._sink.symlink(name, _decode(content), mtime)
        else:
            raise FrameError(f"an unknown record {kind!r}")


def _decode(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")
