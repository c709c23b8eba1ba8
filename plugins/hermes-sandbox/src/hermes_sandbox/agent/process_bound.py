"""Bounds the number of a slot's processes, by means that are tried before they are used."""

from __future__ import annotations

import errno
import os
import resource
import select
import time

from hermes_sandbox.agent.basics.stdlib import TYPE_CHECKING, signal, suppress
from hermes_sandbox.agent.launch import Identity
from hermes_sandbox.agent.processes import read_file, read_process, wait_for_own

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from hermes_sandbox.agent.pids_group import GroupPlace, PidsGroup

_NOT_HELD = "none: user {uid} is held to no number of processes (RLIMIT_NPROC)"
_NO_GROUP = ", and no control group can be made"
_UNLIMITED = resource.RLIM_INFINITY
_MOST = 1 << 22
"""The largest number of processes of Linux (PID_MAX_LIMIT)."""
_FRESH = 5.0
"""Seconds for which a count of a user's processes is reused: counting takes some milliseconds."""
_BOUND, _UNBOUND, _UNKNOWN = 1, 2, 3


class ProcessBound:
    """The bound of one slot's processes; `how` describes it for the record.

    Either a control group; or RLIMIT_NPROC of its user or of the agent; or, if others have that user too, RLIMIT_NPROC
    of each process that the agent starts: `limit` more than the others have at that time.
    """

    def __init__(self, how: str, *, group: PidsGroup | None = None, limit: int | None = None) -> None:
        self.how = how
        self.group = group
        self._limit = limit
        self._number = 0
        self._counted_at = -_FRESH

    def enter(self) -> AbstractContextManager[None]:
        """Put processes that are started within the block into the group, if there is one."""
        return suppress() if self.group is None else self.group.enter()

    def number_now(self, count_own: Callable[[], int]) -> int | None:
        """Return RLIMIT_NPROC for a process that is started now; None if that is the agent's.

        The number of the user's other processes changes over time. The slot's own, which `count_own` counts, make
        no room for more of them.
        """
        if self._limit is None:
            return None
        if time.monotonic() - self._counted_at >= _FRESH:
            # If no process can be started for counting, none can be for the command either, which then reports it.
            with suppress(OSError):
                others = max(1, count_processes() - count_own())
                self._number, self._counted_at = _within_hard_limit(others + self._limit), time.monotonic()
        return self._number or _within_hard_limit(self._limit)

    def forbid(self) -> None:
        """Keep the slot from starting more processes, as far as possible."""
        if self.group is not None:
            self.group.forbid()

    def allow(self) -> None:
        """Allow the slot to start processes again."""
        if self.group is not None:
            self.group.allow()

    def remove(self) -> None:
        """Remove what was made for the bound; no process of the slot runs any more."""
        if self.group is not None:
            self.group.remove()


def bind(
    limit: int, name: str, identity: Identity | None, *, shared_user: bool, exclusive: bool, may_group: bool
) -> tuple[ProcessBound, Identity | None]:
    """Return the bound of a slot, and its user with the limit that this one gets.

    Args:
        limit: Processes and threads.
        name: Names a group, if one is made.
        identity: The user of the slot; None if it is the agent's.
        shared_user: Whether others have that user, too.
        exclusive: Whether the agent serves only this slot, so that its own limit can be the slot's.
        may_group: Whether a control group may be made.
    """
    if identity is not None:
        return _of_user(limit, identity, shared=shared_user)
    place = TRIALS.pids_place() if may_group else None
    if place is not None:
        from hermes_sandbox.agent.pids_group import PidsGroup

        group = PidsGroup(place, name, limit)
        return ProcessBound(f"{limit}, by cgroup v{place.version}", group=group), None
    return _above(limit, exclusive=exclusive), None


def _of_user(limit: int, identity: Identity, *, shared: bool) -> tuple[ProcessBound, Identity]:
    if shared:
        now = _as_user(identity, count_processes)
        if now:
            # The counting process itself is gone.
            number = _within_hard_limit(now - 1 + limit)
            how = f"{number - now + 1} more than its user had, by RLIMIT_NPROC"
            return ProcessBound(how), identity._replace(processes=number)
    elif TRIALS.binds_users(identity):
        number = _within_hard_limit(limit)
        return ProcessBound(f"{number} of its user, by RLIMIT_NPROC"), identity._replace(processes=number)
    return ProcessBound(_NOT_HELD.format(uid=identity.uid)), identity


