"""The output of commands as a model reads it: without escape sequences, and its middle left out when it is long."""

from __future__ import annotations

import re
from typing import Final

from hermes_core.contracts.sandbox import ExecResult

OUTPUT_LIMIT: Final = 50_000
_HEAD_SHARE: Final = 0.4

# CSI sequences, OSC strings up to BEL or ST, and two-byte escapes.
_ESCAPE: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[PX^_][^\x1b]*\x1b\\|[ -/]*[0-~])"
)
# What begins like a long sequence is none of two bytes, unless the end of the text cut it off.
_COMPLETE: Final = re.compile(_ESCAPE.pattern.replace("[0-~]", r"[0-OQ-WYZ\\`-~]"))
_LONGEST: Final = 256
"""Bytes behind an escape character after which it is no unfinished sequence any more."""


def shorten(result: ExecResult, limit: int = OUTPUT_LIMIT) -> str:
    """Return the output without escape sequences, head and tail of it when it is longer than `limit` characters."""
    text = without_escapes(result.output).strip()
    if len(text) <= limit:
        return text
    head = int(limit * _HEAD_SHARE)
    tail = len(text) - (limit - head)
    omitted, total = tail - head, len(text)
    besides = ""
    # The sandbox bounds what it keeps and says so in a line of its own, which is not the command's output.
    gap = f"\n[... {result.omitted_bytes} bytes omitted ...]\n"
    if result.truncated and gap in text[head:tail]:
        omitted, total = omitted - len(gap), total - len(gap)
        besides = f", besides {result.omitted_bytes} bytes that were not kept while the command ran"
    return f"{text[:head]}\n[OUTPUT TRUNCATED - {omitted} of {total} characters omitted here{besides}]\n{text[tail:]}"


def without_escapes(text: str) -> str:
    """Return the text without escape sequences."""
    return _ESCAPE.sub("", text)


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
