"""Starts processes that inherit none of the agent's user, descriptors and signal settings."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import select
import termios
import time

from hermes_sandbox.agent.basics.libc import prctl
from hermes_sandbox.agent.basics.stdlib import TYPE_CHECKING, NamedTuple, contextmanager, signal, suppress
from hermes_sandbox.agent.processes import read_process, wait_for_own

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import NoReturn

_PR_SET_NO_NEW_PRIVS = 38
_OOM_SCORE = 500
"""The oom_score_adj of commands: when memory runs out, the kernel kills them before the agent."""
_RAISED = str(_OOM_SCORE).encode()
DEFAULT_SIGNALS = (
    signal.SIGPIPE,
    signal.SIGXFSZ,
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
)
"""Signals that the agent or its Python ignores, which processes would inherit."""
_ABOVE = 300
"""Descriptors are moved above this number if they occupy a number that a process needs."""
_GLANCE = 10
"""Milliseconds between checks whether a starting process was stopped."""
_PATIENCE = 1.0
"""Seconds to wait for a process to report that it runs; other processes of its user can delay that."""


class ForkRefusedError(BlockingIOError):
    """The kernel refuses to start another process for the agent or for the slot's user."""


class Identity(NamedTuple):
    """The user that a slot's processes run as."""

    uid: int
    gid: int
    processes: int | None = None
    """The limit of processes and threads of the user, if only this slot has the user."""

    def take(self) -> None:
        """Become this user for good; running a program cannot regain any right."""
        if self.processes is not None:
            resource.setrlimit(resource.RLIMIT_NPROC, (self.processes, self.processes))
        os.setgroups([])
        os.setresgid(self.gid, self.gid, self.gid)
        os.setresuid(self.uid, self.uid, self.uid)
        prctl(_PR_SET_NO_NEW_PRIVS, 1)


class Plan(NamedTuple):
    """A process to start, in a new session and in the current directory."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    wiring: Sequence[tuple[int, int]]
    """Descriptors of the agent, and the numbers they have in the process."""
    identity: Identity | None
    umask: int
    terminal: bool
    """Whether its standard input is the terminal that controls it."""
    processes: int | None = None
    """RLIMIT_NPROC of the process, if it differs from the agent's."""

    @property
    def called(self) -> list[str]:
        """The arguments as the program gets them: its name without the folder, as from a shell."""
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
    # posix_spawn waits in the kernel until the program runs, forever if a process of the same user stops it before.
    # If the agent is the first process, which cannot be stopped from inside, this would be a way to stop it.
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
            setsigdef=DEFAULT_SIGNALS,
        )
    finally:
        os.umask(before)


def _fork(plan: Plan) -> int:
    # posix_spawn can set neither user nor terminal nor limit of a process.
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
    """Return the error of a starting process; nothing if it runs, or was stopped while starting.

    Once it has its user, other processes of that user can stop it: then it is a stopped process like any other.
    """
    end = time.monotonic() + _PATIENCE
    ready = select.poll()  # select() cannot take a descriptor above 1023
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
        for number in DEFAULT_SIGNALS:
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
    # A low priority: it gets the processor time that the agent leaves, nearly all. Among thousands of equals, as
    # a fork bomb makes them, the agent would get nothing. Processes need a right that they lack to undo this.
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


class OomScore:
    """The oom_score_adj of the agent and of what it starts: how readily the kernel kills them when memory runs out.

    A process inherits its parent's value. If it were changed only after the start, a child could already have the
    agent's value. So the agent has the commands' value itself while it starts one. Every process may raise its
    value, and lower it again to what a privileged process set last.
    """

    def __init__(self) -> None:
        self._fd = -1
        self._usual = b"0"

    def prepare(self) -> None:
        """Find out whether it can be changed; call this before the agent's files in /proc belong to root."""
        with suppress(OSError, ValueError):
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

    @contextmanager
    def elevate(self) -> Iterator[None]:
        """Set the value for processes that are started within the block."""
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
    """Kill every process of a user at one moment, from a process of that user, so that no other can be hit."""
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
    with suppress(ChildProcessError):
        wait_for_own(pid)


def _kill_as_first(identity: Identity) -> None:
    # Needs no new process, for which a fork bomb leaves no room. The first process cannot be killed or stopped.
    os.setresuid(identity.uid, identity.uid, 0)
    try:
        with suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
    finally:
        os.setresuid(0, 0, 0)


def uids(pids: Iterable[int]) -> dict[int, int]:
    """Return the real user of each process; ended ones are left out."""
    found = {}
    for pid in pids:
        with suppress(OSError, ValueError, IndexError):
            fd = os.open(f"/proc/{pid}/status", os.O_RDONLY | os.O_CLOEXEC)
            try:
                text = os.read(fd, 4096)
            finally:
                os.close(fd)
            found[pid] = int(text.split(b"\nUid:", 1)[1].split(None, 1)[0])
    return found
