"""Programs that try to open sockets of every family in every way from inside a sandbox, and the allowed results."""

from __future__ import annotations

import asyncio
import errno
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from hermes_core.contracts.sandbox import Sandbox

SOCKET_WAYS: Final = r"""
import ctypes, json, mmap, os, signal, struct, sys

FAMILIES = [*range(64), 255, 256, 4097, (1 << 16) + 40, (1 << 31) - 1, (1 << 32) - 1]
TYPES = [1, 2, 3, 4, 5, 6, 10]
NO_SUCH_FLAG = 1 | 1 << 28  # The kernel refuses it (EINVAL) before it looks at the family; a filter comes before both.
X32 = 1 << 30
syscall = ctypes.CDLL(None, use_errno=True).syscall
syscall.restype = ctypes.c_long
pair = (ctypes.c_int * 2)()

def call(number, *arguments):
    result = syscall(ctypes.c_long(number), *[ctypes.c_ulong(argument) for argument in arguments])
    return result if result >= 0 else -ctypes.get_errno()

def look(invoke, socket, socketpair, wide=0):
    said = {}
    for name, number, rest in (("socket", socket, ()), ("socketpair", socketpair, (ctypes.addressof(pair),))):
        answers = {}
        for family in FAMILIES:
            answers[family] = sorted({invoke(number, family + wide, kind, 0, *rest) for kind in (NO_SUCH_FLAG,)})
            for kind in TYPES:
                result = invoke(number, family + wide, kind, 0, *rest)
                if result >= 0:
                    for opened in [result] if name == "socket" else list(pair):
                        os.close(opened)
                    answers[family].append("opened type %d" % kind)
        said[name] = answers
    return said

def io_uring(invoke):
    return [invoke(number, 1, 0, 0) for number in (425, 426, 427)]

def in_a_child(work):
    # What the kernel does to who uses the interface may be its end.
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, json.dumps(work()).encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as stream:
        text = stream.read()
    status = os.waitpid(child, 0)[1]
    return json.loads(text) if text else "signal %d" % (status & 127)

def interface_of_32_bits():
    page = mmap.mmap(-1, 1 << 16, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40, prot=7)
    # push rbx; eax, ebx, ecx, edx = edi, esi, edx, ecx; esi = r8d; int 0x80; pop rbx; sign-extend; ret
    page.write(bytes.fromhex("53" "89f8" "89f3" "87d1" "4489c6" "cd80" "5b" "4898" "c3"))
    low = ctypes.addressof(ctypes.c_char.from_buffer(page))
    run = ctypes.CFUNCTYPE(ctypes.c_long, *[ctypes.c_ulong] * 5)(low)

    def invoke(number, *arguments):
        return run(number, *(list(arguments) + [0] * 4)[:4])

    def by_socketcall(number, family, kind, protocol, target=0):
        page[4096:4112] = struct.pack("4I", family, kind, protocol, low + 8192 if target else 0)
        result = invoke(102, {359: 1, 360: 8}[number], low + 4096)
        if target:
            pair[:] = struct.unpack("2i", page[8192:8200])
        return result

    def direct(number, family, kind, protocol, target=0):
        result = invoke(number, family, kind, protocol, low + 8192 if target else 0)
        if target:
            pair[:] = struct.unpack("2i", page[8192:8200])
        return result

    return {
        "getpid": [invoke(20)],
        "io_uring": io_uring(invoke),
        "direct": look(direct, 359, 360),
        "socketcall": look(by_socketcall, 359, 360),
    }

machine = os.uname().machine
numbers = {"x86_64": (41, 53), "aarch64": (198, 199)}[machine]
found = {
    "native": look(call, *numbers),
    "upper half": look(call, *[number + (1 << 32) for number in numbers], wide=1 << 32),
    "io_uring": io_uring(call),
    "upper half io_uring": io_uring(lambda number, *rest: call(number + (1 << 32), *rest)),
}
if machine == "x86_64":
    found["x32"] = in_a_child(lambda: look(call, *[number | X32 for number in numbers]))
    found["x32 io_uring"] = in_a_child(lambda: io_uring(lambda number, *rest: call(number | X32, *rest)))
    found["32 bits"] = in_a_child(interface_of_32_bits)
print(json.dumps(found))
"""
"""Run it with Python 3.8 or newer, on x86-64 or aarch64; it prints JSON."""