def _above(limit: int, *, exclusive: bool) -> ProcessBound:
    now = count_processes()
    if not now:
        return ProcessBound(_NOT_HELD.format(uid=os.getuid()) + _NO_GROUP)
    number = _within_hard_limit(now + limit)
    how = f"{number - now} more than its user had, by RLIMIT_NPROC"
    if not exclusive or now > 1 or not _in_user_namespace():
        return ProcessBound(how, limit=number - now)
    # Only this slot has the user: everything that the agent starts inherits the limit, at no cost.
    resource.setrlimit(resource.RLIMIT_NPROC, (number, number))
    return ProcessBound(how)


def _in_user_namespace() -> bool:
    return read_file("/proc/self/uid_map").split() != [b"0", b"0", str((1 << 32) - 1).encode()]


def _within_hard_limit(number: int) -> int:
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    return number if hard == _UNLIMITED else min(number, hard)


class Trials:
    """Results of trials, once per agent."""

    def __init__(self) -> None:
        self._place: list[GroupPlace | None] = []
        self._users_are_bound: bool | None = None

    def pids_place(self) -> GroupPlace | None:
        """Return where groups can be made."""
        if not self._place:
            # Imported here, because most agents are in a group that their caller has made, and need no other.
            from hermes_sandbox.agent.pids_group import first_place

            self._place.append(first_place())
        return self._place[0]

    def binds_users(self, identity: Identity) -> bool:
        """Tell whether RLIMIT_NPROC has an effect on such a user; raises OSError if that cannot be found out."""
        if self._users_are_bound is None:
            found = _as_user(identity, _try_one)
            if found == _UNKNOWN:
                raise OSError(errno.EAGAIN, "no process can be started to try a limit of processes")
            self._users_are_bound = found == _BOUND
        return self._users_are_bound


TRIALS = Trials()


def _try_one() -> int:
    if _can_fork_at(1):
        return _UNBOUND
    # Or something else is exhausted.
    return _BOUND if _can_fork_at(_MOST) else _UNKNOWN


def count_processes() -> int:
    """Return how many processes and threads the kernel counts for the current user; 0 if it bounds none.

    A container may not see all processes of its user, and kernels count differently. So the kernel is asked: the count
    is the largest limit with which no process can be started.

    Raises:
        OSError: No process can be started with any limit.
    """
    if _can_fork_at(1):
        return 0
    low, high = 1, 2
    while not _can_fork_at(high):
        low, high = high, high * 2
        if low > _MOST:
            raise OSError(errno.EAGAIN, "no process can be started")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _can_fork_at(middle) else (middle, high)
    return low


def _can_fork_at(limit: int) -> bool:
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    resource.setrlimit(resource.RLIMIT_NPROC, (_within_hard_limit(limit), hard))
    try:
        pid = os.fork()
        if pid == 0:
            os._exit(0)
    except OSError as error:
        if error.errno != errno.EAGAIN:
            raise
        return False
    finally:
        resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard))
    wait_for_own(pid)
    return True


def _as_user(identity: Identity, ask: Callable[[], int]) -> int:
    """Call a function as another user and return its result; raises OSError if that user's processes prevent it."""
    told, teller = os.pipe()
    pid = os.fork()
    if pid == 0:
        with suppress(BaseException):
            identity._replace(processes=None).take()
            os.write(teller, str(ask()).encode())
        os._exit(0)
    os.close(teller)
    try:
        ready = select.poll()
        ready.register(told, select.POLLIN)
        while not ready.poll(10):
            process = read_process(pid)
            if process is None or process.state in "Tt":
                break
        else:
            answer = os.read(told, 16)
            if answer:
                return int(answer)
    finally:
        os.close(told)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        wait_for_own(pid)
    raise OSError(errno.EAGAIN, f"the processes of user {identity.uid} cannot be counted")
