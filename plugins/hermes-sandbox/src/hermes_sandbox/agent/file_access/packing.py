"""Writes a file or a tree as records, a bounded piece at a time, whatever is in the tree."""

from __future__ import annotations

import errno
import os
import stat

from hermes_sandbox.agent.basics.stdlib import TYPE_CHECKING
from hermes_sandbox.agent.file_access.archive_format import (
    DATA,
    DIRECTORY,
    END,
    FILE,
    FILE_END,
    HOLE,
    KEPT_MODE,
    LEAVE,
    LONGEST_HOLE,
    OMITTED,
    PIECE,
    SYMLINK,
    entry_record,
    hash_zeros,
    new_digest,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_RECORDS = 400
"""Approximate records per piece: many small files take longer than their bytes."""
_HOLE_COST = 100
_SIZELESS = 1 << 20
"""Bytes that are read of a file with size 0, as files in /proc have."""
_WALK = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# Errors that do not concern the entry: nothing more can be read at all.
_FATAL = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
_KINDS = ((stat.S_ISSOCK, "a socket"), (stat.S_ISFIFO, "a named pipe"), (stat.S_ISCHR, "a character device"))


class _Level:
    """A directory on the path from the root to the current one."""

    def __init__(self, fd: int, path: str) -> None:
        info = os.fstat(fd)
        self.path = path
        self.identity = (info.st_dev, info.st_ino)
        self.mode = info.st_mode & KEPT_MODE
        self.mtime = info.st_mtime_ns
        self.names = iter(sorted(os.listdir(fd), key=os.fsencode))
        # Needs search permission for the directory, as do its entries and the way back.
        os.stat("..", dir_fd=fd)


class Packer:
    """Reads a file or a tree and writes it as records.

    Symlinks are not followed, except `path` itself, if `follow`. At most two descriptors are open, however deep
    the tree. An entry that cannot be copied becomes a record, or an item of `omitted` if that is given.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        follow: bool,
        max_bytes: int | None = None,
        max_entries: int | None = None,
        omitted: list[tuple[str, str]] | None = None,
    ) -> None:
        self.files = 0
        self.bytes = 0
        self.ended = False
        self.digest = new_digest()
        self._omitted = omitted
        self._max_bytes = max_bytes
        self._max_entries = max_entries
        self._entries = 0
        self._directory = -1
        self._file = -1
        root = os.path.realpath(path) if follow else str(path)
        # realpath() also returns a path that it cannot read; this raises the reason.
        info = os.stat(path) if follow else os.lstat(path)
        self.single = follow and not stat.S_ISDIR(info.st_mode)
        if self.single and not stat.S_ISREG(info.st_mode):
            raise OSError(errno.EINVAL, "Not a regular file", str(path))
        self._steps = self._whole(root, info, follow=follow)

    def take(self, size: int = PIECE) -> bytes:
        """Return the next records, about `size` bytes, fewer if reading takes long; empty at the end."""
        pieces = []
        length, cost = 0, 0
        while length < size and cost < _RECORDS:
            step = next(self._steps, None)
            if step is None:
                self.ended = True
                break
            cost += step[0]
            length += len(step[1])
            pieces.append(step[1])
        data = b"".join(pieces)
        if not self.single:
            self.digest.update(data)
        return data

    def close(self) -> None:
        """Close all descriptors."""
        self.ended = True
        self._steps = iter(())
        for fd in (self._directory, self._file):
            if fd >= 0:
                os.close(fd)
        self._directory = self._file = -1

    def _whole(self, root: str, info: os.stat_result, *, follow: bool) -> Iterator[tuple[int, bytes]]:
        try:
            if not stat.S_ISDIR(info.st_mode):
                yield from self._entry(root, "", b"", None)
            elif self._exceeds(0):
                yield self._omit("", self._exceeds(0))
            else:
                yield from self._tree(os.open(root, _WALK))
        except OSError as error:
            if follow or self._entries or error.errno in _FATAL:
                raise
            yield self._omit("", error.strerror or str(error))
        yield 1, entry_record(END)

    def _tree(self, fd: int) -> Iterator[tuple[int, bytes]]:
        levels = [self._enter(fd, "")]
        yield 1, self._directory_record(b"", levels[-1])
        while levels:
            level = levels[-1]
            name = next(level.names, None)
            if name is not None:
                path = f"{level.path}/{name}" if level.path else name
                yield from self._inside(name, path, levels)
                continue
            levels.pop()
            if levels:
                self._go_up(levels[-1])
            yield 1, entry_record(LEAVE)

    def _enter(self, fd: int, path: str) -> _Level:
        try:
            level = _Level(fd, path)
        except BaseException:
            os.close(fd)
            raise
        if self._directory >= 0:
            os.close(self._directory)
        self._directory = fd
        return level

    def _go_up(self, level: _Level) -> None:
        fd = os.open("..", _WALK, dir_fd=self._directory)
        os.close(self._directory)
        self._directory = fd
        info = os.fstat(fd)
        if (info.st_dev, info.st_ino) != level.identity:
            raise OSError(errno.ESTALE, f"Below {level.path or 'it'} a directory was moved while it was copied")

    def _directory_record(self, name: bytes, level: _Level) -> bytes:
        self._entries += 1
        return entry_record(DIRECTORY, name, mode=level.mode, mtime=level.mtime)

    def _inside(self, name: str, path: str, levels: list[_Level]) -> Iterator[tuple[int, bytes]]:
        try:
            mode = os.stat(name, dir_fd=self._directory, follow_symlinks=False).st_mode
            if not stat.S_ISDIR(mode):
                yield from self._entry(name, path, os.fsencode(name), self._directory)
                return
            reason = self._exceeds(0)
            if not reason:
                levels.append(self._enter(os.open(name, _WALK, dir_fd=self._directory), path))
                yield 1, self._directory_record(os.fsencode(name), levels[-1])
                return
        except FileNotFoundError:
            return  # It was deleted after the directory was read.
        except OSError as error:
            if self._file >= 0 or error.errno in _FATAL:
                raise
            reason = error.strerror or str(error)
        yield self._omit(path, reason)

    def _entry(self, name: str, path: str, shown: bytes, parent: int | None) -> Iterator[tuple[int, bytes]]:
        info = os.stat(name, dir_fd=parent, follow_symlinks=False)
        regular = stat.S_ISREG(info.st_mode)
        reason = self._exceeds(info.st_size if regular else 0)
        if not regular and not stat.S_ISLNK(info.st_mode):
            reason = next((text for test, text in _KINDS if test(info.st_mode)), "a block device")
        if reason:
            yield self._omit(path, reason)
        elif regular:
            yield from self._regular(name, path, shown, parent)
        else:
            target = os.fsencode(os.readlink(name, dir_fd=parent))
            self._entries += 1
            yield 1, entry_record(SYMLINK, shown, target, mtime=info.st_mtime_ns)

    def _regular(self, name: str, path: str, shown: bytes, parent: int | None) -> Iterator[tuple[int, bytes]]:
        fd = os.open(name, _READ, dir_fd=parent)
        try:
            info = os.fstat(fd)
            _require_regular_still(info)
            sizeless = b"" if info.st_size else _read_sizeless(fd)
        except BaseException:
            os.close(fd)
            raise
        self._file = fd
        size = info.st_size or len(sizeless)
        self._entries += 1
        self.files += 1
        yield 1, entry_record(FILE, shown, mode=info.st_mode & KEPT_MODE, number=size, mtime=info.st_mtime_ns)
        before = self.bytes
        yield from self._content(fd, info, sizeless)
        if self._omitted is not None and self.bytes - before < size:
            self._omitted.append((path, shortfall(before + size - self.bytes)))
        self._file = -1
        os.close(fd)
        yield 1, entry_record(FILE_END)

    def _content(self, fd: int, info: os.stat_result, sizeless: bytes) -> Iterator[tuple[int, bytes]]:
        if sizeless:
            yield from self._data(sizeless)
        position = 0
        for start, end in _extents(fd, info):
            yield from self._hole(start - position)
            position = start
            while position < end:
                data = os.pread(fd, min(PIECE, end - position), position)
                if not data:
                    return  # It became shorter: the end record says how much is missing.
                position += len(data)
                yield from self._data(data)
        yield from self._hole(info.st_size - position)

    def _data(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        if self.single:
            self.digest.update(data)
        self.bytes += len(data)
        yield 0, entry_record(DATA, number=len(data))
        yield 1, data

    def _hole(self, length: int) -> Iterator[tuple[int, bytes]]:
        while length > 0:
            part = min(length, LONGEST_HOLE)
            length -= part
            self.bytes += part
            if self.single:
                hash_zeros(self.digest, part)
            yield _HOLE_COST if self.single else 1, entry_record(HOLE, number=part)

    def _exceeds(self, size: int) -> str:
        if self._max_entries is not None and self._entries >= self._max_entries:
            return "more entries than max_entries"
        if self._max_bytes is not None and self.bytes + size > self._max_bytes:
            return f"its {size} bytes exceed max_bytes"
        return ""

    def _omit(self, path: str, reason: str) -> tuple[int, bytes]:
        if self._omitted is None:
            return 1, entry_record(OMITTED, os.fsencode(path), reason.encode())
        self._omitted.append((path, reason))
        return 1, b""


def shortfall(missing: int) -> str:
    """Return the text about a file that became shorter during the copy."""
    return f"its last {missing} bytes disappeared during the copy"


def _require_regular_still(info: os.stat_result) -> None:
    if not stat.S_ISREG(info.st_mode):
        raise OSError(errno.ESTALE, "was replaced while it was copied")


def _read_sizeless(fd: int) -> bytes:
    data = b""
    while len(data) <= _SIZELESS:
        more = os.read(fd, _SIZELESS)
        if not more:
            return data
        data += more
    raise OSError(errno.EFBIG, f"has size 0 but more than {_SIZELESS} bytes")


def _extents(fd: int, info: os.stat_result) -> Iterator[tuple[int, int]]:
    """Yield the ranges of a file's data, between its holes."""
    size = info.st_size
    if info.st_blocks * 512 >= size:
        yield 0, size
        return
    position = 0
    while position < size:
        try:
            start = os.lseek(fd, position, os.SEEK_DATA)
            end = min(os.lseek(fd, start, os.SEEK_HOLE), size)
        except OSError as error:
            if error.errno != errno.ENXIO:  # no more data
                yield position, size
            return
        if start < size:
            yield start, end
        position = end
