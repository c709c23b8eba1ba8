"""Deletes files of users without processes (the dead), in directories that others use as well."""

from __future__ import annotations

import errno
import os
import stat
from itertools import islice

from hermes_sandbox.agent.basics.stdlib import TYPE_CHECKING, NamedTuple, contextmanager

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

_NAMES_AT_ONCE = 4096
"""Names of a directory to hold in memory."""
_DEEPEST = 64
"""Directories open at a time; deeper ones are moved up first."""
_FOLDER = os.O_DIRECTORY | os.O_CLOEXEC
_ALL_FOR_OWNER = 0o700


def act_as(uid: int) -> None:
    """Switch the user for file access, from any previous user; 0 is the agent's own."""
    if os.geteuid() != uid:
        os.seteuid(0)
        os.seteuid(uid)


class _Folder(NamedTuple):
    """An open directory that is being searched."""

    fd: int
    owner: int
    path: str
    around: list[int]
    """The open directories of the dead above it, and itself if it belongs to them."""
    depth: int


class Removal:
    """Deletes what the `dead` own, at any depth, and nothing of others.

    Every step acts as the owner of the directory that it changes: root of a container may lack the capability to
    override permissions. A directory is read and changed through one descriptor, so that living processes cannot
    have another one emptied by putting it in its place.

    Args:
        dead: Users whose processes have all ended.
        living: Users of slots that may be running meanwhile.
    """

    def __init__(self, dead: Collection[int], living: Collection[int]) -> None:
        self.left: list[str] = []
        """What could not be deleted, and why."""
        self._dead = frozenset(dead)
        self._living = frozenset(living)
        self._heir = min(dead)
        self._moved = 0

    def search(self, place: str) -> None:
        """Delete entries in a directory that everybody may write to, and in directories of the living there."""
        try:
            with _open_folder(place, None) as held:
                self._empty(held, place, [], 0)
        except FileNotFoundError:
            return
        except OSError as error:
            self._note(place, error)
        finally:
            act_as(0)

    def _note(self, path: str, error: OSError) -> None:
        self.left.append(f"{path}: {error.strerror}")

    def _empty(self, held: int, path: str, around: list[int], depth: int) -> None:
        owner = os.fstat(held).st_uid
        act_as(owner)
        folder = _Folder(os.open(_again(held), os.O_RDONLY | _FOLDER), owner, path, around, depth)
        try:
            changed = True
            while changed:
                moved, changed = self._moved, False
                act_as(owner)
                for name in _names(folder.fd):
                    changed |= self._delete(name, folder)
                    act_as(owner)
                changed |= self._moved != moved
        finally:
            os.close(folder.fd)

    def _delete(self, name: str, folder: _Folder) -> bool:
        """Delete an entry, or the dead's files in it; True if it is gone."""
        try:
            info = os.stat(name, dir_fd=folder.fd, follow_symlinks=False)
            if stat.S_ISDIR(info.st_mode):
                return self._delete_directory(name, folder)
            # In a directory of the dead, also other users' entries, such as a link to a file of the image.
            if info.st_uid in self._dead or (folder.around and info.st_uid not in self._living):
                _as_one_of((folder.owner, self._heir), lambda: os.unlink(name, dir_fd=folder.fd))
                return True
        except FileNotFoundError:
            return False  # another user of the directory was quicker
        except OSError as error:
            self._note(f"{folder.path}/{name}", error)
        return False

    def _delete_directory(self, name: str, folder: _Folder) -> bool:
        path, around, depth = f"{folder.path}/{name}", folder.around, folder.depth
        with _open_folder(name, folder.fd) as held:
            info = os.fstat(held)
            if info.st_uid not in self._dead:
                # Directories of other slots can hold files of the dead if others may enter them.
                if info.st_uid in self._living and info.st_mode & stat.S_IXOTH:
                    _require_room(depth)
                    self._empty(held, path, [], depth + 1)
                return False
            self._take(held, info)
            if depth >= _DEEPEST and len(around) > 1:
                os.rename(name, os.urandom(16).hex(), src_dir_fd=folder.fd, dst_dir_fd=around[0])
                self._moved += 1
                return False
            _require_room(depth)
            self._empty(held, path, [*around, held], depth + 1)
            if self._bequeath(held):
                return False
        _as_one_of((folder.owner, self._heir), lambda: os.rmdir(name, dir_fd=folder.fd))
        return True

    def _take(self, held: int, info: os.stat_result) -> None:
        """Give a directory of one of the dead to the heir, with all permissions."""
        if info.st_uid != self._heir:
            act_as(0)
            os.chown(_again(held), self._heir, -1)
        act_as(self._heir)
        if info.st_mode & _ALL_FOR_OWNER != _ALL_FOR_OWNER:
            os.chmod(_again(held), info.st_mode & 0o777 | _ALL_FOR_OWNER)

    def _bequeath(self, held: int) -> bool:
        """Give a directory with entries of the living to one of those; False if they have none in it."""
        act_as(self._heir)
        with os.scandir(_again(held)) as entries:
            owners = (entry.stat(follow_symlinks=False) for entry in entries)
            other = next((info for info in owners if info.st_uid in self._living), None)
        if other is None:
            return False
        act_as(0)
        os.chown(_again(held), other.st_uid, other.st_gid)
        return True


def _require_room(depth: int) -> None:
    if depth >= _DEEPEST:
        raise OSError(errno.ELOOP, "is nested too deep among directories of others")


def _again(held: int) -> str:
    return f"/proc/self/fd/{held}"


@contextmanager
def _open_folder(name: str, folder: int | None) -> Iterator[int]:
    held = os.open(name, os.O_PATH | os.O_NOFOLLOW | _FOLDER, dir_fd=folder)
    try:
        yield held
    finally:
        os.close(held)


def _names(folder: int) -> Iterator[str]:
    with os.scandir(folder) as entries:
        while names := [entry.name for entry in islice(entries, _NAMES_AT_ONCE)]:
            yield from names


def _as_one_of(users: tuple[int, int], work: Callable[[], None]) -> None:
    try:
        act_as(users[0])
        work()
    except PermissionError:
        act_as(users[1])
        work()
