"""Runs on the machine: ends what carries a sandbox's marker and deletes its directory. Standard library, Python 3.8."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    """What can be seen of a process."""

    parent: int
    environment: bytes
    place: str


def look(folder: Path) -> Process | None:
    """Describe a process; None if it has ended."""
    with contextlib.suppress(OSError, IndexError):
        state, parent, *_ = (folder / "stat").read_bytes().rpartition(b")")[2].split()
        environment = b""
        place = ""
        # Neither is shown of another user's process, nor of one that has just been started.
        with contextlib.suppress(OSError):
            environment = b"\0" + (folder / "environ").read_bytes()
        with contextlib.suppress(OSError):
            place = str((folder / "cwd").resolve())
        return None if state in {b"Z", b"X"} else Process(int(parent), environment, place)
    return None


def belongs(process: Process, sandbox: str, root: str) -> bool:
    """Tell whether a process is the sandbox's: by its marker, its home, or, when it has removed both, its directory."""
    if b"\0HERMES_SANDBOX=" in process.environment:
        marks = (b"\0HERMES_SANDBOX=" + sandbox.encode() + b".", b"\0HOME=" + os.fsencode(root) + b".home\0")
        return any(mark in process.environment for mark in marks)
    return any(process.place == place or process.place.startswith(place + "/") for place in (root, root + ".home"))


def members(sandbox: str, root: str) -> set[int]:
    """Return the sandbox's processes, with all that they started."""
    looks = ((int(folder.name), look(folder)) for folder in Path("/proc").iterdir() if folder.name.isdigit())
    table = {pid: process for pid, process in looks if process is not None}
    found = {pid for pid, process in table.items() if belongs(process, sandbox, root)}
    more = found
    while more:
        more = {pid for pid, process in table.items() if process.parent in found} - found
        found |= more
    return found - {os.getpid(), os.getppid()}


def kill_all(sandbox: str, root: str) -> bool:
    """Kill until two looks in a row find nothing: what is born during a look is seen in the next."""
    clean = 0
    for _ in range(500):
        pids = members(sandbox, root)
        clean = 0 if pids else clean + 1
        if clean == 2:
            return True
        # Stopped first, so that what forks faster than it is killed cannot outrun this loop.
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in pids:
                with contextlib.suppress(OSError):
                    os.kill(pid, number)
        time.sleep(0.005)
    return False


def delete(*places: str) -> int:
    """Delete directories, however deep or write-protected; returns rm's status."""
    # rm, because Python's own deletion gives up on a tree a thousand levels deep.
    if subprocess.call(["rm", "-rf", "--", *places], stderr=subprocess.DEVNULL) == 0:
        return 0
    subprocess.call(["chmod", "-R", "u+rwX", "--", *places], stderr=subprocess.DEVNULL)
    return subprocess.call(["rm", "-rf", "--", *places])


def main() -> None:
    """Arguments: the sandbox's id, its directory, and "delete" when that shall go too."""
    sandbox, root, directory = sys.argv[1:4]
    if not kill_all(sandbox, root):
        sys.exit(f"processes of sandbox {sandbox} cannot be killed")
    sys.exit(delete(root, root + ".home") if directory == "delete" else 0)


if __name__ == "__main__":
    main()
