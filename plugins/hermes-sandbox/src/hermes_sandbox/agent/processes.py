"""Finds and ends processes through /proc, across process groups and sessions."""

from __future__ import annotations

import os
import time

from hermes_sandbox.agent.basics.libc import prctl
from hermes_sandbox.agent.basics.stdlib import TYPE_CHECKING, NamedTuple, signal, suppress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

PR_SET_DUMPABLE = 4
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_READ_SIZE = 1 << 14
_SHORT_WAIT, _SHORT_WAITS = 0.0005, 10
_LOOKING = 1.0
"""Seconds after which a crowd without a bound, which forks faster than it is stopped, is killed as far as known;
the agent does nothing else meanwhile."""
_UNSEEN = (FileNotFoundError, ProcessLookupError, PermissionError)
"""Errors of reading a process that is gone or not ours; a lack of descriptors must not look the same."""
MARKER = "HERMES_SANDBOX"
"""Environment variable of every process of a sandbox: the sandbox's id, a dot, the number of the command."""


class Process(NamedTuple):
    """One line of /proc; `start` is in clock ticks since boot, so pid and start together are unique."""

    pid: int
    state: str
    parent: int
    session: int
    start: int
    threads: int
    ticks: int = 0
    """Processor time used, in clock ticks."""
    children_ticks: int = 0
    """Processor time of its children that it has waited for."""

    @property
    def alive(self) -> bool:
        """Whether any thread of it still runs: its first one may be a zombie while others go on."""
        return self.state not in "ZX" or self.threads > 1


_FIELDS = (1, 3, 11, 12, 13, 14, 17, 19)
"""Positions of fields after the name in /proc/PID/stat, see proc_pid_stat(5)."""


def become_reaper() -> None:
    """Adopt orphaned descendants, and hide this process's memory from the commands."""
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_DUMPABLE, 0)


def agent_name(marker: str) -> str:
    """Return the name of an agent in /proc/PID/comm, which every user can read and the kernel truncates."""
    return marker[:15]


def take_name(marker: str) -> None:
    """Name this process so that it can be found: its environment is hidden even from its own user."""
    prctl(_PR_SET_NAME, agent_name(marker).encode())


def ticks_since_boot() -> int:
    """Return the current time in the unit of `Process.start`."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * TICKS_A_SECOND)


def read_file(path: str) -> bytes:
    """Return all of a file of /proc, whose size is not known before."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = more = os.read(fd, _READ_SIZE)
        while more:
            more = os.read(fd, _READ_SIZE)
            data += more
    finally:
        os.close(fd)
    return data


def read_process(pid: int) -> Process | None:
    """Return a process, or None if there is none with this id."""
    try:
        data = read_file(f"/proc/{pid}/stat")
    except _UNSEEN:
        return None
    # The name in parentheses may itself contain spaces and parentheses.
    fields = data[data.rindex(b")") + 2 :].split()
    parent, session, user, system, users, systems, threads, start = (int(fields[n]) for n in _FIELDS)
    return Process(pid, fields[0].decode(), parent, session, start, threads, user + system, users + systems)


