"""Writes an arriving file or tree to its target and nowhere else, regardless of its sender."""

from __future__ import annotations

import errno
import os

from hermes_sandbox.agent.basics.stdlib import TYPE_CHECKING, contextmanager
from hermes_sandbox.agent.file_access.archive_format import PIECE, EntryReader, EntrySink
from hermes_sandbox.agent.file_access.atomic_file import Partial, beside
from hermes_sandbox.agent.file_access.directories import make_directories
from hermes_sandbox.agent.file_access.packing import shortfall

if TYPE_CHECKING:
    from collections.abc import Iterator

_ENTER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class _Entered:
    """A directory being filled: its path, and the mode and time it gets at the end."""

    def __init__(self, name: str, parent: int, final: tuple[int, int] | None) -> None:
        info = os.fstat(parent)
        self.name = name
        self.parent = (info.st_dev, info.st_ino)
        self.final = final


class Unpacker(EntrySink):
    """Writes entries below a directory, or a single file.

    Every step starts from the open directory of the entry and follows no symlink, so that no entry
    can lead elsewhere. A file is written under a temporary name and moved when it is complete; a directory is merged
    into an existing one, which keeps its mode and time.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.skipped: list[tuple[str, str]] = []
        self._path = os.fspath(path)
        self._single = False
        self._reader = EntryReader(self, single=False)
        self._entered: list[_Entered] = []
        self._fd = -1
        self._file: Partial | None = None
        self._position = 0
        self._written = 0
        self._coming = ("", 0, 0)

    def expect(self, *, single: bool) -> None:
        """Receive the kind of the copy: file or tree."""
        self._single = single
        self._reader = EntryReader(self, single=single)

    def add(self, piece: bytes) -> None:
        """Receive the next bytes of the stream."""
        self._reader.add(piece)

    def commit(self, sha256: str) -> tuple[int, int]:
        """Finish a complete and undamaged copy; returns the number of files and of their bytes."""
        self._reader.check_end(sha256)
        if self._file is not None:
            with self._at(""):
                self._file.settle(os.path.basename(self._path))
        self.abort()
        return self._reader.files, self._reader.bytes

    def abort(self) -> None:
        """Delete the incomplete file and close everything."""
        if self._file is not None:
            self._file.drop()
            self._file = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def directory(self, name: str, mode: int, mtime: int) -> None:
        """Make a directory, or use an existing one, and enter it."""
        with self._at(name):
            root = not self._entered
            place, parent = (self._path, None) if root else (name, self._fd)
            if root:
                make_directories(os.path.dirname(self._path))
            try:
                os.mkdir(place, 0o700, dir_fd=parent)
                final: tuple[int, int] | None = (mode, mtime)
            except FileExistsError:
                final = None
            fd = os.open(place, _ENTER, dir_fd=parent)
            self._entered.append(_Entered(name, fd if root else self._fd, final))
            if not root:
                os.close(self._fd)
            self._fd = fd

    def leave(self) -> None:
        """Give a new directory its mode and time, and return to its parent."""
        entered = self._entered[-1]
        with self._at(""):
            up = os.open("..", _ENTER, dir_fd=self._fd) if len(self._entered) > 1 else -1
            try:
                if up >= 0:
                    _require_same(up, entered.parent)
                if entered.final is not None:
                    os.fchmod(self._fd, entered.final[0])
                    os.utime(self._fd, ns=(entered.final[1], entered.final[1]))
            except BaseException:
                if up >= 0:
                    os.close(up)
                raise
            os.close(self._fd)
            self._fd = up
        self._entered.pop()

    def file(self, name: str, mode: int, mtime: int, size: int) -> None:
        """Begin a file under a temporary name."""
        self._coming = (name, mode, mtime)
        self._position = self._written = 0
        with self._at(name):
            if self._single:
                make_directories(os.path.dirname(self._path))
                # The caller chooses the path to the file, symlinks included; O_PATH needs no permission to list it.
                self._fd = os.open(os.path.dirname(self._path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            self._file = Partial(self._fd, nameless=self._single or size > PIECE)

    def data(self, piece: memoryview) -> None:
        """Write bytes."""
        assert self._file is not None
        with self._at(self._coming[0]):
            while piece:
                count = os.pwrite(self._file.fd, piece, self._position)
                self._position += count
                piece = piece[count:]
        self._written = self._position

    def hole(self, length: int) -> None:
        """Leave a hole."""
        self._position += length

    def file_end(self, missing: int) -> None:
        """Give the file its length, mode, time and name; a single one gets its name after its hash is checked."""
        assert self._file is not None
        name, mode, mtime = self._coming
        if missing:
            self.skipped.append((self._path_inside(name), shortfall(missing)))
        with self._at(name):
            if self._position > self._written:
                os.ftruncate(self._file.fd, self._position)
            os.fchmod(self._file.fd, mode)
            os.utime(self._file.fd, ns=(mtime, mtime))
            if not self._single:
                self._file.settle(name)
                self._file = None

    def symlink(self, name: str, target: str, mtime: int) -> None:
        """Make a symlink, atomically replacing another one or a file."""
        with self._at(name):
            partial = beside()
            os.symlink(target, partial, dir_fd=self._fd)
            try:
                os.utime(partial, ns=(mtime, mtime), dir_fd=self._fd, follow_symlinks=False)
                os.replace(partial, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
            except BaseException:
                os.unlink(partial, dir_fd=self._fd)
                raise

    def omission(self, path: str, reason: str) -> None:
        """Record an omission."""
        self.skipped.append((path, reason))

    def _path_inside(self, name: str) -> str:
        return "/".join(part for part in (*(entered.name for entered in self._entered), name) if part)

    @contextmanager
    def _at(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            # Without its temporary name, and with its final one.
            shown = self._path_inside(name)
            where = f" ({shown!r} in it)" if shown else ""
            raise OSError(error.errno, f"{error.strerror}{where}", self._path) from None


def _require_same(fd: int, identity: tuple[int, int]) -> None:
    info = os.fstat(fd)
    if (info.st_dev, info.st_ino) != identity:
        raise OSError(errno.ESTALE, "The directory was moved while it was filled")
