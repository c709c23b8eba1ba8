"""Runs on the machine: ends processes with a sandbox's mark, deletes its directory. Standard library, Python 3.8."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

_LOOKS = 200
"""Rounds after which a crowd without a bound, which forks faster than it is stopped, is killed as far as known."""
_MANY = 1 << 30
_PATIENCE = 2.0
"""Seconds without progress after which processes count as unkillable."""


class Process(NamedTuple):
    """The visible facts of a process."""

    parent: int
    name: bytes
    """The name of a process of this user that hides its environment, as an agent does; empty for others."""
    environment: bytes
    place: str


def look(folder: Path) -> Process | None:
    """Describe a process; None if it has ended."""
    with contextlib.suppress(OSError, IndexError):
        state, parent, *_ = (folder / "stat").read_bytes().rpartition(b")")[2].split()
        environment = name = b""
        place = ""
        # Neither is visible for another user's process or an agent, and nothing for a process that was just started.
        try:
            environment = b"\0" + (folder / "environ").read_bytes()
        except PermissionError:
            name = own_name(folder)
        except OSError:
            pass
        with contextlib.suppress(OSError):
            place = str((folder / "cwd").resolve())
        return None if state in {b"Z", b"X"} else Process(int(parent), name, environment, place)
    return None


def own_name(folder: Path) -> bytes:
    """Return the name of a process that this one may signal; empty for others, which could not be ended."""
    lines = (folder / "status").read_bytes().splitlines()
    fields = dict(line.split(b":\t", 1) for line in lines if b":\t" in line)
    return fields[b"Name"] if os.geteuid() in {0, int(fields[b"Uid"].split()[0])} else b""


def belongs(process: Process, sandbox: str, root: str) -> bool:
    """Tell whether a process is the sandbox's: by its mark or home, else by its name or directory."""
    if b"\0HERMES_SANDBOX=" in process.environment:
        marks = (b"\0HERMES_SANDBOX=" + sandbox.encode() + b".", b"\0HOME=" + os.fsencode(root) + b".home\0")
        return any(mark in process.environment for mark in marks)
    if process.name == sandbox.encode()[:15]:  # as the agent calls itself
        return True
    return any(process.place == place or process.place.startswith(place + "/") for place in (root, root + ".home"))


def groups_of(sandbox: str) -> list[Path]:
    """Return the control groups that the agent made for the sandbox."""
    name = f"hermes-sandbox-{sandbox}"
    return [Path(top, name) for top, names, _ in os.walk("/sys/fs/cgroup") if name in names]


def members(sandbox: str, root: str, groups: list[Path]) -> set[int]:
    """Return the sandbox's processes and their descendants."""
    looks = ((int(folder.name), look(folder)) for folder in Path("/proc").iterdir() if folder.name.isdigit())
    table = {pid: process for pid, process in looks if process is not None}
    found = {pid for pid, process in table.items() if belongs(process, sandbox, root)}
    for folder in (Path(top) for group in groups for top, _, _ in os.walk(str(group))):
        with contextlib.suppress(OSError):
            found |= {int(line) for line in (folder / "cgroup.procs").read_text().split()} & table.keys()
    more = found
    while more:
        more = {pid for pid, process in table.items() if process.parent in found} - found
        found |= more
    return found - {os.getpid(), os.getppid()}


def signal_all(pids: set[int], number: int) -> None:
    """Signal processes; those that have gone are skipped."""
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


def stop_and_kill(sandbox: str, root: str, groups: list[Path]) -> set[int]:
    """Stop them until a round finds no new one, and only then kill them: earlier, it would make room to fork."""
    stopped: set[int] = set()
    for _ in range(_LOOKS):
        new = members(sandbox, root, groups) - stopped
        if not new:
            break
        signal_all(new, signal.SIGSTOP)
        stopped |= new
    signal_all(stopped, signal.SIGKILL)
    return stopped


def kill_all(sandbox: str, root: str, groups: list[Path]) -> bool:
    """Kill until two rounds in a row find nothing: a process born during a round is seen in the next."""
    for group in groups:
        with contextlib.suppress(OSError):
            (group / "pids.max").write_text("0")
    clean, fewest, end = 0, _MANY, 0.0
    while clean < 2:
        left = len(stop_and_kill(sandbox, root, groups))
        clean = 0 if left else clean + 1
        if left < fewest:
            fewest, end = left, time.monotonic() + _PATIENCE
        elif left and time.monotonic() >= end:
            return False
        time.sleep(0.005)
    return True


def remove(groups: list[Path]) -> bool:
    """Remove the groups, and tell whether they are gone; the kernel removes dead processes after it unlists them."""
    end = time.monotonic() + _PATIENCE
    while groups and time.monotonic() < end:
        for group in groups:
            for top, names, _ in os.walk(str(group), topdown=False):
                del names
                with contextlib.suppress(OSError):
                    Path(top).rmdir()
        groups = [group for group in groups if group.exists()]
        time.sleep(0.002)
    return not groups


def states_of(root: str) -> list[str]:
    """Return the directories with its sessions' saved state, but none of another user."""
    found = []
    for path in Path(root).parent.glob(Path(root).name + ".state-*"):
        with contextlib.suppress(OSError):
            if path.lstat().st_uid == os.geteuid():
                found.append(str(path))
    return found


def delete(*places: str) -> int:
    """Delete directories, however deep or write-protected; returns rm's status."""
    # rm, because Python's own deletion gives up on a tree a thousand levels deep.
    if subprocess.call(["rm", "-rf", "--", *places], stderr=subprocess.DEVNULL) == 0:
        return 0
    subprocess.call(["chmod", "-R", "u+rwX", "--", *places], stderr=subprocess.DEVNULL)
    return subprocess.call(["rm", "-rf", "--", *places])


def main() -> None:
    """Arguments: the sandbox's id, its directory, and "delete" to delete that too."""
    sandbox, root, directory = sys.argv[1:4]
    groups = groups_of(sandbox)
    if not kill_all(sandbox, root, groups):
        sys.exit(f"processes of sandbox {sandbox} cannot be killed")
    if not remove(groups):
        sys.exit(f"the control group of sandbox {sandbox} cannot be removed")
    sys.exit(delete(root, root + ".home", *states_of(root)) if directory == "delete" else 0)


if __name__ == "__main__":
    main()
