"""Reads the processes of this machine from /proc: whether one runs, and its descendants."""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

# The process is gone or hidden from us. Other errors, such as too many open files, say nothing about the process.
_NOT_TO_BE_SEEN: Final = (FileNotFoundError, ProcessLookupError, PermissionError)


class HostProcess(NamedTuple):
    """A running process. A pid is reused; the pair of pid and `start` (in ticks since boot) is unique."""

    pid: int
    parent: int
    session: int
    start: int


def running_process(pid: int) -> HostProcess | None:
    """Return the process with this pid, or None if none runs. A zombie does not count as running."""
    try:
        line = Path(f"/proc/{pid}/stat").read_bytes()
    except _NOT_TO_BE_SEEN:
        return None
    # The fields after the program's name, which ends at the last parenthesis; the name can contain parentheses.
    state, parent, _group, session, *others = line.rpartition(b")")[2].split()
    threads, start = int(others[13]), int(others[15])  # the fields 20 and 22 of proc(5)
    # A process whose first thread has ended before the others is also shown as a zombie.
    if state in {b"Z", b"X"} and threads <= 1:
        return None
    return HostProcess(pid, int(parent), int(session), start)


def running_processes() -> dict[int, HostProcess]:
    """Return all running processes by pid."""
    with os.scandir("/proc") as entries:
        pids = [int(entry.name) for entry in entries if entry.name.isdecimal()]
    return {process.pid: process for process in map(running_process, pids) if process is not None}


def with_descendants(running: Mapping[int, HostProcess], pids: Iterable[int]) -> set[int]:
    """Return these pids and the pids of all their descendants."""
    children: defaultdict[int, set[int]] = defaultdict(set)
    for process in running.values():
        children[process.parent].add(process.pid)
    found: set[int] = set()
    generation = set(pids)
    while generation:
        found |= generation
        generation = set().union(*(children[pid] for pid in generation)) - found
    return found


def signal_all(pids: Iterable[int], number: int) -> None:
    """Send a signal to each process. Skip processes that have ended or belong to another user."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
