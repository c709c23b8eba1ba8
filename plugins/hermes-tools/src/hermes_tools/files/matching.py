"""Shared parts of all searches in a file: the edit, the error, the limit of effort, and lines compared by a key."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Final

SIZE_LIMIT: Final = 16 * 2**20
"""Maximum size of a file that a patch reads, in bytes, and of one that it writes, in characters."""
PLACES_SHOWN: Final = 10
"""Maximum number of matches that an error names. The search stops after one more."""

MAX_EFFORT: Final = 2_000_000_000
# Cost of a line in Python code, in units of the cost of a character for a search in C. To split a text and compute
# the keys of its lines costs less.
LINE_EFFORT: Final = 400
_VIEW_EFFORT: Final = 150

# Each character becomes exactly one character, so that offsets stay valid.
TYPOGRAPHY: Final = str.maketrans(
    "\u201c\u201d\u201e\u201f\u2018\u2019\u201a\u201b\u2010\u2011\u2012\u2013\u2014\u2212\u00a0\u2002\u2003\u2009\u202f",
    "\"\"\"\"''''------     ",
)

Key = Callable[[str], str]
"""Maps a line to the text by which it is compared. The text has no newline."""


class MatchError(ValueError):
    """The text was not found, or its place is ambiguous. The message is for the model."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Replacement of the characters `start` … `end` by `text`."""

    start: int
    end: int
    text: str


class Effort:
    """The effort left for a call, in characters that are searched: about a nanosecond each.

    Effort is counted instead of timed, so that a call has the same result on a busy machine. A file can be constructed
    so that a search takes days, and a search cannot be stopped from outside: it runs in a thread that other rollouts
    need.
    """

    def __init__(self, characters: int = MAX_EFFORT) -> None:
        self._left = characters

    def spend(self, characters: int) -> None:
        """Reserve effort for the next step. Raise MatchError if not enough is left."""
        if not self.affords(characters):
            raise MatchError(
                "The search was given up: too much of the file is similar to the text to find, or the file is too "
                "long. Nothing was changed. Read the file again and quote fewer lines exactly, or use the terminal."
            )

    def affords(self, characters: int) -> bool:
        """Reserve effort for the next step if enough is left. Return whether it is."""
        if characters > self._left:
            return False
        self._left -= characters
        return True


def tell_count(places: Sequence[object]) -> str:
    """Return the number of places as text. The search stops after PLACES_SHOWN + 1 of them."""
    return f"more than {PLACES_SHOWN}" if len(places) > PLACES_SHOWN else str(len(places))


def common_ends(one: Sequence[str], other: Sequence[str]) -> tuple[int, int]:
    """Return how many items two sequences share at the beginning, and how many of the rest at the end."""
    shorter = min(len(one), len(other))
    head = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), shorter)
    tail = next((i for i in range(shorter - head) if one[-1 - i] != other[-1 - i]), shorter - head)
    return head, tail


def collapse(line: str) -> str:
    """Replace each run of white space by one space, and strip the line."""
    return " ".join(line.split())


def collapse_plain(line: str) -> str:
    """Collapse white space, and replace typographic quotes, dashes and spaces by plain ones."""
    return collapse(line.translate(TYPOGRAPHY))


@dataclass(frozen=True, slots=True)
class View:
    """The keys of lines as one text, with a newline before, between and after them, and where each begins."""

    text: str
    starts: array[int]

    def between(self, first: int, after: int) -> str:
        """Return the lines from `first` up to but not including `after`, joined by newlines."""
        return self.text[self.starts[first] : self.starts[after] - 1] if after > first else ""

    def length(self, first: int, after: int) -> int:
        """Return the length of `between` for the same lines."""
        return self.starts[after] - 1 - self.starts[first] if after > first else 0


class Lines:
    """The lines of a text. The time of a search grows with the text, not with the number of similar lines."""

    def __init__(self, text: str | None, effort: Effort) -> None:
        """Split a text into lines, one more than it has newlines. None has no lines."""
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
        """Return the offset at which a line begins. For the line after the last, return where it would begin."""
        return self.view(str).starts[at] - 1

    def view(self, key: Key) -> View:
        """Return the keys of all lines."""
        if key not in self._views:
            self._effort.spend(_VIEW_EFFORT * len(self._lines))
            keys = self._lines if key is str else [key(line) for line in self._lines]
            starts = array("q", accumulate(chain([1], (len(line) + 1 for line in keys))))
            self._views[key] = View("\n".join(chain([""], keys, [""])), starts)
        return self._views[key]

    def find(self, block: Sequence[str], key: Key, *, first: int = 0) -> Iterator[int]:
        """Yield each line from `first` on at which `block` begins, compared by `key`. A blank block is never found."""
        wanted = "\n".join(key(line) for line in block)
        if wanted.strip("\n"):
            yield from self._search(f"\n{wanted}\n", len(block), key, first)

    def find_beginnings(self, beginning: str, key: Key, *, first: int = 0) -> Iterator[int]:
        """Yield each line from `first` on that begins with the text, compared by `key`."""
        yield from self._search(f"\n{key(beginning)}", 1, key, first)

    def block_is_at(self, at: int, block: Sequence[str], key: Key) -> bool:
        """Return whether `block` begins at line `at`, compared by `key`."""
        wanted = "\n".join(key(line) for line in block)
        view = self.view(key)
        return 0 <= at < len(self._lines) and view.text.startswith(f"\n{wanted}\n", view.starts[at] - 1)

    def _search(self, wanted: str, size: int, key: Key, first: int) -> Iterator[int]:
        view = self.view(key)
        while first < len(self._lines):
            begin = view.starts[first] - 1
            found = view.text.find(wanted, begin)
            # A match has a cost in Python code, and the caller looks at each of its lines.
            passed = (len(view.text) if found < 0 else found) - begin
            self._effort.spend(passed + len(wanted) + LINE_EFFORT * (size + 2))
            if found < 0:
                return
            first = bisect_left(view.starts, found + 1)
            yield first
            first += 1
