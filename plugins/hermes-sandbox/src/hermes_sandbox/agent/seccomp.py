"""Keeping the limits and the scheduling of the agent from commands that run as the same user.

A first process of a PID namespace cannot be signalled from inside, nor traced when it is not dumpable; but its limits
could be set to nothing and its priority to the lowest by any process of its user. A system call filter, which
everything that is started inherits, leaves those calls only to who means itself.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys
from collections.abc import Iterator
from typing import NamedTuple

_PR_SET_SECCOMP = 22
_GAIN_NOTHING_MORE = 38
_MODE_FILTER = 2
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM
_NUMBER, _ARCHITECTURE = 0, 4
_X32 = 0x40000000
"""From here on the numbers are those of a third interface of x86-64, which nothing uses."""


class _Interface(NamedTuple):
    """Numbers of system calls, from the kernel's tables (asm/unistd.h), and their AUDIT_ARCH."""

    architecture: int
    of_a_process: tuple[int, ...]
    """prlimit64, sched_setparam, sched_setscheduler, sched_setaffinity, sched_setattr: the process comes first."""
    priority: int
    io_priority: int


_INTERFACES = {
    "x86_64": (
        _Interface(0xC000003E, (302, 142, 144, 203, 314), 141, 251),
        _Interface(0x40000003, (340, 154, 156, 241, 351), 97, 289),
    ),
    "aarch64": (
        _Interface(0xC00000B7, (261, 118, 119, 122, 274), 140, 30),
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
    if interface.architecture == 0xC000003E:
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


def shield() -> bool:
    """Filter the calls of this process and of everything it starts; False where that cannot be had."""
    machine = os.uname().machine
    if machine not in _INTERFACES or sys.byteorder != "little" or sys.maxsize < 1 << 32:
        return False
    code = b"".join(struct.pack("=HBBI", *step) for step in _program(machine))
    buffer = ctypes.create_string_buffer(code)
    program = struct.pack("@HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    return bool(
        prctl(_GAIN_NOTHING_MORE, 1, 0, 0, 0) == 0
        and prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.c_char_p(program), 0, 0) == 0
    )