_WAYS_IN_C: Final = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static long call(long number, long family, long kind) {
    int pair[2] = {-1, -1};
    long result = syscall(number, family, kind, 0, pair);
    if (result < 0) return -errno;
    close(number == SYS_socket ? result : pair[0]);
    close(pair[1]);
    return result;
}

static void look(const char *name, long number) {
    printf("\"%s\": {", name);
    for (long family = 0; family < 64; family++) {
        printf("%s\"%ld\": [%ld", family ? ", " : "", family, call(number, family, 1 | 1 << 28));
        for (int kind = 1; kind <= 10; kind++)
            if (call(number, family, kind) >= 0) printf(", \"opened type %d\"", kind);
        printf("]");
    }
    printf("}");
}

int main(void) {
    printf("{\"native\": {");
    look("socket", SYS_socket);
    printf(", ");
    look("socketpair", SYS_socketpair);
    printf("}, \"io_uring\": [%ld]}\n", call(425, 1, 0));
    return 0;
}
"""


ALLOWED_FAMILIES: Final = {1: "AF_UNIX", 2: "AF_INET", 10: "AF_INET6", 16: "AF_NETLINK"}
"""Families that stay inside the sandbox: a network namespace has its own, and a path leads only to mounted files."""
_ABSENT: Final = (-errno.ENOSYS, -errno.EPERM)
_KILLED: Final = ("signal 11", "signal 31")
"""SIGSEGV if the kernel is built without that interface, SIGSYS if a filter kills its user."""
_PACKET: Final = "opened type 10"
"""With family AF_INET, it is another name of AF_PACKET."""


async def openings_in(sandbox: Sandbox, folder: Path) -> list[str]:
    """Run the program in a sandbox and return the result of `openings`; `folder` is a local folder to build in.

    Skips if there is neither Python inside nor a C compiler outside.
    """
    command = "python3 socket-ways"
    program: bytes | None = SOCKET_WAYS.encode()
    if (await sandbox.exec("command -v python3")).exit_code != 0:
        command, program = "./socket-ways", await asyncio.to_thread(_compile, folder)
    if program is None:
        pytest.skip("there is neither Python in the sandbox nor a C compiler here")
    await sandbox.write_file("socket-ways", program, mode=0o755)
    tried = await sandbox.exec(command, timeout=60)
    assert tried.exit_code == 0, tried.output
    return openings(tried.stdout)


def _compile(folder: Path) -> bytes | None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    source, made = folder / "ways.c", folder / "ways"
    source.write_text(_WAYS_IN_C, encoding="ascii")
    subprocess.run([compiler, "-static", "-s", "-o", made, source], check=True)
    return made.read_bytes()


def openings(printed: bytes) -> list[str]:
    """Return each way that leads to a socket of another family, from the output of `SOCKET_WAYS`; expected are none."""
    found = json.loads(printed)
    return [opening for way in found for opening in _WAYS.get(way, _interface)(way, found[way])]


def _families(way: str, calls: dict[str, dict[str, list[Any]]]) -> Iterator[str]:
    for name, families in calls.items():
        for family, answers in families.items():
            allowed = int(family) in ALLOWED_FAMILIES and _PACKET not in answers
            if not allowed and answers != [-errno.EAFNOSUPPORT]:
                yield f"{way}: {name} of family {family}: {answers}"


def _interface(way: str, found: Any) -> Iterator[str]:
    # Any call of it acts as if it did not exist, or kills the caller.
    answers = sorted({str(answer) for answer in _leaves(found) if answer not in (*_ABSENT, *_KILLED)})
    if answers:
        yield f"{way}: {', '.join(answers)}"


def _leaves(found: Any) -> Iterator[Any]:
    if not isinstance(found, (dict, list)):
        yield found
        return
    for item in found.values() if isinstance(found, dict) else found:
        yield from _leaves(item)


_WAYS: Final = {"native": _families, "upper half": _families}