def read_table() -> dict[int, Process]:
    """Return every living process."""
    found = (read_process(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return {process.pid: process for process in found if process is not None and process.alive}


def look_into(pid: int) -> Iterator[str]:
    """Yield the /proc folders of a process's threads; the folder of a first thread that has ended shows nothing."""
    yield f"/proc/{pid}"
    yield from _threads(pid)


def read_marker(pid: int) -> str | None:
    """Return the value of the mark in a process's initial environment; None if absent or not readable."""
    return _marker_in(_read_environment(pid) or b"")


def _read_environment(pid: int) -> bytes | None:
    """Return a process's initial environment, empty if there is none (yet); None if it is hidden."""
    environment, hidden = b"", False
    for folder in look_into(pid):
        try:
            environment = read_file(f"{folder}/environ")
        except PermissionError:
            hidden = True
        except _UNSEEN:
            continue
        if environment:
            return environment
    return None if hidden else environment


def _marker_in(environment: bytes) -> str | None:
    prefix = MARKER.encode() + b"="
    for entry in environment.split(b"\0"):
        if entry.startswith(prefix):
            return os.fsdecode(entry[len(prefix) :])
    return None


def belongs_to(pid: int, sandbox_id: str) -> bool | None:
    """Tell whether a process carries a sandbox's mark, or is its agent; None without a readable mark.

    An agent with a hidden environment is known by its name. Any process can take that name: those of other users
    are not counted, since they could not be ended.
    """
    environment = _read_environment(pid)
    if environment is None:
        return True if _read_own_name(pid) == agent_name(sandbox_id) else None
    marker = _marker_in(environment)
    return None if marker is None else marker.partition(".")[0] == sandbox_id


def _read_own_name(pid: int) -> str | None:
    """Return the name of a process that this one may signal; None for others."""
    with suppress(*_UNSEEN):
        lines = os.fsdecode(read_file(f"/proc/{pid}/status")).split("\n")
        fields = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        if os.geteuid() in {0, int(fields["Uid"].split()[0])}:
            return fields["Name"]
    return None


def with_descendants(table: dict[int, Process], roots: Iterable[int]) -> set[int]:
    """Return the roots and everything below them."""
    children: dict[int, list[int]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process.pid)
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.add(pid)
            waiting += children.get(pid, ())
    return found


def send(pids: Iterable[int], number: int) -> None:
    """Signal processes; skip those that are gone or not ours."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def wait_for_own(pid: int) -> int:
    """Wait for a child with a short task; returns its status.

    Processes of its user can stop it, which would block the agent: then it is killed.
    """
    while True:
        _, status = os.waitpid(pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            return status
        os.kill(pid, signal.SIGKILL)


def reap() -> list[tuple[int, int]]:
    """Reap every ended child, adopted ones too; returns pids and wait statuses."""
    ended = []
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            ended.append((pid, status))
    return ended


def stop_and_kill(look: Callable[[], set[int]]) -> set[int]:
    """Stop the processes that `look` finds until it finds no new one, then kill all of them; returns them.

    Stopped processes still count. So a bounded crowd cannot replace any of them meanwhile, and its last
    members, once stopped, start no more. If they were killed one by one, each would make room for another.
    """
    stopped: set[int] = set()
    end = time.monotonic() + _LOOKING
    while new := look() - stopped:
        send(new, signal.SIGSTOP)
        stopped |= new
        if time.monotonic() >= end:
            break
    send(stopped, signal.SIGKILL)
    return stopped


class Patience:
    """A deadline `seconds` after the last progress, which is a new minimum of survivors: a slow machine gets time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._fewest: int | None = None
        self._end = 0.0

    def is_over(self, left: int) -> bool:
        """Take the number of survivors, and tell whether to give up."""
        now = time.monotonic()
        if self._fewest is None or left < self._fewest:
            self._fewest, self._end = left, now + self._seconds
        return now >= self._end


def kill_descendants(root: int, seconds: float) -> bool:
    """Kill all descendants of `root`, which must be this process; True if none is left.

    It gives up after `seconds` without progress.
    """
    if not _has_children():
        return True
    # First without reading all of /proc, which may show thousands of others.
    stop_and_kill(lambda: _find_descendants(root))
    patience = Patience(seconds)
    while not _await_no_children():
        killed = stop_and_kill(lambda: with_descendants(read_table(), [root]) - {root})
        reap()
        if not killed and not _has_children():
            return True
        if patience.is_over(len(killed)):
            return False
    return True


def _has_children() -> bool:
    """Tell whether any descendant is left: those whose parent has ended become children of this process."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _await_no_children() -> bool:
    """Reap children as they end, for a short time; True if none is left."""
    for _ in range(_SHORT_WAITS):
        reap()
        if not _has_children():
            return True
        time.sleep(_SHORT_WAIT)
    return False


def _find_descendants(root: int) -> set[int]:
    """Return the descendants that the kernel lists as children of one another; it may miss some that start or end."""
    found: set[int] = set()
    waiting = [root]
    while waiting:
        for folder in _threads(waiting.pop()):
            with suppress(*_UNSEEN):
                children = {int(pid) for pid in read_file(f"{folder}/children").split()} - found
                found |= children
                waiting += children
    return found


def _threads(pid: int) -> Iterator[str]:
    with suppress(*_UNSEEN):
        for thread in os.listdir(f"/proc/{pid}/task"):
            yield f"/proc/{pid}/task/{thread}"
