"""Output of which the middle is not kept."""

from __future__ import annotations


def join_ends(head: bytes, tail: bytes, omitted: int) -> bytes:
    """Return what is kept of an output, with a line that says how much is not."""
    return head + (b"\n[... %d bytes omitted ...]\n" % omitted if omitted else b"") + tail
