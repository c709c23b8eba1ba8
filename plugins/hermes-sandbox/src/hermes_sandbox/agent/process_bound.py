"""How many processes a slot may have, and what sees to it: tried before it is believed."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import select
import signal
import time
from collections.abc import Callable

from hermes_sandbox.agent.launch import Identity
from hermes_sandbox.agent.pids_group import GroupPlace, PidsGroup, first_place
from hermes_sandbox.agent.processes import read_process, wait_for_own

_NOT_HELD = "none: user {uid} is held to no number of processes (RLIMIT_NPROC)"
_NO_GROUP = ", and no control group can be made"
_UNLIMITED = resource.RLIM_INFINITY
_MOST = 1 << 22
"""Processes that Linux has numbers for."""
_FRESH = 5.0
"""Seconds for which a count of what a user has is good: to count takes some milliseconds."""
_BOUND, _UNBOUND, _UNKNOWN = 1, 2, 3


class ProcessBound:
    """What keeps one slot's processes few; `how` says it for the record.

    Either a group; or RLIMIT_NPROC, which its user or the agent has; or, where others have that user too, RLIMIT_NPROC
    of each process that the agent starts: `limit` more than what the others have at that time.
    """

    def __init__(self, how: str, *, group: PidsGroup | None = None, limit: int | None = None) -> None:
        self.how = how
        self.group = group
        self._limit = limit
        self._number = 0
        self._counted_at = -_FRESH

    def enter(self) -> contextlib.AbstractContextManager[None]:
        """Have what is started meanwhile in the group, if there is one."""
        return contextlib.nullcontext() if self.group is None else self.group.enter()

    def number_now(self, count_own: Callable[[], int]) -> int | None:
        """Return RLIMIT_NPROC of what is started now; None where that is the agent's.

        What the user's other programs have changes meanwhile. The slot's own processes, which `count_own` counts, make
        no room for more of them.
        """
        if self._limit is None:
            return None
        if time.monotonic() - self._counted_at >= _FRESH:
            # Where no process can be started to count with, none will be for the command either, which then says so.
            with contextlib.suppress(OSError):
                others = max(1, count_processes() - count_own())
                self._number, self._counted_at = _within_hard_limit(others + self._limit), time.monotonic()
        return self._number or _within_hard_limit(self._limit)

    def forbid(self) -> None:
        """Keep the slot from starting anything more, as far as that can be had."""
        if self.group is not None:
            self.group.forbid()

    def allow(self) -> None:
        """Take that back."""
        if self.group is not None:
            self.group.allow()

    def remove(self) -> None:
        """Give up what was made for it; nothing of the slot runs any more."""
        if self.group is not None:
            self.group.remove()


def bind(
    limit: int, name: str, identity: Identity | None, *, shared_user: bool, exclusive: bool, may_group: bool
) -> tuple[ProcessBound, Identity | None]:
    """Return what bounds a slot, and its user with the number that it takes along.

    Args:
        limit: Processes and threads.
        name: Names a group, if one is made.
        identity: The user of the slot; None where it is the agent's.
        shared_user: Whether others have that user, too.
        exclusive: Whether the agent serves this slot alone, so that its own limit can be the slot's.
        may_group: Whether a control group may be made.
    """
    if identity is not None:
        return _of_user(limit, identity, shared=shared_user)
    place = TRIALS.pids_place() if may_group else None
    if place is not None:
        group = PidsGroup(place, name, limit)
        return ProcessBound(f"{limit}, by cgroup v{place.version}", group=group), None
    return _above(limit, exclusive=exclusive), None


def _of_user(limit: int, identity: Identity, *, shared: bool) -> tuple[ProcessBound, Identity]:
    if shared:
        now = _as_user(identity, count_processes)
        if now:
            # Whoever counted has gone.
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
    # Nobody else has this user, nor will have it: inherited by all that the agent starts, for nothing.
    resource.setrlimit(resource.RLIMIT_NPROC, (number, number))
    return ProcessBound(how)


def _in_user_namespace() -> bool:
    with open("/proc/self/uid_map", encoding="ascii") as file:  # noqa: PTH123 - a line is enough
        return file.read().split() != ["0", "0", str((1 << 32) - 1)]


def _within_hard_limit(number: int) -> int:
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    return number if hard == _UNLIMITED else min(number, hard)


class Trials:
    """What was tried, once for an agent."""

    def __init__(self) -> None:
        self._place: list[GroupPlace | None] = []
        self._users_are_bound: bool | None = None

    def pids_place(self) -> GroupPlace | None:
        """Return where groups can be made."""
        if not self._place:
            self._place.append(first_place())
        return self._place[0]

    def binds_users(self, identity: Identity) -> bool:
        """Tell whether RLIMIT_NPROC holds for users such as this one; raises OSError where that cannot be found out."""
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
    # Or it was something else that is full.
    return _BOUND if _can_fork_at(_MOST) else _UNKNOWN


def count_processes() -> int:
    """Return how many processes and threads the kernel counts for the present user; 0 where it bounds none.

    A container may not see all that its user has, and counts differ between kernels. So the kernel is asked: the count
    is the largest limit with which no process can be started.

    Raises:
        OSError: None can be started with any.
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
    """Return what a function finds out as another user; raises OSError when that user's processes keep it from that."""
    told, teller = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
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
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        wait_for_own(pid)
    raise OSError(errno.EAGAIN, f"the processes of user {identity.uid} cannot be counted")
