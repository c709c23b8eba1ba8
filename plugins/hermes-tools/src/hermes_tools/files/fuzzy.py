"""Finding the text a model meant when it quotes a file not quite exactly.

Strategies go from exact to loose. The first one that finds anything decides: one place is used and reported, several
are refused, and nothing looser is tried then, because a looser match can only be a worse guess.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher, get_close_matches
from typing import Final

_ANCHOR_SIMILARITY: Final = 0.8
_ANCHOR_MAX_LINES: Final = 400
# Pairs of characters that one search may compare: some seconds.
_ANCHOR_MAX_WORK: Final = 1_000_000_000
_HINT_MAX_LINES: Final = 5000
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "'": "'", "`": "`", "\\": "\\"}

# One character to one character, so that offsets stay valid.
_TYPOGRAPHY: Final = str.maketrans(
    "\u201c\u201d\u201e\u201f\u2018\u2019\u201a\u201b\u2010\u2011\u2012\u2013\u2014\u2212\u00a0\u2002\u2003\u2009\u202f",
    "\"\"\"\"''''------     ",
)

_TOO_MUCH: Final = (
    "old_string was not found, and too much of the file begins and ends like it to compare all of it. "
    "Nothing was changed. Read the file again and quote fewer lines exactly."
)


class MatchError(ValueError):
    """The text cannot be found, or not without doubt; the message is for the model."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace the characters `start` … `end` by `text`."""

    start: int
    end: int
    text: str


def find_edits(text: str, old: str, new: str, *, replace_all: bool = False) -> tuple[str, list[Edit]]:
    """Return the strategy that found `old` in `text`, and the edits that put `new` in its place."""
    for name, strategy in STRATEGIES.items():
        found = list(strategy(text, old, new))
        if len(found) > 1 and not (replace_all and name != "block_anchor"):
            lines = ", ".join(str(text.count("\n", 0, edit.start) + 1) for edit in found[:10])
            raise MatchError(
                f"old_string occurs {len(found)} times (match: {name}; lines {lines}). Nothing was changed. Give more "
                "surrounding lines, or set replace_all to change every occurrence."
            )
        if found:
            return name, _apart(found)
    raise MatchError(f"old_string was not found. Nothing was changed.{_closest(text, old)}")


def _apart(edits: list[Edit]) -> list[Edit]:
    kept: list[Edit] = []
    for edit in edits:
        if not kept or edit.start >= kept[-1].end:
            kept.append(edit)
    return kept


def _closest(text: str, old: str) -> str:
    lines = text.split("\n")
    wanted = next((line.strip() for line in old.split("\n") if line.strip()), "")
    if len(lines) > _HINT_MAX_LINES or not wanted:
        return " Read the file again and quote it exactly."
    near = get_close_matches(wanted, [line.strip() for line in lines], n=1, cutoff=0.6)
    if not near:
        return " No line of the file is like its first line; read the file again."
    number = next(number for number, line in enumerate(lines, 1) if line.strip() == near[0])
    return f" The line most like its first one is line {number}: {near[0][:200]!r}. Read the file there and quote it."


def _exact(text: str, old: str, new: str) -> Iterator[Edit]:
    starts = [text.find(old)]
    while starts[-1] >= 0:
        starts.append(text.find(old, starts[-1] + 1))
    found = starts[:-1]
    if not _misquotes_indentation(text, old, new, found):
        yield from (Edit(at, at + len(old), new) for at in found)


def _misquotes_indentation(text: str, old: str, new: str, starts: Sequence[int]) -> bool:
    """Tell whether lines were quoted with too little indentation: then further new lines would come out wrong."""
    if "\n" not in old + new or not old[0].isspace():
        return False
    return any(text[text.rfind("\n", 0, at) + 1 : at].isspace() for at in starts)


def _typography(text: str, old: str, new: str) -> Iterator[Edit]:
    # What old and new have in common keeps the file's own characters.
    head = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    limit = min(len(old), len(new)) - head
    tail = next((i for i in range(limit) if old[-1 - i] != new[-1 - i]), limit)
    for edit in _exact(text.translate(_TYPOGRAPHY), old.translate(_TYPOGRAPHY), new):
        yield Edit(edit.start + head, edit.end - tail, new[head : len(new) - tail])


def _escapes(text: str, old: str, new: str) -> Iterator[Edit]:
    plain = _unescaped(old)
    if plain != old and plain:
        yield from _exact(text, plain, _unescaped(new))


def _unescaped(text: str) -> str:
    return re.sub(r"\\([ntr\"'`\\])", lambda match: _ESCAPES[match[1]], text)


Key = Callable[[str], str]


def collapsed(line: str) -> str:
    """Reduce every run of white space to one space."""
    return " ".join(line.split())


def plain_collapsed(line: str) -> str:
    """Reduce white space and typographic quotes, dashes and spaces."""
    return collapsed(line.translate(_TYPOGRAPHY))


def windows(lines: Sequence[str], block: Sequence[str], key: Key) -> Iterator[int]:
    """Yield where `block` lies in `lines` when both are seen through `key`; a block of blank lines lies nowhere."""
    wanted = [key(line) for line in block]
    if not any(wanted):
        return
    keys = [key(line) for line in lines]
    for at in range(len(keys) - len(wanted) + 1):
        if keys[at] == wanted[0] and keys[at : at + len(wanted)] == wanted:
            yield at


