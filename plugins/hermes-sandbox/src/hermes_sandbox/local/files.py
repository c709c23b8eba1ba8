"""Makes, repairs and deletes the directories of a sandbox of this machine, and marks them with its lease."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from itertools import islice
from pathlib import Path
from typing import Final

from hermes_core.cancellation import run_uncancelled
from hermes_core.contracts.errors import BackendError, SandboxRefusedError
from hermes_sandbox.backend import bubblewrap
from hermes_sandbox.leases.book import Lease, write_lease
from hermes_sandbox.local.cgroups import PREFIX
from hermes_sandbox.local.limits import Limits
from hermes_sandbox.local.tmpfs import mount_sized, unmount
from hermes_sandbox.protocol.fd_limits import run_program

_LEASE: Final = "lease.json"
FOLDERS: Final = ("workspace", "home", "tmp")
"""The directories of a sandbox that its commands may write to."""
_FEW, _SHALLOW = 256, 16
"""Entries and levels of a tree that is deleted without starting a program for it."""


def make_directories(root: Path, uid: int, gid: int, limits: Limits, lease: Lease, *, with_accounts: bool) -> None:
    """Make a sandbox's directories for a user, with a copy of its lease.

    Together they hold at most `limits.disk` bytes, if that is given. With accounts: also the files that show the user
    inside.
    """
    root.mkdir(mode=0o700)
    if limits.disk is not None:
        _limit_disk(root, limits.disk)
    for name in FOLDERS:
        (root / name).mkdir(mode=0o700)
    if with_accounts:
        bubblewrap.write_accounts(root, uid, gid)
    if uid != os.geteuid():
        for path in (root, *root.iterdir()):
            os.chown(path, uid, gid)
    write_lease_copy(root, lease)


def write_lease_copy(root: Path, lease: Lease) -> None:
    """Write a copy of the lease into a sandbox's directory, atomically."""
    write_lease(root / _LEASE, lease)


def find_abandoned(parent: Path, backend: str) -> list[Lease]:
    """Return the copies of a backend's leases whose owners are dead."""
    found = []
    for root in parent.glob(f"{PREFIX}*"):
        # Only what this user made: the temporary directory belongs to all.
        with contextlib.suppress(OSError, ValueError):
            copy = root / _LEASE
            if copy.lstat().st_uid == os.geteuid():
                lease = Lease.from_json(copy.read_bytes())
                # Several backends of this machine may have the same parent, and each removes only what is its own.
                if (lease.backend, lease.handle.get("root")) == (backend, str(root)) and lease.owner() == "dead":
                    found.append(lease)
    return found


def _limit_disk(root: Path, size: int) -> None:
    try:
        mount_sized(root, size)
    except OSError as error:
        raise SandboxRefusedError(
            f"limit disk_mb cannot be enforced here: {error}", hint="run as root, or leave disk_mb out"
        ) from error


def restore_directories(root: Path) -> None:
    """Make the directories again that a command has deleted or replaced; they are empty then."""
    if root.is_dir() and not root.is_symlink():
        root.chmod(0o700)
    for path in (root, *(root / name for name in FOLDERS)):
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISDIR(path.lstat().st_mode):
                continue
            path.unlink()
        path.mkdir(mode=0o700)


async def delete_tree(root: Path) -> None:
    """Delete a directory and everything in it, however deep or write-protected."""
    await run_uncancelled(asyncio.to_thread(_delete_tree, root))


def _delete_tree(root: Path) -> None:
    unmount(root)
    with contextlib.suppress(OSError):
        if _delete_small(root):
            return
    for attempt in ("plain", "writable"):
        if attempt == "writable":
            run_program(["chmod", "-R", "u+rwX", "--", str(root)])
        # rm, because Python's own deletion recurses and gives up on a tree a thousand levels deep.
        status, complaint = run_program(["rm", "-rf", "--", str(root)])
        if status == 0:
            return
    raise BackendError(f"{root} cannot be deleted: {complaint}")


def _delete_small(root: Path) -> bool:
    """Delete a tree of few entries; False if there are more, of which some may be gone. Raises OSError."""
    fd = _open_folder(str(root), None)
    try:
        if _empty(fd, _FEW, _SHALLOW) < 0:
            return False
    finally:
        os.close(fd)
    root.rmdir()
    return True


def _empty(folder: int, entries: int, levels: int) -> int:
    """Delete what is in a directory; returns how many more of `entries` there could have been, below 0 for too many."""
    with os.scandir(folder) as found:
        listed = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in islice(found, entries + 1)]
    entries -= len(listed)
    for name, is_folder in listed:
        if entries < 0 or not levels:
            return -1
        if is_folder:
            # By descriptors: nothing can be put in a directory's place to have another one emptied.
            inner = _open_folder(name, folder)
            try:
                entries = _empty(inner, entries, levels - 1)
            finally:
                os.close(inner)
            if entries >= 0:
                os.rmdir(name, dir_fd=folder)
        else:
            os.unlink(name, dir_fd=folder)
    return entries


def _open_folder(name: str, folder: int | None) -> int:
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
