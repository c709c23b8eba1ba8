"""A reader of the kernel's filters of system calls, so that one for another machine can be tried on this one."""

from __future__ import annotations

import struct

ALLOW, ERROR, KILL = 0x7FFF0000, 0x00050000, 0x80000000
X86_64, I386, AARCH64, ARM = 0xC000003E, 0x40000003, 0xC00000B7, 0x40000028


def verdict(program: bytes, architecture: int, number: int, *arguments: int) -> int:
    """Return what a filter answers to a call, as the kernel would run it."""
    padded = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    data = struct.pack("<IIQ6Q", number & 0xFFFFFFFF, architecture, 0, *padded)
    steps = list(struct.iter_unpack("<HBBI", program))
    position = accumulator = 0
    while True:
        code, if_true, if_false, operand = steps[position]
        position += 1
        if code == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, operand)
        elif code == 0x54:
            accumulator &= operand
        elif code == 0x06:
            return operand
        else:
            holds = {0x15: accumulator == operand, 0x35: accumulator >= operand}[code]
            position += if_true if holds else if_false
