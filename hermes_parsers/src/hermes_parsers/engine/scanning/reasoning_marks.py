"""The marks around reasoning: those of the family's template, and `<think>`, which models of all families write."""

from __future__ import annotations

from typing import Final, NamedTuple


class Thinking(NamedTuple):
    """A pair of marks, and the text that templates write inside and after them that is not part of the reasoning."""

    opening: str
    closing: str
    before: str
    after: str
    end: str


THINK: Final = Thinking("<think>", "</think>", "\n", "\n", "\n\n")


def by_mark(*pairs: Thinking) -> dict[str, Thinking]:
    """Return each pair under both of its marks; the first pair with a mark keeps it."""
    found: dict[str, Thinking] = {}
    for pair in pairs:
        found.setdefault(pair.opening, pair)
        found.setdefault(pair.closing, pair)
    return found
