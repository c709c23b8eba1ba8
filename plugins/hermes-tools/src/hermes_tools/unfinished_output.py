"""Finds incomplete characters and escape sequences at the end of output that is read in pieces."""

from __future__ import annotations

import re
from typing import Final

from hermes_tools.command_output import ESCAPE

# Two bytes that begin a longer sequence (CSI, OSC, a string) are not complete: the rest has not been read yet.
_COMPLETE: Final = re.compile(ESCAPE.pattern.replace("[0-~]", r"[0-OQ-WYZ\\`-~]"))
_LONGEST: Final = 256
"""Bytes after an escape character beyond which it no longer counts as an unfinished sequence."""


def count_unfinished_bytes(data: bytes) -> int:
    """Return how many bytes at the end are the beginning of a character or of an escape sequence."""
    start = data.rfind(b"\x1b", -_LONGEST)
    if start >= 0 and not _COMPLETE.match(data[start:].decode("latin-1")):
        return len(data) - start
    for length in range(1, min(4, len(data) + 1)):
        byte = data[-length]
        if byte >= 0xC0:
            return length if length < _size(byte) else 0
        if byte < 0x80:
            break
    return 0


def _size(lead: int) -> int:
    return 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
