"""How many processes a slot may have, and what sees to it: tried before it is believed."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
from collections.abc import Callable

from hermes_sandbox.agent.launch import Identity
from hermes_sandbox.agent.pids_group import GroupPlace, PidsGroup, first_place

_NO_BOUND = "none: neither can a control group be made here, nor does RLIMIT_NPROC hold for user {uid}"
_UNLIMITED = resource.RLIM_INFINITY


class ProcessBound:
    """What keeps one slot's processes at `limit`; `how` says it for the record.

    Without a group it is RLIMIT_NPROC: `per_process` is the number that each process of the slot is started with, None
    where the agent itself has it or the slot's user does.
    """

    def __init__(self, how: str, *, group: PidsGroup | None = None, per_process: int | None = None) -> None:
        self.how = how
        self.group = group
        self.per_process = per_process

    def entered(self) -> contextlib.AbstractContextManager[None]:
        """Have what is started meanwhile in the group, if there is one."""
        return contextlib.nullcontext() if self.group is None else self.group.entered()

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
            limit_of_all = now - 1 + limit
            bound = ProcessBound(f"{limit} more than its user had, by RLIMIT_NPROC")
            return bound, identity._replace(processes=limit_of_all)
    elif TRIALS.binds_users(identity):
        return ProcessBound(f"{limit} of its user, by RLIMIT_NPROC"), identity._replace(processes=limit)
    return ProcessBound(_NO_BOUND.format(uid=identity.uid)), identity


def _above(limit: int, *, exclusive: bool) -> ProcessBound:
    now = count_processes()
    if not now:
        return ProcessBound(_NO_BOUND.format(uid=os.getuid()))
    total = now + limit
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    if hard != _UNLIMITED:
        total = min(total, hard)
    how = f"{total - now} more than its user had, by RLIMIT_NPROC"
    if not exclusive:
        return ProcessBound(how, per_process=total)
    # Inherited by all that it starts, without a step more for each.
    resource.setrlimit(resource.RLIMIT_NPROC, (total, total))
    return ProcessBound(how)


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
        """Tell whether RLIMIT_NPROC holds for users such as this one."""
        if self._users_are_bound is None:
            self._users_are_bound = bool(_as_user(identity, lambda: int(not _can_fork_at(1))))
        return self._users_are_bound


TRIALS = Trials()


def count_processes() -> int:
    """Return how many processes and threads the kernel counts for the present user; 0 where it bounds none.

    A container may not see all that its user has, and counts differ between kernels. So the kernel is asked: the count
    is the largest limit with which no process can be started.
    """
    if _can_fork_at(1):
        return 0
    low, high = 1, 2
    while not _can_fork_at(high):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _can_fork_at(middle) else (middle, high)
    return low


def _can_fork_at(limit: int) -> bool:
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    allowed = limit if hard == _UNLIMITED else min(limit, hard)
    resource.setrlimit(resource.RLIMIT_NPROC, (allowed, hard))
    try:
        pid = os.fork()
        if pid == 0:
            os._exit(0)
    except OSError as error:
        # Not for want of memory, and not because more than all that may be had is in use already.
        if error.errno != errno.EAGAIN or allowed < limit:
            raise
        return False
    finally:
        resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard))
    os.waitpid(pid, 0)
    return True


def _as_user(identity: Identity, ask: Callable[[], int]) -> int:
    """Return what a function finds out as another user."""
    told, teller = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            identity._replace(processes=None).take()
            os.write(teller, str(ask()).encode())
        os._exit(0)
    os.close(teller)
    try:
        answer = os.read(told, 16)
    finally:
        os.close(told)
        # Processes of that user can have stopped it.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return int(answer or 0)
