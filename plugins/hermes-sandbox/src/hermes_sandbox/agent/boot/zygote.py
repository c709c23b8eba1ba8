"""A zygote: a Python that has imported the agent and forks one for each request, so that none has to start a Python.

It can also start another program, such as one that makes namespaces: forking this small process costs less than forking
its caller, whose memory may be large. In both cases the new process is a child of the zygote's parent, as if that had
started it, and outlives the zygote. Of the zygote it has a copy of memory that held no sandbox's data, and its
descriptors, which it closes before it serves anyone.

A request is the struct `REQUEST` on the zygote's standard input and, if it is about a program, the text of
`pack_program`. Descriptors come with its first byte (see unix(7)): the process's stream, which becomes its standard
input and output; its standard error; those that a program gets as 3 and following; and the list of processes
(`cgroup.procs`) of each control group that it enters. The process answers on its stream with the struct `ANSWER`, and
the zygote if there is no process. The zygote ends with its standard input, and after its parent starts nothing.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import gc
import os
import resource
import struct
import sys

from hermes_sandbox.agent.basics.json_text import from_json, to_json
from hermes_sandbox.agent.basics.libc import prctl
from hermes_sandbox.agent.basics.stdlib import TYPE_CHECKING, signal, suppress
from hermes_sandbox.agent.file_access.archive_format import new_digest
from hermes_sandbox.agent.launch import DEFAULT_SIGNALS
from hermes_sandbox.agent.operations import MODULES
from hermes_sandbox.agent.processes import MARKER, PR_SET_DUMPABLE, read_file
from hermes_sandbox.agent.server import DEAF_TO
from hermes_sandbox.agent.server import main as serve
from hermes_sandbox.agent.slot_lifecycle import NEEDED_LATER

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping, Sequence
    from typing import NoReturn
else:
    import _socket as socket

REQUEST = struct.Struct("!16sQII")
"""The sandbox's id; the most bytes of memory that each process may map, 0 for no limit; how many of the descriptors
are lists of processes; the length of the text of a program, 0 for an agent."""
ANSWER = struct.Struct("!i")
"""The process id or, if there is no process, the error's number below 0."""
MOST_DESCRIPTORS = 16
FIRST_PASSED = 3
"""The number that the first of a program's other descriptors gets; low ones are within any limit of descriptors."""
NO_MARK = "0" * 16 + ".0"
"""The mark of the zygote itself: as long as a sandbox's, because its agents write theirs over it."""
_INTEGER = struct.Struct("i")
_CLONE = {"x86_64": 56, "aarch64": 220}
"""The number of the system call clone, from the kernel's tables (asm/unistd.h)."""
_CLONE_PARENT = 0x8000
_PR_SET_PDEATHSIG = 1
_CMSG_CLOEXEC = 0x40000000
_ENV_START = 47
"""Position of the address of the environment after the name in /proc/PID/stat, see proc_pid_stat(5)."""


def pack_program(argv: Sequence[str], environment: Mapping[str, str], uid: int | None) -> bytes:
    """Return the text of a program, whose name is looked for in PATH; `uid` is its user and group, None for ours."""
    return to_json({"argv": [*argv], "environment": {**environment}, "uid": uid}).encode()


def main() -> None:
    """Start what the requests want until the caller is gone."""
    for name in (*(f"hermes_sandbox.agent.{name}" for name in MODULES), *NEEDED_LATER):
        __import__(name)
    new_digest()
    for number in DEAF_TO:
        signal.signal(number, signal.SIG_IGN)
    prctl(PR_SET_DUMPABLE, 0)
    gc.freeze()
    control = socket.socket(fileno=0)
    parent = os.getppid()
    while True:
        request, descriptors = _receive(control)
        if os.getppid() != parent:
            os._exit(0)
        _answer(request, descriptors, parent)
        for each in descriptors:
            os.close(each)


