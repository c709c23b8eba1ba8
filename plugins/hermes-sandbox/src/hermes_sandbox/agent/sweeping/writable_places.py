"""Finds the world-writable directories, where users of slots can leave files."""

from __future__ import annotations

import os
import stat

from hermes_sandbox.agent.basics.stdlib import TYPE_CHECKING, NamedTuple, suppress

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

_NO_FILES = frozenset(
    (
        "binfmt_misc",
        "bpf",
        "cgroup",
        "cgroup2",
        "configfs",
        "debugfs",
        "devpts",
        "fusectl",
        "nsfs",
        "proc",
        "pstore",
        "securityfs",
        "sysfs",
        "tracefs",
    )
)
"""File systems in which users cannot make files."""
_ESCAPES = (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\"))


class _Mount(NamedTuple):
    path: str
    takes_files: bool


def writable_places(
    tops: Collection[str], kept: Collection[str], users: Collection[int], act_as: Callable[[int], None]
) -> Iterator[str]:
    """Yield the world-writable directories at and below `tops`.

    Mounts at a path in `kept` are left out, and directories made by users of slots: these are below another one.
    An image's own directories do not change, so one search is enough for the life of a host.

    Args:
        tops: Absolute paths.
        kept: Paths of volumes, whose files outlive the host.
        users: The users that slots have had.
        act_as: Switches to the owner of a directory, if only that one may list it.
    """
    mounts = list(_mount_points())
    apart = {mount.path for mount in mounts} | set(kept)
    for top in tops:
        inside = (mount for mount in mounts if mount.takes_files and _lies_in(mount.path, top))
        for start in sorted({top, *(mount.path for mount in inside)}):
            if not any(_lies_in(start, path) for path in kept):
                yield from _walk(start, apart - {start}, users, act_as)


def _lies_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _mount_points() -> Iterator[_Mount]:
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            fields = line.split(" ")
            kind, options = fields[fields.index("-") + 1], fields[5].split(",")
            path = fields[4]
            for escaped, character in _ESCAPES:
                path = path.replace(escaped, character)
            yield _Mount(path, kind not in _NO_FILES and "ro" not in options)


def _walk(start: str, apart: Collection[str], users: Collection[int], act_as: Callable[[int], None]) -> Iterator[str]:
    waiting = [start]
    while waiting:
        path = waiting.pop()
        # A directory that is gone, or that not even its owner can list, cannot lead to a file.
        with suppress(OSError):
            info = os.lstat(path)
            if not stat.S_ISDIR(info.st_mode) or info.st_uid in users:
                continue
            if info.st_mode & stat.S_IWOTH:
                yield path
            waiting += [found for found in _directories(path, info.st_uid, act_as) if found not in apart]


def _directories(path: str, owner: int, act_as: Callable[[int], None]) -> list[str]:
    act_as(owner)
    try:
        with os.scandir(path) as entries:
            return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    finally:
        act_as(0)
