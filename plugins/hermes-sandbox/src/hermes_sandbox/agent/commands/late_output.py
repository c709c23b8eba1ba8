"""Waiting, after the shell of a command has gone, for what others still write, as in `cmd > >(tee log)`."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection, Iterable
from itertools import islice

from hermes_sandbox.agent.processes import TICKS_A_SECOND, Process, read_process, with_descendants

LATE_OUTPUT = 0.02
"""Seconds for which what anybody still writes is waited for."""
_FILTERS_LONGEST = 5.0
"""Seconds for which filters are waited for, however slow the machine is."""
_FILTERS_BUDGET = 0.2
"""Seconds of processor time after which filters that go on working count as background work."""
_WORKING_LOOK = 0.01
"""Seconds until filters that work are looked at again."""
_ASLEEP_LOOKS = (0.002, 0.004, 0.008)
"""Seconds until filters that were all asleep are looked at again: one may be about to be woken, by whoever hands on."""
_PIPE = "pipe:["
_MOST_WRITERS = 64
_MOST_DESCRIPTORS = 64


def link_of(fd: int) -> str:
    """Return what the kernel calls that which a descriptor of this process leads to; nothing where it does not say."""
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115 - hot path
    return ""


class Filters:
    """The processes that pass on what a command has written: they read from one pipe and write to the command's.

    How long they take depends on the machine. A substituted `cat` may not even have begun when the shell has gone. So
    they are waited for while one of them works, that is, can run or waits for a disk. One that sleeps waits for
    something else, as in `tail -f log | grep x &`; what is no filter, as `sleep 300 &`, is background work.
    """

    def __init__(self, before: int, own: Collection[str] = ()) -> None:
        """Look at what was started after the process `before`; reading the pipes `own` makes nobody a filter."""
        self._before = before
        self._own = own
        self._end = time.monotonic() + _FILTERS_LONGEST
        self._first_ticks: dict[int, int] = {}
        self._asleep = 0
        self._without = False
        """Whether none has been found once."""

    def next_look(self, pipes: Collection[str]) -> float:
        """Return after how many seconds to look again; 0 if none that writes to these pipes has anything to do."""
        began = time.monotonic()
        try:
            processes = self._find(pipes)
        except OSError:
            # No descriptors are left to look with.
            return 0.0
        if not processes or time.monotonic() >= self._end or self._have_used_enough(processes):
            return 0.0
        if any(map(_works, processes)):
            self._asleep, seconds = 0, _WORKING_LOOK
        elif self._asleep == len(_ASLEEP_LOOKS):
            return 0.0
        else:
            self._asleep, seconds = self._asleep + 1, _ASLEEP_LOOKS[self._asleep]
        # Looking takes longer the more processes there are, and other commands have the rest of the time.
        return max(seconds, 10 * (time.monotonic() - began))

    def _find(self, pipes: Collection[str]) -> list[Process]:
        """Return the filters that work; where none does, all of them and what they have started."""
        started = _processes_after(self._before)
        writers = list(islice((pid for pid in started if _writes_to(pid, pipes)), _MOST_WRITERS))
        filters = [pid for pid in writers if self._reads(pid, pipes)]
        if not filters and not self._without:
            # One that works can have given its pipe another number while its descriptors were looked through.
            self._without = True
            return _working(writers)
        if not filters:
            return []
        if working := _working(filters):
            return working
        # In the order of their numbers, which is mostly that in which data pass through them: what has been handed on
        # while this looks is found with the next one. That an end is told backwards is what the later looks are for.
        table = {pid: found for pid, found in ((pid, read_process(pid)) for pid in started) if found is not None}
        return [table[pid] for pid in with_descendants(table, filters) if pid in table]

    def _have_used_enough(self, processes: Collection[Process]) -> bool:
        now = {each.pid: each.ticks + each.children_ticks for each in processes}
        used = sum(ticks - self._first_ticks.setdefault(pid, ticks) for pid, ticks in now.items())
        return used >= _FILTERS_BUDGET * TICKS_A_SECOND

    def _reads(self, pid: int, pipes: Collection[str]) -> bool:
        # All descriptors: the child of a shell has its pipe somewhere else before it is its standard input.
        try:
            with os.scandir(f"/proc/{pid}/fd") as entries:
                return any(self._is_source(entry, pipes) for entry in islice(entries, _MOST_DESCRIPTORS))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            return False

    def _is_source(self, entry: os.DirEntry[str], pipes: Collection[str]) -> bool:
        link = os.readlink(entry.path)  # noqa: PTH115 - hot path
        if not link.startswith(_PIPE) or link in pipes or link in self._own:
            return False
        # The permissions of the link say what the descriptor is open for.
        return bool(entry.stat(follow_symlinks=False).st_mode & 0o400)


def _works(process: Process) -> bool:
    return process.state in "RD"


def _working(pids: Iterable[int]) -> list[Process]:
    return [found for found in map(read_process, pids) if found is not None and _works(found)]


def _writes_to(pid: int, pipes: Collection[str]) -> bool:
    # Links are read and not followed: what a descriptor leads to may be a file system that never answers.
    for fd in (1, 2):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{pid}/fd/{fd}") in pipes:  # noqa: PTH115 - hot path
                return True
    return False


def last_process() -> int:
    """Return the number that was given to a process last; 0 where that cannot be known."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        fd = os.open("/proc/loadavg", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return int(os.read(fd, 200).split()[-1])
        finally:
            os.close(fd)
    return 0


def _processes_after(pid: int) -> list[int]:
    """Return the processes whose numbers were given after this one, in order; they begin anew after the largest."""
    last = last_process()
    numbers = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208 - hot path
    return [number for number in numbers if number > pid or number <= last < pid]