def reindented(new: Sequence[str], old: Sequence[str], found: Sequence[str]) -> list[str] | None:
    """Move new lines to the file's indentation, as `old` lines moved to `found`; None when that is not clear."""
    moves: dict[str, str] = {}
    for quoted, actual in zip(old, found, strict=True):
        if quoted.strip() and moves.setdefault(_indent(quoted), _indent(actual)) != _indent(actual):
            return None
    moved = [_moved(line, moves) for line in new]
    return None if None in moved else [line for line in moved if line is not None]


def _moved(line: str, moves: dict[str, str]) -> str | None:
    if not line.strip():
        return line
    indent = _indent(line)
    if indent in moves:
        return moves[indent] + line[len(indent) :]
    shifts = {len(actual) - len(quoted) for quoted, actual in moves.items()}
    if len(shifts) > 1 or any(set(actual) - set(quoted) and quoted for quoted, actual in moves.items()):
        # Tabs against spaces, or steps of another width: count steps.
        for quoted, actual in moves.items():
            if quoted and indent == quoted * (len(indent) // len(quoted)):
                return actual * (len(indent) // len(quoted)) + line[len(indent) :]
        return None
    shift = next(iter(shifts), 0)
    if shift < 0:
        return line[-shift:] if len(indent) >= -shift else None
    quoted, actual = next(iter(moves.items()), ("", ""))
    added = actual[: len(actual) - len(quoted)]
    return None if added and indent and set(added) != set(indent) else added + line


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _by_lines(key: Key, *, reindent: bool, trim: bool = False) -> Callable[[str, str, str], Iterator[Edit]]:
    def strategy(text: str, old: str, new: str) -> Iterator[Edit]:
        quoted, fresh, whole = _blocks(old, new, trim=trim)
        lines = text.split("\n")
        starts = _starts(lines)
        for at in windows(lines, quoted, key):
            found = lines[at : at + len(quoted)]
            placed = reindented(fresh, quoted, found) if reindent else fresh
            if placed is not None:
                yield _line_edit(text, starts, at, at + len(quoted), placed, whole=whole)

    return strategy


def _blocks(old: str, new: str, *, trim: bool) -> tuple[list[str], list[str], bool]:
    """Split both texts into lines; `whole` tells that the last line's newline belongs to the match."""
    if trim:
        old, new = _trimmed(old), _trimmed(new)
    whole = old.endswith("\n")
    quoted = old.removesuffix("\n").split("\n")
    fresh = new.removesuffix("\n") if whole else new
    return quoted, [] if whole and not new else fresh.split("\n"), whole


def _trimmed(text: str) -> str:
    lines = text.split("\n")
    filled = [number for number, line in enumerate(lines) if line.strip()]
    return "\n".join(lines[filled[0] : filled[-1] + 1]) if filled else ""


def _starts(lines: Sequence[str]) -> list[int]:
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    return starts


def _line_edit(text: str, starts: Sequence[int], first: int, after: int, lines: Sequence[str], *, whole: bool) -> Edit:
    end = min(starts[after], len(text)) if whole else starts[after] - 1
    return Edit(starts[first], end, "".join(f"{line}\n" for line in lines) if whole else "\n".join(lines))


def _block_anchor(text: str, old: str, new: str) -> Iterator[Edit]:
    quoted, fresh, whole = _blocks(old, new, trim=True)
    size = len(quoted)
    if not 3 <= size <= _ANCHOR_MAX_LINES:
        return
    lines = text.split("\n")
    keys = [line.strip() for line in lines]
    wanted = [line.strip() for line in quoted]
    slack = max(1, size // 4)
    work = _ANCHOR_MAX_WORK
    middle = "\n".join(wanted[1:-1])
    matcher = SequenceMatcher(None, b=middle, autojunk=False)
    for first in (at for at, key in enumerate(keys) if key == wanted[0]):
        for after in range(first + max(2, size - slack), min(first + size + slack, len(keys)) + 1):
            if keys[after - 1] != wanted[-1]:
                continue
            between = "\n".join(keys[first + 1 : after - 1])
            matcher.set_seq1(between)
            if matcher.real_quick_ratio() < _ANCHOR_SIMILARITY or matcher.quick_ratio() < _ANCHOR_SIMILARITY:
                continue
            work -= len(between) * len(middle)
            if work < 0:
                raise MatchError(_TOO_MUCH)
            if matcher.ratio() < _ANCHOR_SIMILARITY:
                continue
            window = lines[first:after]
            # Lines that are the same tell how the indentation moved; the anchors always are.
            same = [(a, b) for a, b in zip(quoted, window, strict=False) if a.strip() == b.strip()]
            same.append((quoted[-1], window[-1]))
            placed = reindented(fresh, [a for a, _ in same], [b for _, b in same])
            if placed is not None:
                yield _line_edit(text, _starts(lines), first, after, placed, whole=whole)


STRATEGIES: Final[dict[str, Callable[[str, str, str], Iterator[Edit]]]] = {
    "exact": _exact,
    "trailing_whitespace": _by_lines(str.rstrip, reindent=False),
    "unicode_normalized": _typography,
    "escape_normalized": _escapes,
    "trimmed_boundary": _by_lines(str.rstrip, reindent=False, trim=True),
    "indentation_flexible": _by_lines(str.strip, reindent=True),
    "whitespace_normalized": _by_lines(collapsed, reindent=True),
    "unicode_and_whitespace": _by_lines(plain_collapsed, reindent=True, trim=True),
    "block_anchor": _block_anchor,
}
"""Tried in this order; the name is reported to the model."""
