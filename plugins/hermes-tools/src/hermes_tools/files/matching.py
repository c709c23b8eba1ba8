"""What every search of a file shares: its result, its refusal, its limit of work, and lines seen through a key."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Final

SIZE_LIMIT: Final = 16 * 2**20
"""Bytes of the largest file that a patch reads, and characters of the largest that it makes."""
PLACES_SHOWN: Final = 10
"""Where text fits in several places, as many are named; no more are looked for."""

MAX_EFFORT: Final = 2_000_000_000
# What one line costs Python code where one character costs a search in C; splitting and seeing it costs less.
LINE_EFFORT: Final = 400
_VIEW_EFFORT: Final = 150

# One character to one character, so that offsets stay valid.
TYPOGRAPHY: Final = str.maketrans(
    "\u201c\u201d\u201e\u201f\u2018\u2019\u201a\u201b\u2010\u2011\u2012\u2013\u2014\u2212\u00a0\u2002\u2003\u2009\u202f",
    "\"\"\"\"''''------     ",
)

Key = Callable[[str], str]
"""How a line is seen while lines are compared; what it returns holds no newline."""


class MatchError(ValueError):
    """The text cannot be found, or not without doubt; the message is for the model."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace the characters `start` … `end` by `text`."""

    start: int
    end: int
    text: str


class Effort:
    """The work that one call may still do, in characters looked at: about a nanosecond each.

    It is counted and not timed, so that a call does the same on a busy machine. A file can be made for a search to
    take days, and a search cannot be ended from outside: it runs in a thread that other rollouts wait for.
    """

    def __init__(self, characters: int = MAX_EFFORT) -> None:
        self._left = characters

    def spend(self, characters: int) -> None:
        """Count work that follows; raises MatchError where there would be too much of it."""
        if not self.affords(characters):
            raise MatchError(
                "The search was given up: too much of the file is like the text that is looked for, or the file is too "
                "long. Nothing was changed. Read the file again and quote fewer lines exactly, or use the terminal."
            )

    def affords(self, characters: int) -> bool:
        """Count work that follows if there is enough left for it, and tell whether there is."""
        if characters > self._left:
            return False
        self._left -= characters
        return True


def tell_count(places: Sequence[object]) -> str:
    """Say how many places were found, of which no more than one above those shown are looked for."""
    return f"more than {PLACES_SHOWN}" if len(places) > PLACES_SHOWN else str(len(places))


def common_ends(one: Sequence[str], other: Sequence[str]) -> tuple[int, int]:
    """Return how many items two sequences share at the beginning, and how many of the others at the end."""
    shorter = min(len(one), len(other))
    head = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), shorter)
    tail = next((i for i in range(shorter - head) if one[-1 - i] != other[-1 - i]), shorter - head)
    return head, tail


def collapse(line: str) -> str:
    """Reduce every run of white space to one space."""
    return " ".join(line.split())


def collapse_plain(line: str) -> str:
    """Reduce white space and typographic quotes, dashes and spaces."""
    return collapse(line.translate(TYPOGRAPHY))


@dataclass(frozen=True, slots=True)
class View:
    """Lines as a key shows them: a newline before, between and after them, and where each begins."""

    text: str
    starts: array[int]

    def between(self, first: int, after: int) -> str:
        """Return lines `first` … `after`, without `after`, joined by newlines."""
        return self.text[self.starts[first] : self.starts[after] - 1] if after > first else ""

    def length(self, first: int, after: int) -> int:
        """Return how many characters `between` would have."""
        return self.starts[after] - 1 - self.starts[first] if after > first else 0


class Lines:
    """The lines of a text, searched in time that grows with the text and not with what is like it."""

    def __init__(self, text: str | None, effort: Effort) -> None:
        """Split a text, which has one line more than newlines; None has no line."""
        self._lines: Sequence[str] = []
        if text is not None:
            effort.spend(_VIEW_EFFORT * text.count("\n"))
            self._lines = text.split("\n")
        self._effort = effort
        self._views: dict[Key, View] = {}

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, part: slice) -> Sequence[str]:
        return self._lines[part]

    def start(self, at: int) -> int:
        """Return where a line begins in the text; of the line after the last, where it would."""
        return self.view(str).starts[at] - 1

    def view(self, key: Key) -> View:
        """Return the lines seen through `key`."""
        if key not in self._views:
            self._effort.spend(_VIEW_EFFORT * len(self._lines))
            keys = self._lines if key is str else [key(line) for line in self._lines]
            starts = array("q", accumulate(chain([1], (len(line) + 1 for line in keys))))
            self._views[key] = View("\n".join(chain([""], keys, [""])), starts)
        return self._views[key]

    def find(self, block: Sequence[str], key: Key, *, first: int = 0) -> Iterator[int]:
        """Yield each line from `first` on where `block` begins, both seen through `key`; blank lines begin nowhere."""
        wanted = "\n".join(key(line) for line in block)
        if wanted.strip("\n"):
            yield from self._search(f"\n{wanted}\n", len(block), key, first)

    def find_beginnings(self, beginning: str, key: Key, *, first: int = 0) -> Iterator[int]:
        """Yield each line from `first` on that begins with the text, both seen through `key`."""
        yield from self._search(f"\n{key(beginning)}", 1, key, first)

    def lie_at(self, at: int, block: Sequence[str], key: Key) -> bool:
        """Tell whether `block` begins at line `at`, both seen through `key`."""
        wanted = "\n".join(key(line) for line in block)
        view = self.view(key)
        return 0 <= at < len(self._lines) and view.text.startswith(f"\n{wanted}\n", view.starts[at] - 1)

    def _search(self, wanted: str, size: int, key: Key, first: int) -> Iterator[int]:
        view = self.view(key)
        while first < len(self._lines):
            begin = view.starts[first] - 1
            found = view.text.find(wanted, begin)
            # Finding a place costs Python code something, and whoever gets it looks at each of its lines.
            passed = (len(view.text) if found < 0 else found) - begin
            self._effort.spend(passed + len(wanted) + LINE_EFFORT * (size + 2))
            if found < 0:
                return
            first = bisect_left(view.starts, found + 1)
            yield first
            first += 1
