"""Confines the sockets of a shell that serves a sandbox. A shell cannot set a system call filter itself.

It writes a program of half a kilobyte to a file. The program sets the filter, tests it, and becomes the shell again.
"""

from __future__ import annotations

import shlex
import struct
from collections.abc import Mapping
from functools import cache
from typing import Final

from hermes_sandbox.agent.seccomp import socket_filter

_BASE: Final = 0x400000
_HEADERS: Final = 64 + 56
_X86_64: Final = """
b89d000000bf26000000be0100000031d24531d24531c00f0585c0754bb89d000000bf16000000be02000000488d15450000000f0585c075
2fb829000000bf28000000be0100001031d20f0583f89f7517488b0c24488d742410488b3e488d14ceb83b0000000f05bf7c000000b8e700
00000f050f1f4000
"""
_AARCH64: Final = """
e81480d2c00480d2210080d2020080d2030080d2040080d2010000d4a00200b5e81480d2c00280d2410080d2a2020010010000d4e00100b5
c81880d2000580d2210080d20100a2f2020080d2010000d41f8401b1e1000054e20340f9e1430091200040f9220c028ba81b80d2010000d4
800f80d2c80b80d2010000d41f2003d5
"""
_MACHINES: Final[Mapping[str, tuple[int, str]]] = {"x86_64": (62, _X86_64), "aarch64": (183, _AARCH64)}
"""The number of a machine in an ELF header, and its code for these lines, which calls exit(124) if one of them fails:

    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filter)    the filter follows the code
    socket(AF_VSOCK, SOCK_STREAM | 1 << 28, 0)            must fail with EAFNOSUPPORT; the kernel checks the flag later
    execve(argv[1], argv + 1, envp)

The tests assemble them again if an assembler is installed.
"""
_SCRIPT: Final = r"""
set -C
umask 077
sh=$(command -v sh)
case $sh in
/*) ;;
*) for sh in /usr/bin/sh /bin/sh; do [ ! -x "$sh" ] || break; done ;;
esac
code=
case $(uname -m) in
{cases}
esac
for base in {folder} /run /tmp /var/tmp /dev/shm; do
    file=$base/.hermes-{nonce}
    { [ "$code" ] && printf "$code" >"$file" && chmod 700 "$file" && "$file" "$sh" -c : </dev/null; } 2>/dev/null &&
        exec "$file" "$sh" -c 'rm -f "$2"; eval "$1"' hermes "$1" "$file"
    rm -f "$file" 2>/dev/null
done
printf '%-255.255s\n' '{nonce} unconfined'
exit 1
"""


@cache
def confining_program(machine: str) -> bytes:
    """Return an executable for x86_64 or aarch64 that confines itself and then executes its first argument."""
    number, code = _MACHINES[machine]
    text, rules = bytes.fromhex(code), socket_filter(machine)
    entry = _BASE + _HEADERS
    size = _HEADERS + len(text) + 16 + len(rules)
    return (
        b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
        + struct.pack("<HHIQQQIHHHHHH", 2, number, 1, entry, 64, 0, 0, 64, 56, 1, 0, 0, 0)
        + struct.pack("<IIQQQQQQ", 1, 5, 0, _BASE, _BASE, size, size, 1 << 16)
        + text
        + struct.pack("<HxxxxxxQ", len(rules) // 8, entry + len(text) + 16)
        + rules
    )


def confinement_message(nonce: str, folder: str | None) -> bytes:
    """Return the first message to a shell whose commands must not open other sockets.

    The shell answers only if this fails: with a line that has the nonce and `unconfined`.
    """
    cases = "\n".join(f"{machine}) code='{_escape(confining_program(machine))}' ;;" for machine in _MACHINES)
    text = _SCRIPT.replace("{cases}", cases).replace("{folder}", shlex.quote(folder or "/run"))
    return text.replace("{nonce}", nonce).encode().replace(b"\\", b"\\0134").replace(b"\n", b"\\0012") + b"\n"


def _escape(data: bytes) -> str:
    return "".join(f"\\{byte:03o}" for byte in data)
