"""Find processes that still use a directory."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def at_work(place: Path) -> list[str]:
    """Return the processes that name the directory in their command line or environment, except for this one."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = (process / "cmdline").read_bytes()
            # An instance's parent names the directory only in a variable with its settings.
            seen = line + (process / "environ").read_bytes()
            if str(place).encode() in seen and process.name != str(os.getpid()):
                found.append(f"{process.name} {line!r}")
    return found
