"""System call filters, which all started processes inherit and cannot remove.

`shield` keeps the limits and the scheduling of the agent from commands that run as the same user. A first process of a
PID namespace cannot be signalled from inside, nor traced if it is not dumpable; but its limits could be set to
zero and its priority to the lowest by any process of its user. It allows those calls only for the caller itself.

`confine_sockets` allows only families of sockets that cannot leave the sandbox. Others have no network
namespace: AF_VSOCK reaches the hypervisor from inside any of them.
"""

from __future__ import annotations

import errno
import os
import resource
import struct
import sys

from hermes_sandbox.agent.basics.libc import buffer, prctl
from hermes_sandbox.agent.basics.stdlib import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_PR_SET_SECCOMP = 22
_GAIN_NOTHING_MORE = 38
_MODE_FILTER = 2
_LOAD, _EQUAL, _AT_LEAST, _AND, _RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
_ALLOW, _ERROR, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_REFUSE = _ERROR | errno.EPERM
_NUMBER, _ARCHITECTURE = 0, 4
_X86_64 = 0xC000003E
_X32 = 0x40000000
"""From this number on, calls belong to the x32 interface of x86-64, which nothing uses."""


class _Interface(NamedTuple):
    """Numbers of system calls, from the kernel's tables (asm/unistd.h), and their AUDIT_ARCH."""

    architecture: int
    of_a_process: tuple[int, ...]
    """prlimit64, sched_setparam, sched_setscheduler, sched_setaffinity, sched_setattr: the process comes first."""
    priority: int
    io_priority: int
    sockets: tuple[int, ...] = ()
    """socket, socketpair."""


_INTERFACES = {
    "x86_64": (
        _Interface(_X86_64, (302, 142, 144, 203, 314), 141, 251, (41, 53)),
        _Interface(0x40000003, (340, 154, 156, 241, 351), 97, 289),
    ),
    "aarch64": (
        _Interface(0xC00000B7, (261, 118, 119, 122, 274), 140, 30, (198, 199)),
        _Interface(0x40000028, (369, 154, 156, 241, 380), 97, 314),
    ),
}


def _argument(index: int) -> int:
    return 16 + 8 * index  # its lower half, on little-endian machines


def _only(*wanted: tuple[int, int]) -> list[tuple[int, int, int, int]]:
    """Allow a call whose arguments have these values, refuse it otherwise."""
    code = []
    for position, (index, value) in enumerate(wanted):
        left = 2 * (len(wanted) - position - 1)
        code += [(_LOAD, 0, 0, _argument(index)), (_EQUAL, 0, left + 1, value)]
    return [*code, (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _REFUSE)]


def _block(interface: _Interface) -> list[tuple[int, int, int, int]]:
    code = [(_LOAD, 0, 0, _NUMBER)]
    if interface.architecture == _X86_64:
        code += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _REFUSE)]
    rules = [(number, _only((0, 0))) for number in interface.of_a_process]
    # PRIO_PROCESS is 0, IOPRIO_WHO_PROCESS is 1; other kinds mean all processes of a group or a user.
    rules += [(interface.priority, _only((0, 0), (1, 0))), (interface.io_priority, _only((0, 1), (1, 0)))]
    for number, rule in rules:
        code += [(_EQUAL, 0, len(rule), number), *rule]
    return [*code, (_RETURN, 0, 0, _ALLOW)]


def _program(machine: str) -> Iterator[tuple[int, int, int, int]]:
    for interface in _INTERFACES[machine]:
        block = _block(interface)
        yield from ((_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 0, len(block), interface.architecture))
        yield from block
    yield (_RETURN, 0, 0, _ALLOW)


FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16}
"""A path of the first family leads to a mounted file system. The others, and the abstract names of the first, are
separate in each network namespace."""
_VSOCK, _PACKET, _NO_FAMILY = 40, 10, 255
_IO_URING = range(425, 428)
"""The system calls of io_uring, whose operations can create sockets that no filter sees."""
_NO_SUCH_FLAG = 1 << 28


