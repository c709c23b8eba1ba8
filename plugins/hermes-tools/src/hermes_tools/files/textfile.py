"""Edits a text file and keeps everything else: line endings, encoding, byte order mark, end of the last line."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from hermes_tools.files.matching import LINE_EFFORT, Edit, Effort, common_ends

DIFF_LIMIT: Final = 20_000
_MARK: Final = "\ufeff"
_CONTEXT: Final = 3
# A comparison of lines takes one bit of memory per pair: at most 50 MB, and 0.1 s.
_MAX_PAIRS: Final = 400_000_000
_PAIRS_PER_EFFORT: Final = 32

_Change = tuple[int, int, int, int]
"""Lines that were replaced: first line and last line + 1 of the old text, then of the new text."""


@dataclass(slots=True)
class TextFile:
    """A decoded file. `text` has plain newlines, also after the last line; `apply` applies edits of it to the bytes."""

    text: str
    raw: str
    crlf: array[int]

    @classmethod
    def decode(cls, data: bytes) -> TextFile:
        """Decode bytes. Bytes that are not UTF-8 are kept unchanged."""
        raw = data.decode("utf-8", "surrogateescape")
        text = raw.removeprefix(_MARK).replace("\r\n", "\n")
        crlf = array("q")
        at = raw.find("\r\n")
        shift = len(raw) - len(raw.removeprefix(_MARK))
        while at >= 0:
            crlf.append(at - shift - len(crlf))
            at = raw.find("\r\n", at + 2)
        return cls(text if not text or text.endswith("\n") else text + "\n", raw, crlf)

    def apply(self, edits: Sequence[Edit]) -> bytes:
        """Return the file's bytes after the edits, which must be in order and must not overlap."""
        body = self.raw.removeprefix(_MARK)
        mark = _MARK if len(body) != len(self.raw) else ""
        ending = "\r\n" if len(self.crlf) * 2 > self.text.count("\n") else "\n"
        # In `text`, the last line always ends with a newline; the file gets it only if it had one.
        lacks_end = bool(body) and not body.endswith("\n")
        body += ending if lacks_end else ""
        parts: list[str] = []
        position = 0
        for edit in edits:
            parts += [body[position : self._place(edit.start)], edit.text.replace("\r\n", "\n").replace("\n", ending)]
            position = self._place(edit.end)
        parts.append(body[position:])
        result = "".join(parts).removesuffix(ending if lacks_end else "")
        return (mark + result).encode("utf-8", "surrogateescape")

    def _place(self, offset: int) -> int:
        return offset + bisect_left(self.crlf, offset)


def unified_diff(before: str, after: str, path_before: str, path_after: str, *, effort: Effort | None = None) -> str:
    """Return a unified diff of two texts, which is cut with a notice if it is longer than DIFF_LIMIT.

    Lines whose comparison would take more than `effort` count as changed.
    """
    old, new = _lines(before), _lines(after)
    parts = [f"--- {path_before}\n", f"+++ {path_after}\n"]
    for group in _groups(_changes(old, new, effort or Effort())):
        parts += _hunk(group, old, new)
    diff = "".join(part if part.endswith("\n") else part + "\n\\ No newline at end of file\n" for part in parts)
    diff = diff.encode("utf-8", "replace").decode()
    if len(diff) <= DIFF_LIMIT:
        return diff
    return f"{diff[:DIFF_LIMIT]}\n[diff cut, {len(diff) - DIFF_LIMIT} more characters]"


def _lines(text: str) -> list[str]:
    *ended, last = text.split("\n")
    return [f"{line}\n" for line in ended] + ([last] if last else [])


