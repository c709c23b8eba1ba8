"""Makes directories with those above them."""

from __future__ import annotations

import errno
import os


def make_directories(path: str, mode: int = 0o777) -> None:
    """Make a directory, if there is none, and those that are missing above it; only the last one gets the mode.

    Like `Path.mkdir(parents=True, exist_ok=True)`, for any number of parts: `os.makedirs` calls itself for each, and
    makes the first ones of a path that is too long.
    """
    below: list[str] = []
    above = path
    while not _make(above, 0o777 if below else mode):
        below.append(above)
        above = os.path.dirname(above.rstrip("/")) or "."
    for each in reversed(below):
        if not _make(each, mode if each == path else 0o777):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), each)


def _make(path: str, mode: int) -> bool:
    """Make a directory, if there is none; False if the one above it is missing."""
    try:
        os.mkdir(path, mode)
    except FileNotFoundError:
        return False
    except OSError:
        # Not only where something is in its place: a read-only file system may answer first.
        if not os.path.isdir(path):
            raise
    return True
