"""Finding quoted text and quoted lines in a file, in time that grows with the file, however often lines repeat."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

Key = Callable[[str], str]


def occurrences(text: str, needle: str, *, shared: int = 0) -> Iterator[int]:
    """Yield where `needle` stands in `text`, apart but for `shared` characters; two if two places overlap.

    All overlapping places are not told: in a file of one line repeated they are as many as its lines, each as long as
    the needle.
    """
    at = first = text.find(needle)
    if at < 0:
        return
    yield at
    while (at := text.find(needle, at + len(needle) - shared)) >= 0:
        yield at
        first = -1
    if first >= 0 and (overlap := text.find(needle, first + 1)) >= 0:
        yield overlap


class SearchableLines:
    """The lines of a file, in which blocks are looked for through keys; what a key makes of the lines is kept."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines
        self._by_key: dict[Key, list[str]] = {}
        self._joined: dict[Key, tuple[str, list[int]]] = {}

    def keys(self, key: Key) -> list[str]:
        """Return all lines as seen through `key`."""
        if key not in self._by_key:
            self._by_key[key] = [key(line) for line in self.lines]
        return self._by_key[key]

    def find(self, block: Sequence[str], key: Key) -> Iterator[int]:
        """Yield the numbers, from 0, of the lines at which `block` begins; a block of blank lines begins nowhere."""
        wanted = [key(line) for line in block]
        if not any(wanted):
            return
        text, starts = self._as_text(key)
        for at in occurrences(text, "\n" + "\n".join(wanted) + "\n", shared=1):
            yield bisect_left(starts, at)

    def _as_text(self, key: Key) -> tuple[str, list[int]]:
        if key not in self._joined:
            keys = self.keys(key)
            starts = list(accumulate((len(seen) + 1 for seen in keys[:-1]), initial=0))
            self._joined[key] = ("\n" + "\n".join(keys) + "\n", starts)
        return self._joined[key]