def _receive(control: socket.socket) -> tuple[bytes, list[int]]:
    """Return a request with its descriptors; none of them if there was no room for all."""
    room = socket.CMSG_SPACE(MOST_DESCRIPTORS * _INTEGER.size)
    request, ancillary, flags, _ = control.recvmsg(REQUEST.size, room, _CMSG_CLOEXEC)
    descriptors = [number for _, _, data in ancillary for (number,) in _INTEGER.iter_unpack(data)]
    if flags & socket.MSG_CTRUNC:
        for each in descriptors:
            os.close(each)
        descriptors = []
    length = REQUEST.size if len(request) < REQUEST.size else REQUEST.size + REQUEST.unpack(request)[3]
    while len(request) < length:
        more = control.recv(length - len(request))
        if not more:
            os._exit(0)
        request += more
    return request, descriptors


def _answer(request: bytes, descriptors: Sequence[int], parent: int) -> None:
    """Start a process; without its stream, for lack of descriptors, the caller sees the end of its own."""
    if not descriptors:
        return
    try:
        pid = _fork()
    except OSError as error:
        with suppress(OSError):  # the caller has given up
            os.write(descriptors[0], ANSWER.pack(-(error.errno or errno.EIO)))
        return
    if pid == 0:
        _become(request, descriptors, parent)


def _fork() -> int:
    """Fork this process as a child of its parent, and return the child's process id, 0 in the child; raises OSError.

    The C library's fork makes children of its caller alone. Python's state is prepared as
    https://docs.python.org/3/c-api/sys.html#c.PyOS_BeforeFork says. In the C library the thread keeps the number of
    the zygote's, which matters to locks between processes alone.
    """
    machine = os.uname().machine
    if machine not in _CLONE or sys.maxsize <= 1 << 32 or sys.implementation.name != "cpython":
        raise OSError(errno.ENOSYS, f"{sys.implementation.name} on {machine} is not supported")
    python = ctypes.PyDLL(None, use_errno=True)
    arguments = [ctypes.c_long(value) for value in (_CLONE[machine], _CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)]
    python.PyOS_BeforeFork()
    pid: int = python.syscall(*arguments)
    if pid == 0:
        python.PyOS_AfterFork_Child()
        return 0
    number = ctypes.get_errno()
    python.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(number, os.strerror(number))
    return pid


def _become(request: bytes, descriptors: Sequence[int], parent: int) -> NoReturn:
    """Become what was requested. It answers itself: so no process is unknown to the caller if the zygote is killed."""
    try:
        sandbox_id, address_space, groups, length = REQUEST.unpack(request[: REQUEST.size])
        first_list = len(descriptors) - groups
        stream, errors, *passed = descriptors[:first_list]
        os.write(stream, ANSWER.pack(os.getpid()))
        os.setsid()
        os.dup2(errors, 2)
        for each in descriptors[first_list:]:
            os.write(each, b"0")
        if address_space:
            resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))
        os.dup2(stream, 0)
        os.dup2(stream, 1)
        if length:
            _run_program(parent, passed, **from_json(request[REQUEST.size :].decode()))
        prctl(PR_SET_DUMPABLE, 1)  # or its files in /proc would belong to root
        _write_mark(sandbox_id)
        serve()
    except BaseException:  # noqa: BLE001 - as at the end of any program
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(1)


def _run_program(
    parent: int, passed: Sequence[int], argv: list[str], environment: Mapping[str, str], uid: int | None
) -> NoReturn:
    # Out of each other's way first. All others are closed when the program is run.
    above = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, FIRST_PASSED + len(passed)) for each in passed]
    for number, source in enumerate(above, FIRST_PASSED):
        os.dup2(source, number)
    for signum in DEFAULT_SIGNALS:
        signal.signal(signum, signal.SIG_DFL)
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    # Not os.execvpe: it imports a module, which that user may not be able to read.
    problem: OSError = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    for folder in environment["PATH"].split(os.pathsep):
        try:
            os.execve(f"{folder}/{argv[0]}", argv, environment)  # noqa: S606 - no shell is wanted
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            problem = error
    raise OSError(problem.errno, problem.strerror, argv[0])


def _write_mark(sandbox_id: bytes) -> None:
    """Write the sandbox's mark where the zygote's is, in the environment that others see in /proc."""
    entry = f"{MARKER}=".encode()
    stat = read_file("/proc/self/stat")
    start = int(stat[stat.rindex(b")") + 2 :].split()[_ENV_START])
    offset = read_file("/proc/self/environ").index(entry + NO_MARK.encode()) + len(entry)
    ctypes.memmove(start + offset, sandbox_id, len(sandbox_id))