def _socket_rule() -> list[tuple[int, int, int, int]]:
    refuse = (_RETURN, 0, 0, _ERROR | errno.EAFNOSUPPORT)
    left = len(FAMILIES)
    # SOCK_PACKET turns AF_INET into AF_PACKET.
    kind = [(_LOAD, 0, 0, _argument(1)), (_AND, 0, 0, 0xF), (_EQUAL, 0, 1, _PACKET), refuse, (_RETURN, 0, 0, _ALLOW)]
    known = [(_EQUAL, left - position, 0, family) for position, family in enumerate(FAMILIES.values())]
    return [(_LOAD, 0, 0, _argument(0)), *known, refuse, *kind]


def _socket_program(machine: str) -> Iterator[tuple[int, int, int, int]]:
    # Only the machine's own interface is allowed. The 32-bit one has socketcall, with arguments in memory,
    # which no filter can read. A process that uses it is killed by a signal: without any call, not even the one to
    # exit, it would run on.
    own = _INTERFACES[machine][0]
    yield from ((_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, own.architecture), (_RETURN, 0, 0, _KILL))
    yield (_LOAD, 0, 0, _NUMBER)
    absent = (_RETURN, 0, 0, _ERROR | errno.ENOSYS)
    if own.architecture == _X86_64:
        yield from ((_AT_LEAST, 0, 1, _X32), absent)
    # ENOSYS, not EPERM: libraries fall back as on a kernel without io_uring.
    yield from ((_AT_LEAST, 0, 2, _IO_URING.start), (_AT_LEAST, 1, 0, _IO_URING.stop), absent)
    first, second = own.sockets
    yield from ((_EQUAL, 2, 0, first), (_EQUAL, 1, 0, second), (_RETURN, 0, 0, _ALLOW))
    yield from _socket_rule()


def socket_filter(machine: str) -> bytes:
    """Return the filter that allows only sockets of `FAMILIES`, for the kernel of such a machine."""
    return _pack(_socket_program(machine))


def confine_sockets() -> str:
    """Forbid this process and everything it starts other families of sockets; return the reason if that fails."""
    machine = os.uname().machine
    if not _is_known(machine):
        return f"there is no filter of system calls for {machine}"
    # Tried with an unused family: the machine may have its own filter against others, such as AF_VSOCK.
    if _is_refused(_NO_FAMILY):
        return ""
    problem = _install(socket_filter(machine))
    if problem:
        return f"the kernel refuses a filter of system calls: {problem}"
    if _is_refused(_NO_FAMILY) and _is_refused(_VSOCK):
        return ""
    return "the kernel accepts a filter of system calls, but does not apply it"


def _is_refused(family: int) -> bool:
    import _socket as socket  # the module itself imports `selectors` and `enum`

    try:
        # Without the filter the invalid flag is refused first, whether the kernel knows the family or not.
        socket.socket(family, socket.SOCK_STREAM | _NO_SUCH_FLAG).close()
    except OSError as error:
        return error.errno == errno.EAFNOSUPPORT
    return False


def _is_known(machine: str) -> bool:
    return machine in _INTERFACES and sys.byteorder == "little" and sys.maxsize > 1 << 32


def shield() -> bool:
    """Filter the calls of this process and of everything it starts; False if that is not possible."""
    machine = os.uname().machine
    # An agent that starts again in place has it already, and the kernel limits the number of filters.
    return _is_known(machine) and (_is_shielded() or not _install(_pack(_program(machine))))


def _is_shielded() -> bool:
    try:
        resource.prlimit(0, resource.RLIMIT_CORE)
        resource.prlimit(-1, resource.RLIMIT_CORE)
    except ProcessLookupError:
        return False
    except OSError as error:
        return error.errno == errno.EPERM
    return False


def _pack(steps: Iterable[tuple[int, int, int, int]]) -> bytes:
    return b"".join(struct.pack("<HBBI", *step) for step in steps)


def _install(code: bytes) -> str:
    """Install a filter for every call from now on; return the kernel's error, if any."""
    copy, address = buffer(code)
    program = struct.pack("@HxxxxxxP", len(code) // 8, address)
    try:
        prctl(_GAIN_NOTHING_MORE, 1)
        prctl(_PR_SET_SECCOMP, _MODE_FILTER, program)
    except OSError as error:
        return os.strerror(error.errno or 0)
    finally:
        del copy
    return ""
