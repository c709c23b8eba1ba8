"""Makes text of models, tasks and servers safe to print on a terminal."""

from __future__ import annotations


def one_line(value: object, limit: int = 200, *, encoding: str = "utf-8") -> str:
    """Return the text as one printable line of at most `limit` characters; control codes are shown, not sent.

    Characters that `encoding` lacks are shown as escapes, so that printing cannot fail.
    """
    text = value if isinstance(value, str) else str(value)
    head = "".join(map(_escape, text[: limit + 1]))
    head = head.encode(encoding, "backslashreplace").decode(encoding)
    if len(text) <= limit and len(head) <= limit:
        return head
    more = "…" if encoding.lower().startswith("utf") else "..."
    return head[: max(0, limit - len(more))] + more


def plural(count: int, noun: str) -> str:
    """Return the count with its noun: `1 rollout`, `2 rollouts`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _escape(character: str) -> str:
    # Not printable are escape sequences, direction overrides, invisible marks, lone surrogates and unassigned codes.
    if character.isprintable():
        return character
    if character.isspace():
        return " "
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
