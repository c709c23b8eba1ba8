"""Processes of this machine, read from /proc: whether one runs, and all that it has started."""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

# What is gone, or hidden from us. Any other failure, as when descriptors are used up, says nothing about the process.
_NOT_TO_BE_SEEN: Final = (FileNotFoundError, ProcessLookupError, PermissionError)


class HostProcess(NamedTuple):
    """A process that runs; its pid may become another's, pid and `start` (in ticks since boot) together never do."""

    pid: int
    parent: int
    session: int
    start: int


def running_process(pid: int) -> HostProcess | None:
    """Return a process, None where none of this pid runs: one that has ended and waits to be collected is none."""
    try:
        line = Path(f"/proc/{pid}/stat").read_bytes()
    except _NOT_TO_BE_SEEN:
        return None
    # What follows the program's name, which ends at the last parenthesis since it may hold some of its own.
    state, parent, _group, session, *others = line.rpartition(b")")[2].split()
    threads, start = int(others[13]), int(others[15])  # the fields 20 and 22 of proc(5)
    # The first thread is a zombie also where it has ended before the others.
    if state in {b"Z", b"X"} and threads <= 1:
        return None
    return HostProcess(pid, int(parent), int(session), start)


def running_processes() -> dict[int, HostProcess]:
    """Return every process that runs, by pid."""
    with os.scandir("/proc") as entries:
        pids = [int(entry.name) for entry in entries if entry.name.isdecimal()]
    return {process.pid: process for process in map(running_process, pids) if process is not None}


def with_descendants(running: Mapping[int, HostProcess], pids: Iterable[int]) -> set[int]:
    """Return these pids and those of everything that they and their children have started."""
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
    """Send a signal to each; who has gone, or is another user's, gets none."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
