"""Raw file access. Each operation is a generator of answers, so that others run in between."""

from __future__ import annotations

import errno
import os
import stat

from hermes_sandbox.agent.basics.stdlib import TYPE_CHECKING, suppress
from hermes_sandbox.agent.file_access.directories import make_directories
from hermes_sandbox.agent.slot import Slot
from hermes_sandbox.agent.wire import CHUNK

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_DEEP = 3000
"""Characters of a path; the system accepts 4,095."""
_BATCH = 500


def _describe(name: str, info: os.stat_result) -> dict[str, Any]:
    kinds = ((stat.S_ISREG, "file"), (stat.S_ISDIR, "directory"), (stat.S_ISLNK, "symlink"))
    kind = next((word for test, word in kinds if test(info.st_mode)), "other")
    mode = stat.S_IMODE(info.st_mode)
    return {"path": name, "kind": kind, "size": info.st_size, "mode": mode, "mtime": info.st_mtime}


def _require_regular(mode: int, path: str) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "Not a regular file", path)


def _require_small(fd: int, wanted: int, limit: int) -> None:
    if wanted > limit:
        size = os.fstat(fd).st_size
        raise OSError(errno.EFBIG, f"has {size} bytes; read it in ranges with offset and length")


def read(slot: Slot, request: dict[str, Any]) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Send a file, or a range of it, in pieces; its hash comes last."""
    path = slot.path(request["path"])
    # Without O_NONBLOCK, opening a named pipe would stop the whole agent.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    import hashlib  # imported here, because that is a third of the agent's start

    try:
        _require_regular(os.fstat(fd).st_mode, path)
        os.lseek(fd, request["offset"], os.SEEK_SET)
        limit, left = request["limit"], request["length"]
        if left is None:
            _require_small(fd, os.fstat(fd).st_size - request["offset"], limit)
            left = limit + 1
        digest = hashlib.sha256()
        while left > 0:
            data = os.read(fd, min(CHUNK, left))
            if not data:
                break
            left -= len(data)
            if request["length"] is None and left == 0:
                _require_small(fd, limit + 1, limit)  # it has grown meanwhile
            digest.update(data)
            yield {"part": True}, data
        yield {"ok": {"sha256": digest.hexdigest()}}, b""
    finally:
        os.close(fd)


def describe(slot: Slot, request: dict[str, Any]) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Send the description of a path's target."""
    path = slot.path(request["path"])
    yield {"ok": _describe(path, os.stat(path))}, b""


def listing(slot: Slot, request: dict[str, Any]) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Send the entries of a directory in batches, sorted by name."""
    path = slot.path(request["path"])
    names = sorted(os.listdir(path), key=os.fsencode)
    for start in range(0, len(names), _BATCH):
        batch = []
        for name in names[start : start + _BATCH]:
            with suppress(FileNotFoundError):
                batch.append(_describe(name, os.lstat(f"{path}/{name}")))
        yield {"part": batch}, b""
    yield {"ok": {}}, b""


def remove(slot: Slot, request: dict[str, Any]) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Delete a file, a symlink, or a directory with everything in it."""
    path = slot.path(request["path"])
    if not stat.S_ISDIR(os.lstat(path).st_mode):
        os.unlink(path)
    else:
        waiting = [path]
        while waiting:
            depth = len(waiting)
            with os.scandir(waiting[-1]) as entries:
                for entry in list(entries):
                    if not entry.is_dir(follow_symlinks=False):
                        os.unlink(entry.path)
                    elif len(entry.path) < _DEEP:
                        waiting.append(entry.path)
                    else:
                        # System calls accept no longer path. The entry is found when the top directory is read again.
                        os.rename(entry.path, f"{path}/{os.urandom(16).hex()}")
            if len(waiting) == depth:
                os.rmdir(waiting.pop())
            yield {}, b""
    yield {"ok": {}}, b""


def require_replaceable(path: str) -> os.stat_result | None:
    """Return the stat of a path's target, None if there is none; raise if a shell could not write to it."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    _require_regular(found.st_mode, path)
    # As the acting user, who may differ from the agent's.
    if not os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
    return found


class Upload:
    """A file being written: a temporary one until it is complete, so that no reader sees half of it."""

    def __init__(self, path: str, mode: int | None) -> None:
        import hashlib

        # A symlink is followed, as a shell would.
        self._path = os.path.realpath(path)
        self._mode = mode
        self._digest = hashlib.sha256()
        make_directories(os.path.dirname(self._path))
        self._owner = (-1, -1)
        found = require_replaceable(self._path)
        self._keep = 0o666 & ~_umask() if found is None else stat.S_IMODE(found.st_mode)
        if found is not None:
            self._owner = (found.st_uid, found.st_gid)
        self._partial = f"{os.path.dirname(self._path)}/.hermes-{os.urandom(8).hex()}"
        self._fd = os.open(self._partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def add(self, data: bytes) -> None:
        """Receive the next bytes."""
        self._digest.update(data)
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]

    def commit(self, sha256: str) -> dict[str, Any]:
        """Move the file to its name if its content has the sent hash."""
        if self._digest.hexdigest() != sha256:
            raise OSError(errno.EIO, "The content was damaged in transit", self._path)
        with suppress(PermissionError):
            os.fchown(self._fd, *self._owner)
        os.fchmod(self._fd, self._keep if self._mode is None else self._mode)
        os.close(self._fd)
        self._fd = -1
        os.replace(self._partial, self._path)
        return {}

    def abort(self) -> None:
        """Delete the unfinished file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        with suppress(OSError):
            os.unlink(self._partial)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write(slot: Slot, request: dict[str, Any]) -> Upload:
    """Receive a file."""
    return Upload(slot.path(request["path"]), request["mode"])


STREAMS = {"read": read, "stat": describe, "list": listing, "remove": remove}
UPLOADS = {"write": write}
