"""Processes that are still at work in a directory."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def at_work(place: Path) -> list[str]:
    """Return those that name the directory in their command line or environment, but for the calling one."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = (process / "cmdline").read_bytes()
            # An instance's own parent has only a variable with its settings in it.
            seen = line + (process / "environ").read_bytes()
            if str(place).encode() in seen and process.name != str(os.getpid()):
                found.append(f"{process.name} {line!r}")
    return found
