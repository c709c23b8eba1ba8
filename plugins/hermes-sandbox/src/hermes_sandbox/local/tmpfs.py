"""Limits the size of a directory by a tmpfs mounted over it. Needs root."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Final

_NOSUID_NODEV: Final = 2 | 4
_DETACH: Final = 2


def mount_sized(directory: Path, size: int) -> None:
    """Mount an empty tmpfs of `size` bytes over a directory, open to its owner alone."""
    options = f"size={size},mode=700".encode()
    _call("mount", b"hermes-sandbox", os.fsencode(directory), b"tmpfs", ctypes.c_ulong(_NOSUID_NODEV), options)


def unmount(directory: Path) -> None:
    """Unmount a directory, with everything in it; a directory without a mount is not an error."""
    while directory.is_mount():
        _call("umount2", os.fsencode(directory), _DETACH)


def _call(name: str, *arguments: object) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), f"{name} of a tmpfs")
