"""Places the hunks of a patch text in the file that they change."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, pairwise
from typing import Final

from hermes_tools.files.indentation import reindent
from hermes_tools.files.matching import (
    LINE_EFFORT,
    PLACES_SHOWN,
    Edit,
    Effort,
    Key,
    Lines,
    MatchError,
    collapse,
    collapse_plain,
    tell_count,
)
from hermes_tools.files.v4a import Hunk

_KEYS: Final[dict[str, Key]] = {
    "exact": str,
    "trailing_whitespace": str.rstrip,
    "indentation_flexible": str.strip,
    "whitespace_normalized": collapse,
    "unicode_and_whitespace": collapse_plain,
}


def place_hunks(
    text: str, hunks: Sequence[Hunk], path: str, *, effort: Effort | None = None
) -> tuple[list[Edit], set[str]]:
    """Find each hunk in `text`, which ends with a newline. Return the edits in order, and how they were matched.

    Raises MatchError, also if the search would take more than `effort`.
    """
    effort = effort or Effort()
    file = _File(path, Lines(text.removesuffix("\n") if text else None, effort), effort)
    edits: list[Edit] = []
    used: set[str] = set()
    for hunk in hunks:
        place = file.locate(hunk)
        used.add(place.how)
        edits += _edits(hunk, place, file.lines)
    edits.sort(key=lambda edit: (edit.start, edit.end))
    for before, edit in pairwise(edits):
        if edit.start < before.end:
            line = text.count("\n", 0, edit.start) + 1
            raise MatchError(
                f"{path}: two hunks change line {line} of the file. Nothing was changed. Make them one hunk."
            )
    return edits, used


@dataclass(frozen=True, slots=True)
class _Place:
    at: int
    how: str
    added: Sequence[str]


@dataclass(slots=True)
class _File:
    """A file in which hunks are placed. `taken` has the first and the last line + 1 of each placed hunk, in order."""

    path: str
    lines: Lines
    effort: Effort
    taken: list[tuple[int, int]] = field(default_factory=list)
    after: int = 0

    def locate(self, hunk: Hunk) -> _Place:
        """Find the place of a hunk, and mark its lines as taken."""
        self.effort.spend(LINE_EFFORT * len(hunk.body))
        place = self._place(hunk, self._below_anchors(hunk))
        self.after = place.at + len(hunk.quoted)
        if hunk.quoted:
            insort(self.taken, (place.at, self.after))
        return place

    def _place(self, hunk: Hunk, floor: int) -> _Place:
        quoted, fresh = hunk.quoted, [text for mark, text in hunk.body if mark == "+"]
        if not quoted:
            return _Place(_insertion(self.lines, hunk, self.path, floor), "exact", fresh)
        for how, key in _KEYS.items():
            fits = (at for at in self.lines.find(quoted, key, first=floor) if self._may_take(at, len(quoted), hunk))
            found = list(islice(fits, PLACES_SHOWN + 1))
            if not found:
                continue
            at = self._one(found, hunk, key, floor)
            moved = reindent(fresh, quoted, self.lines[at : at + len(quoted)], self.effort)
            if moved is not None:
                return _Place(at, how, moved)
        shown = "\n".join(quoted[:5])
        raise MatchError(
            f"{self.path}: the context of the hunk at line {hunk.number} of the patch text was not found. Nothing was "
            f"changed. Read the file again. Expected lines:\n{shown}"
        )

    def _may_take(self, at: int, size: int, hunk: Hunk) -> bool:
        """Return whether the lines are free, and are the last lines of the file if the hunk must be at its end."""
        after = at + size
        if hunk.at_end and after != len(self.lines):
            return False
        below = bisect_left(self.taken, (after, 0))
        return below == 0 or self.taken[below - 1][1] <= at

    def _one(self, found: list[int], hunk: Hunk, key: Key, floor: int) -> int:
        if len(found) == 1 or hunk.anchors:
            return found[0]
        if hunk.line is not None:
            at, quoted = hunk.line - 1, hunk.quoted
            if at >= floor and self.lines.block_is_at(at, quoted, key) and self._may_take(at, len(quoted), hunk):
                return at
        raise _ambiguous(found, hunk, self.path)

    def _below_anchors(self, hunk: Hunk) -> int:
        """Return the first line at which the hunk can begin: the one after its anchors, which are searched in order."""
        floor = 0
        top = hunk.quoted[:1]
        for number, anchor in enumerate(hunk.anchors, 1):
            at = self._anchor(anchor, hunk, floor)
            # The last anchor can also be the first line of the hunk.
            begins = number == len(hunk.anchors) and bool(top) and self.lines.block_is_at(at, top, collapse)
            floor = at if begins else at + 1
        return floor

    def _anchor(self, anchor: str, hunk: Hunk, floor: int) -> int:
        whole = partial(self.lines.find, [anchor], collapse)
        for find in (whole, partial(self.lines.find_beginnings, anchor, collapse)):
            # First below the previous hunk: hunks that are in order are placed in one pass through the file.
            later = next(find(first=max(floor, self.after)), None)
            if later is not None:
                return later
            places = list(islice(find(first=floor), PLACES_SHOWN + 1))
            if len(places) > 1:
                raise _ambiguous(places, hunk, self.path)
            if places:
                return places[0]
        raise MatchError(f"{self.path}: the line '@@ {anchor}' was not found. Nothing was changed.")


def _ambiguous(places: list[int], hunk: Hunk, path: str) -> MatchError:
    numbers = ", ".join(str(at + 1) for at in places[:PLACES_SHOWN])
    return MatchError(
        f"{path}: the hunk at line {hunk.number} of the patch text fits in {tell_count(places)} places (lines "
        f"{numbers}). Nothing was changed. Add context lines, or a '@@' line with a line above the place."
    )


def _insertion(lines: Lines, hunk: Hunk, path: str, floor: int) -> int:
    if hunk.at_end or not len(lines):
        return len(lines)
    if hunk.anchors:
        return floor
    raise MatchError(
        f"{path}: the hunk at line {hunk.number} of the patch text only adds lines, without saying where. Nothing was "
        "changed. Add context lines, a '@@' line, or '*** End of File' to append."
    )


def _edits(hunk: Hunk, place: _Place, lines: Lines) -> Iterator[Edit]:
    """Yield one edit per run of changed lines, so that context lines keep the file's own text."""
    fresh = iter(place.added)
    line = first = place.at
    added: list[str] = []
    for mark, _ in [*hunk.body, (" ", "")]:
        if mark == "-":
            line += 1
        elif mark == "+":
            added.append(next(fresh) + "\n")
        else:
            if line > first or added:
                yield Edit(lines.start(first), lines.start(line), "".join(added))
            line, added = line + 1, []
            first = line
