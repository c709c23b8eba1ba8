"""Waits for output that filters still write after the shell of a command has ended, as in `cmd > >(tee log)`."""

from __future__ import annotations

import os
import time
from itertools import islice

from hermes_sandbox.agent.basics.stdlib import TYPE_CHECKING, suppress
from hermes_sandbox.agent.processes import TICKS_A_SECOND, Process, read_process, with_descendants

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

LATE_OUTPUT = 0.02
"""Seconds to wait for late output of any process."""
_FILTERS_LONGEST = 5.0
"""Maximum seconds to wait for filters, however slow the machine is."""
_FILTERS_BUDGET = 0.2
"""Seconds of processor time after which filters that still work count as background work."""
_WORKING_LOOK = 0.01
"""Seconds until the next look at filters that work."""
_ASLEEP_LOOKS = (0.002, 0.004, 0.008)
"""Seconds until the next looks at filters that all sleep: one of them can be about to be woken by another."""
_PIPE = "pipe:["
_MOST_WRITERS = 64
_MOST_DESCRIPTORS = 64


def link_of(fd: int) -> str:
    """Return the kernel's name of the file behind a descriptor of this process, or "" if it is unknown."""
    with suppress(OSError):
        return os.readlink(f"/proc/self/fd/{fd}")
    return ""


class Filters:
    """The processes that pass on a command's output: they read from another pipe and write to the command's.

    The time they need depends on the machine: a substituted `cat` can start after the shell has ended. So the answer
    waits while one of them works, which means that it can run or waits for a disk. A filter that sleeps waits for
    something else, as in `tail -f log | grep x &`. Other processes, such as `sleep 300 &`, are background work.
    """

    def __init__(self, before: int, own: Collection[str] = ()) -> None:
        """Consider the processes started after `before`. Reading from a pipe in `own` does not make one a filter."""
        self._before = before
        self._own = own
        self._end = time.monotonic() + _FILTERS_LONGEST
        self._first_ticks: dict[int, int] = {}
        self._asleep = 0
        self._without = False
        """Whether an earlier look found no filter."""

    def next_look(self, pipes: Collection[str]) -> float:
        """Return the seconds until the next look, or 0 if no process that writes to these pipes still works."""
        began = time.monotonic()
        try:
            processes = self._find(pipes)
        except OSError:
            # There are no free descriptors for a look.
            return 0.0
        if not processes or time.monotonic() >= self._end or self._have_used_enough(processes):
            return 0.0
        if any(map(_works, processes)):
            self._asleep, seconds = 0, _WORKING_LOOK
        elif self._asleep == len(_ASLEEP_LOOKS):
            return 0.0
        else:
            self._asleep, seconds = self._asleep + 1, _ASLEEP_LOOKS[self._asleep]
        # A look takes longer the more processes there are. The rest of the time belongs to other commands.
        return max(seconds, 10 * (time.monotonic() - began))

    def _find(self, pipes: Collection[str]) -> list[Process]:
        """Return the filters that work, or if none works, all of them and their descendants."""
        started = _processes_after(self._before)
        writers = list(islice((pid for pid in started if _writes_to(pid, pipes)), _MOST_WRITERS))
        filters = [pid for pid in writers if self._reads(pid, pipes)]
        if not filters and not self._without:
            # A working filter can have moved its pipe to another descriptor during the search.
            self._without = True
            return _working(writers)
        if not filters:
            return []
        if working := _working(filters):
            return working
        # In the order of their pids, which is mostly the order in which data pass through them: data that move on
        # during the look are found in the next process. The end of a pipe moves the other way, which the later looks
        # cover.
        table = {pid: found for pid, found in ((pid, read_process(pid)) for pid in started) if found is not None}
        return [table[pid] for pid in with_descendants(table, filters) if pid in table]

    def _have_used_enough(self, processes: Collection[Process]) -> bool:
        now = {each.pid: each.ticks + each.children_ticks for each in processes}
        used = sum(ticks - self._first_ticks.setdefault(pid, ticks) for pid, ticks in now.items())
        return used >= _FILTERS_BUDGET * TICKS_A_SECOND

    def _reads(self, pid: int, pipes: Collection[str]) -> bool:
        # All descriptors: in the child of a shell, the pipe has another number before it becomes the standard input.
        try:
            with os.scandir(f"/proc/{pid}/fd") as entries:
                return any(self._is_source(entry, pipes) for entry in islice(entries, _MOST_DESCRIPTORS))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            return False

    def _is_source(self, entry: os.DirEntry[str], pipes: Collection[str]) -> bool:
        link = os.readlink(entry.path)
        if not link.startswith(_PIPE) or link in pipes or link in self._own:
            return False
        # The permissions of the link say whether the descriptor is open for reading.
        return bool(entry.stat(follow_symlinks=False).st_mode & 0o400)


def _works(process: Process) -> bool:
    return process.state in "RD"


def _working(pids: Iterable[int]) -> list[Process]:
    return [found for found in map(read_process, pids) if found is not None and _works(found)]


def _writes_to(pid: int, pipes: Collection[str]) -> bool:
    # Links are read, not followed: a descriptor can lead to a file system that never answers.
    for fd in (1, 2):
        with suppress(OSError):
            if os.readlink(f"/proc/{pid}/fd/{fd}") in pipes:
                return True
    return False


def last_process() -> int:
    """Return the pid that the kernel assigned last, or 0 if it cannot be read."""
    with suppress(OSError, ValueError, IndexError):
        fd = os.open("/proc/loadavg", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return int(os.read(fd, 200).split()[-1])
        finally:
            os.close(fd)
    return 0


def _processes_after(pid: int) -> list[int]:
    """Return the pids that were assigned after this one, in order. After the largest pid, the kernel starts again."""
    last = last_process()
    numbers = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
    return [number for number in numbers if number > pid or number <= last < pid]
