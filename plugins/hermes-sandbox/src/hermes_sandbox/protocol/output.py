"""Output without its middle part."""

from __future__ import annotations


def join_ends(head: bytes, tail: bytes, omitted: int) -> bytes:
    """Join the kept head and tail of an output, with a line that says how much is missing."""
    return head + (b"\n[... %d bytes omitted ...]\n" % omitted if omitted else b"") + tail


def decode_streams(*streams: bytes) -> str:
    """Return the text of one stream after the other; a character that is cut off at an end of one stays in it."""
    return "".join(stream.decode(errors="replace") for stream in streams)
