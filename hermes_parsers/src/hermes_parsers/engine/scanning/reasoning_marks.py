"""The marks around reasoning, by mark: those of the family's own template, and `<think>`, which models write in all."""

from __future__ import annotations

from typing import Final, NamedTuple


class Thinking(NamedTuple):
    """A pair of marks, and what templates write inside and behind them that is no part of the reasoning."""

    opening: str
    closing: str
    before: str
    after: str
    end: str


THINK: Final = Thinking("<think>", "</think>", "\n", "\n", "\n\n")


def by_mark(*pairs: Thinking) -> dict[str, Thinking]:
    """Return each pair under both its marks; the first that has a mark keeps it."""
    found: dict[str, Thinking] = {}
    for pair in pairs:
        found.setdefault(pair.opening, pair)
        found.setdefault(pair.closing, pair)
    return found