def _changes(old: Sequence[str], new: Sequence[str], effort: Effort) -> Iterator[_Change]:
    head, tail = common_ends(old, new)
    # The library compares numbers by value, but all other objects by their hashes.
    numbers: dict[str, int] = {}
    before, after = ([numbers.setdefault(line, len(numbers)) for line in side] for side in (old, new))
    middle = (head, len(old) - tail, head, len(new) - tail)
    ends = (len(old) - tail, len(new) - tail, tail)
    equal = [(0, 0, head), *_equal(before, after, middle, effort), ends]
    for (a, b, size), (next_a, next_b, _) in pairwise(equal):
        if a + size < next_a or b + size < next_b:
            yield a + size, next_a, b + size, next_b


def _equal(old: Sequence[int], new: Sequence[int], part: _Change, effort: Effort) -> Iterator[tuple[int, int, int]]:
    """Yield the blocks of equal lines in a part, in order: where each begins on both sides, and its length.

    A part that is too large is split at lines that occur once on both sides. Pieces that are still too large yield no
    blocks.
    """
    from rapidfuzz.distance import LCSseq

    pieces = [part]
    if not _is_affordable(part, effort):
        bounds = [(part[0], part[2]), *_cuts(old, new, part), (part[1], part[3])]
        cut = [(a1, a2, b1, b2) for (a1, b1), (a2, b2) in pairwise(bounds)]
        pieces = [piece for piece in cut if _is_affordable(piece, effort)]
    for a1, a2, b1, b2 in pieces:
        for block in LCSseq.opcodes(old[a1:a2], new[b1:b2]).as_matching_blocks():
            yield a1 + block.a, b1 + block.b, block.size


def _is_affordable(part: _Change, effort: Effort) -> bool:
    pairs = (part[1] - part[0]) * (part[3] - part[2])
    return pairs <= _MAX_PAIRS and effort.affords(LINE_EFFORT + pairs // _PAIRS_PER_EFFORT)


def _cuts(old: Sequence[int], new: Sequence[int], part: _Change) -> list[tuple[int, int]]:
    """Return the longest ordered sequence of pairs of equal lines that occur once on both sides (patience sorting)."""
    counts = Counter(old[part[0] : part[1]]), Counter(new[part[2] : part[3]])
    where = {new[at]: at for at in range(part[2], part[3]) if counts[0][new[at]] == counts[1][new[at]] == 1}
    ends: list[int] = []
    lasts: list[int] = []
    pairs: list[tuple[int, int, int]] = []
    for at in range(part[0], part[1]):
        if (other := where.get(old[at], -1)) >= 0:
            rank = bisect_left(ends, other)
            ends[rank : rank + 1], lasts[rank : rank + 1] = [other], [len(pairs)]
            pairs.append((at, other, lasts[rank - 1] if rank else -1))
    found: list[tuple[int, int]] = []
    last = lasts[-1] if lasts else -1
    while last >= 0:
        at, other, last = pairs[last]
        found.append((at, other))
    return found[::-1]


def _groups(changes: Iterable[_Change]) -> Iterator[list[_Change]]:
    """Group changes that have few lines between them."""
    group: list[_Change] = []
    for change in changes:
        if group and change[0] - group[-1][1] > 2 * _CONTEXT:
            yield group
            group = []
        group.append(change)
    if group:
        yield group


def _hunk(group: Sequence[_Change], old: Sequence[str], new: Sequence[str]) -> list[str]:
    (old_first, _, new_first, _), (_, old_after, _, new_after) = group[0], group[-1]
    above, below = min(_CONTEXT, old_first), min(_CONTEXT, len(old) - old_after)
    at = old_first - above
    old_range = _range(at, old_after + below - at)
    new_range = _range(new_first - above, new_after + below - new_first + above)
    lines = [f"@@ -{old_range} +{new_range} @@\n"]
    for a1, a2, b1, b2 in group:
        lines += [" " + line for line in old[at:a1]]
        lines += ["-" + line for line in old[a1:a2]]
        lines += ["+" + line for line in new[b1:b2]]
        at = a2
    return lines + [" " + line for line in old[at : at + below]]


def _range(start: int, length: int) -> str:
    return f"{start + 1 if length else start},{length}"
