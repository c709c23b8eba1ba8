"""The loosest way to find quoted lines: the first and the last one fit, and those between are nearly the same.

Lines are compared in pairs, never the whole text with the whole text, which takes as long as both lengths multiplied;
and only so many in one search, so that no file and no quotation keeps a rollout busy.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Final

SIMILARITY: Final = 0.8
"""The least share of characters that the lines between must have in common, 0 to 1."""
MAX_LINES: Final = 400
MAX_COMPARISONS: Final = 20_000
"""Pairs of lines that one search may compare: about a second."""
_LONG_LINE: Final = 500
_MAX_REPEATS: Final = 8


class TooManyError(Exception):
    """There are more places to compare than a search may."""


@dataclass(slots=True)
class _Comparisons:
    left: int = MAX_COMPARISONS

    def spend(self, number: int) -> None:
        self.left -= number
        if self.left < 0:
            raise TooManyError


def anchored(lines: Sequence[str], block: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the first line and the line after the last of each place that is like `block`, both without indentation.

    Blocks of 3 to `MAX_LINES` lines are looked for, in places up to a quarter longer or shorter. Raises `TooManyError`.
    """
    size = len(block)
    if not 3 <= size <= MAX_LINES:
        return
    slack = max(1, size // 4)
    ends = [at for at, line in enumerate(lines, 1) if line == block[-1]]
    comparisons = _Comparisons()
    for first in (at for at, line in enumerate(lines) if line == block[0]):
        shortest, longest = first + max(2, size - slack), first + size + slack - 1
        for after in ends[bisect_left(ends, shortest) : bisect_right(ends, longest)]:
            comparisons.spend(size)
            if is_similar(lines[first + 1 : after - 1], block[1:-1]):
                yield first, after


def is_similar(found: Sequence[str], wanted: Sequence[str]) -> bool:
    """Tell whether lines have at least `SIMILARITY` of their characters in common with others, in the same order."""
    total = sum(map(len, found)) + sum(map(len, wanted))
    missing = total * (1 - SIMILARITY)
    for one, other in _pairs(found, wanted):
        if one != other:
            missing -= (len(one) + len(other)) * (1 - _ratio(one, other))
        if missing < 0:
            return False
    return True


def _ratio(one: str, other: str) -> float:
    matcher = SequenceMatcher(None, one, other, autojunk=False)
    # Characters of long lines are counted, not put in order.
    return matcher.quick_ratio() if max(len(one), len(other)) > _LONG_LINE else matcher.ratio()


def _pairs(found: Sequence[str], wanted: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield which line is held against which; a line that stands on one side only is held against an empty one."""
    if len(found) == len(wanted) or _repeats(found, wanted):
        yield from zip_longest(found, wanted, fillvalue="")
        return
    for _, i1, i2, j1, j2 in SequenceMatcher(None, found, wanted, autojunk=False).get_opcodes():
        yield from zip_longest(found[i1:i2], wanted[j1:j2], fillvalue="")


def _repeats(found: Sequence[str], wanted: Sequence[str]) -> bool:
    """Tell whether lines repeat so often that putting them in order takes long."""
    times = Counter(wanted)
    return sum(times[line] for line in found) > _MAX_REPEATS * len(found)
