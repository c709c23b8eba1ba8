"""Starting a process with nothing of the agent's: neither its user, nor its descriptors, nor its signals."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import resource
import select
import signal
import termios
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, NoReturn

from hermes_sandbox.agent.processes import read_process, wait_for_own

_PR_SET_NO_NEW_PRIVS = 38
_OOM_SCORE = 500
"""Who uses too much memory is found among the commands before the agent is considered."""
_RAISED = str(_OOM_SCORE).encode()
_DEFAULT_SIGNALS = (
    signal.SIGPIPE,
    signal.SIGXFSZ,
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
)
"""What the agent ignores, or its Python does; a process inherits that."""
_PRCTL = ctypes.CDLL(None, use_errno=True).prctl
_ABOVE = 300
"""Descriptors are moved above this number when they are in the way of the numbers that a process is to have."""
_GLANCE = 10
"""Milliseconds between looks at whether a starting process has been stopped."""
_PATIENCE = 1.0
"""Seconds that everything else waits for a process to say that it runs; its own kind can keep it from that."""


class ForkRefusedError(BlockingIOError):
    """The kernel starts no further process for the agent, or for the user that it was to be."""


class Identity(NamedTuple):
    """The user that a slot's processes run as."""

    uid: int
    gid: int
    processes: int | None = None
    """How many processes and threads the user may have, where nobody else has this user."""

    def take(self) -> None:
        """Become this user for good; nothing can be gained again by running a program."""
        if self.processes is not None:
            resource.setrlimit(resource.RLIMIT_NPROC, (self.processes, self.processes))
        os.setgroups([])
        os.setresgid(self.gid, self.gid, self.gid)
        os.setresuid(self.uid, self.uid, self.uid)
        if _PRCTL(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl failed")


class Plan(NamedTuple):
    """A process to be started, in a session of its own; the current directory is its."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    wiring: Sequence[tuple[int, int]]
    """Descriptors of the agent, and the numbers they have in the process."""
    identity: Identity | None
    umask: int
    terminal: bool
    """Whether its standard input is the terminal that controls it."""
    processes: int | None = None
    """RLIMIT_NPROC of the process, where it has another than the agent."""

    @property
    def called(self) -> list[str]:
        """The arguments as the program sees them, its own name without the folder, as from a shell."""
        return [self.argv[0].rpartition("/")[2], *self.argv[1:]]


def launch(plan: Plan) -> int:
    """Start it and return its process id.

    Raises:
        OSError: The program cannot be run.
    """
    moved = _out_of_the_way(plan.wiring)
    try:
        wiring = [(moved.get(source, source), target) for source, target in plan.wiring]
        plan = plan._replace(wiring=wiring)
        simple = plan.identity is None and plan.processes is None and not plan.terminal and not _can_be_held()
        with OOM_SCORE.elevate():
            return _spawn(plan) if simple else _fork(plan)
    except OSError as error:
        if error.errno == errno.EAGAIN:
            raise ForkRefusedError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from error
        raise
    finally:
        for fd in moved.values():
            os.close(fd)


def _out_of_the_way(wiring: Sequence[tuple[int, int]]) -> dict[int, int]:
    targets = {target for _, target in wiring}
    return {source: fcntl.fcntl(source, fcntl.F_DUPFD_CLOEXEC, _ABOVE) for source, _ in wiring if source in targets}


def _can_be_held() -> bool:
    # posix_spawn waits in the kernel until the program runs, for ever if a process of the same user stops it before.
    # Where the agent is the first process, which nobody else can stop, that would be a way to stop it after all.
    if os.getpid() != 1:
        return False
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _spawn(plan: Plan) -> int:
    before = os.umask(plan.umask)
    try:
        return os.posix_spawn(
            plan.argv[0],
            plan.called,
            plan.environment,
            file_actions=[(os.POSIX_SPAWN_DUP2, source, target) for source, target in plan.wiring],
            setsid=True,
            setsigmask=(),
            setsigdef=_DEFAULT_SIGNALS,
        )
    finally:
        os.umask(before)


def _fork(plan: Plan) -> int:
    # posix_spawn can give a process neither another user nor a terminal nor a limit of its own.
    told, teller = os.pipe()
    try:
        if any(teller == target for _, target in plan.wiring):
            teller, occupied = fcntl.fcntl(teller, fcntl.F_DUPFD_CLOEXEC, _ABOVE), teller
            os.close(occupied)
        pid = os.fork()
        if pid == 0:
            _become(plan, teller)
    finally:
        os.close(teller)
    try:
        complaint = _listen(told, pid)
    finally:
        os.close(told)
    if complaint:
        os.waitpid(pid, 0)
        code = int(complaint)
        raise OSError(code, os.strerror(code), plan.argv[0])
    return pid


def _listen(told: int, pid: int) -> bytes:
    """Return what a process complains of that is starting; nothing if it runs, or has been stopped on its way.

    As soon as it has its user, others of that user can stop it: then it is a stopped process like any other.
    """
    end = time.monotonic() + _PATIENCE
    ready = select.poll()  # select() takes no descriptor above 1023
    ready.register(told, select.POLLIN)
    while not ready.poll(_GLANCE):
        process = read_process(pid)
        if process is None or process.state in "Tt" or time.monotonic() >= end:
            return b""
    return os.read(told, 16)


def _become(plan: Plan, teller: int) -> NoReturn:
    code = errno.EINVAL
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in _DEFAULT_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if plan.identity is not None and os.getppid() == 1:
            _give_way()
        for source, target in plan.wiring:
            os.dup2(source, target)
        if plan.terminal:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        os.umask(plan.umask)
        if plan.processes is not None:
            resource.setrlimit(resource.RLIMIT_NPROC, (plan.processes, plan.processes))
        if plan.identity is not None:
            plan.identity.take()
        os.execve(plan.argv[0], plan.called, plan.environment)  # noqa: S606 - no shell is wanted
    except (OSError, ValueError) as error:  # the latter for a limit above the hard one
        code = getattr(error, "errno", None) or code
    finally:
        os.write(teller, str(code).encode())
        os._exit(127)


def _give_way() -> None:
    # Takes what the agent of its container leaves of the processors, which is nearly all. Among thousands of equals, as
    # a fork bomb makes them, the agent would get nothing; and those cannot go back without a right that they lack.
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


class OomScore:
    """How readily the agent, and what it starts meanwhile, is killed when memory runs out.

    A process has its parent's value. Were it changed only after the start, something could be started before, with the
    agent's own. So the agent has the commands' value itself for as long as it takes to start one. Anybody may raise a
    value, and lower it again to what a privileged process gave last.
    """

    def __init__(self) -> None:
        self._fd = -1
        self._usual = b"0"

    def prepare(self) -> None:
        """Find out whether it can be changed; to be called before the agent's files in /proc become root's."""
        with contextlib.suppress(OSError, ValueError):
            fd = os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
            value = int(os.read(fd, 16))
            self._usual = str(value).encode()
            try:
                if value < _OOM_SCORE:
                    for each in (value + 1, value):
                        os.pwrite(fd, str(each).encode(), 0)
                    self._fd = fd
            finally:
                if self._fd != fd:
                    os.close(fd)

    @contextlib.contextmanager
    def elevate(self) -> Iterator[None]:
        """Give it to what is started meanwhile."""
        if self._fd < 0:
            yield
            return
        os.pwrite(self._fd, _RAISED, 0)
        try:
            yield
        finally:
            os.pwrite(self._fd, self._usual, 0)


OOM_SCORE = OomScore()


def kill_as(identity: Identity) -> None:
    """Kill every process of a user at one moment; it is one of them that does it, so it can hit nobody else."""
    if os.getpid() == 1:
        _kill_as_first(identity)
        return
    pid = os.fork()
    if pid == 0:
        try:
            identity._replace(processes=None).take()
            if os.getuid() != 0:
                os.kill(-1, signal.SIGKILL)
        finally:
            os._exit(0)
    with contextlib.suppress(ChildProcessError):
        wait_for_own(pid)


def _kill_as_first(identity: Identity) -> None:
    # Needs no new process, which a fork bomb leaves no room for. Nobody can kill or stop the first process meanwhile.
    os.setresuid(identity.uid, identity.uid, 0)
    try:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
    finally:
        os.setresuid(0, 0, 0)


def uids(pids: Iterable[int]) -> dict[int, int]:
    """Return the real user of processes; those that have gone are left out."""
    found = {}
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            fd = os.open(f"/proc/{pid}/status", os.O_RDONLY | os.O_CLOEXEC)
            try:
                text = os.read(fd, 4096)
            finally:
                os.close(fd)
            found[pid] = int(text.split(b"\nUid:", 1)[1].split(None, 1)[0])
    return found
