"""Finds the text that a model meant when it did not quote a file exactly.

Strategies are tried from exact to loose. The first one that finds anything decides: a single match is used and
reported, several matches are an error, and no looser strategy is tried, because it could only guess worse.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import Final

from hermes_tools.files.indentation import reindent
from hermes_tools.files.matching import (
    LINE_EFFORT,
    PLACES_SHOWN,
    SIZE_LIMIT,
    TYPOGRAPHY,
    Edit,
    Effort,
    Key,
    Lines,
    MatchError,
    collapse,
    collapse_plain,
    common_ends,
    tell_count,
)

# The share of characters in a longest common subsequence. Unrelated code of the same shape reaches 0.78, a block with
# one character in ten misquoted 0.90.
_ANCHOR_SIMILARITY: Final = 0.85
_ANCHOR_MAX_LINES: Final = 400
# A comparison cannot be interrupted. With two texts of this length it takes 0.1 s.
_ANCHOR_MAX_CHARACTERS: Final = 50_000
# Pairs of characters that a comparison processes in the time that a search needs for one character.
_PAIRS: Final = 32
_HINT_MAX_LINES: Final = 5000
_HINT_MAX_CHARACTERS: Final = 200
_HINT_SIMILARITY: Final = 60
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "'": "'", "`": "`", "\\": "\\"}
_INDENT: Final = re.compile(r"[^\S\n]*")


class _Search:
    """A text to search, and the effort that is left for it."""

    def __init__(self, text: str, effort: Effort) -> None:
        self.text = text
        self.effort = effort

    @cached_property
    def lines(self) -> Lines:
        return Lines(self.text, self.effort)


def find_edits(
    text: str, old: str, new: str, *, replace_all: bool = False, effort: Effort | None = None
) -> tuple[str, list[Edit]]:
    """Return the strategy that found `old` in `text`, and the edits that replace it by `new`.

    Raises MatchError, also if the search would take more than `effort`.
    """
    search = _Search(text, effort or Effort())
    for name, strategy in STRATEGIES.items():
        edits = strategy(search, old, new)
        if replace_all and name != "block_anchor":
            found = list(_apart(edits, search))
        else:
            found = _only(list(islice(edits, PLACES_SHOWN + 1)), name, text)
        if found:
            return name, found
    raise MatchError(f"old_string was not found. Nothing was changed.{_closest(text, old)}")


def _only(found: list[Edit], name: str, text: str) -> list[Edit]:
    if len(found) > 1:
        lines = ", ".join(str(text.count("\n", 0, edit.start) + 1) for edit in found[:PLACES_SHOWN])
        raise MatchError(
            f"old_string occurs {tell_count(found)} times (match: {name}; lines {lines}). Nothing was changed. Give "
            "more surrounding lines, or set replace_all to change every occurrence."
        )
    return found


def _apart(edits: Iterable[Edit], search: _Search) -> Iterator[Edit]:
    """Yield the edits that do not overlap the one before. Raise MatchError if the result would exceed SIZE_LIMIT."""
    end, size = 0, len(search.text)
    for edit in edits:
        search.effort.spend(LINE_EFFORT)
        if edit.start < end:
            continue
        end, size = edit.end, size + len(edit.text) - (edit.end - edit.start)
        if size > SIZE_LIMIT:
            raise MatchError(
                f"With every occurrence replaced, the file would have more than {SIZE_LIMIT} characters, the limit of "
                "patch. Nothing was changed. Use the terminal."
            )
        yield edit


def _closest(text: str, old: str) -> str:
    from rapidfuzz import fuzz, process

    wanted = next((line.strip() for line in old.split("\n") if line.strip()), "")[:_HINT_MAX_CHARACTERS]
    if text.count("\n") >= _HINT_MAX_LINES or not wanted:
        return " Read the file again and quote it exactly."
    lines = [line.strip()[:_HINT_MAX_CHARACTERS] for line in text.split("\n")]
    near = process.extractOne(wanted, lines, scorer=fuzz.ratio, score_cutoff=_HINT_SIMILARITY)
    if near is None:
        return " No line of the file is similar to its first line; read the file again."
    line, _, index = near
    return f" The line most similar to its first line is line {index + 1}: {line!r}. Read the file there and quote it."


def _exact(search: _Search, old: str, new: str) -> Iterator[Edit]:
    yield from _occurrences(search, search.text, old, new)


def _occurrences(search: _Search, text: str, old: str, new: str) -> Iterator[Edit]:
    if not _misquotes_indentation(search, text, old, new):
        yield from (Edit(at, at + len(old), new) for at in _starts(search, text, old))


def _starts(search: _Search, text: str, old: str) -> Iterator[int]:
    at = -1
    while True:
        begin = at + 1
        at = text.find(old, begin)
        search.effort.spend((len(text) if at < 0 else at) - begin + len(old))
        if at < 0:
            return
        yield at


def _misquotes_indentation(search: _Search, text: str, old: str, new: str) -> bool:
    """Return whether `old` was quoted with too little indentation, so that other new lines would be wrong."""
    if "\n" not in old + new or not old[0].isspace():
        return False
    for at in _starts(search, text, old):
        begin = text.rfind("\n", 0, at) + 1
        search.effort.spend(LINE_EFFORT + at - begin)
        if begin < at <= _indent_end(text, begin):
            return True
    return False


def _indent_end(text: str, begin: int) -> int:
    indent = _INDENT.match(text, begin)
    return indent.end() if indent else begin


def _typography(search: _Search, old: str, new: str) -> Iterator[Edit]:
    # The common start and end of old and new keep the file's own characters.
    head, tail = common_ends(old, new)
    text = search.text.translate(TYPOGRAPHY)
    for edit in _occurrences(search, text, old.translate(TYPOGRAPHY), new):
        yield Edit(edit.start + head, edit.end - tail, new[head : len(new) - tail])


def _escapes(search: _Search, old: str, new: str) -> Iterator[Edit]:
    plain = _unescape(old)
    if plain != old and plain:
        yield from _occurrences(search, search.text, plain, _unescape(new))


def _unescape(text: str) -> str:
    return re.sub(r"\\([ntr\"'`\\])", lambda match: _ESCAPES[match[1]], text)


_Strategy = Callable[[_Search, str, str], Iterator[Edit]]


def _by_lines(key: Key, *, move: bool, trim: bool = False) -> _Strategy:
    def strategy(search: _Search, old: str, new: str) -> Iterator[Edit]:
        quoted, fresh, whole = _blocks(old, new, trim=trim)
        for at in search.lines.find(quoted, key):
            search.effort.spend(LINE_EFFORT * len(fresh) + len(new))
            found = search.lines[at : at + len(quoted)]
            placed = reindent(fresh, quoted, found, search.effort) if move else fresh
            if placed is not None:
                yield _line_edit(search, at, at + len(quoted), placed, whole=whole)

    return strategy


def _blocks(old: str, new: str, *, trim: bool) -> tuple[list[str], list[str], bool]:
    """Split both texts into lines. `whole` is true if the newline of the last line belongs to the match."""
    if trim:
        old, new = _trim_blank_lines(old), _trim_blank_lines(new)
    whole = old.endswith("\n")
    quoted = old.removesuffix("\n").split("\n")
    fresh = new.removesuffix("\n") if whole else new
    return quoted, [] if whole and not new else fresh.split("\n"), whole


def _trim_blank_lines(text: str) -> str:
    lines = text.split("\n")
    filled = [number for number, line in enumerate(lines) if line.strip()]
    return "\n".join(lines[filled[0] : filled[-1] + 1]) if filled else ""


def _line_edit(search: _Search, first: int, after: int, lines: Sequence[str], *, whole: bool) -> Edit:
    begin, end = search.lines.start(first), search.lines.start(after)
    end = min(end, len(search.text)) if whole else end - 1
    return Edit(begin, end, "".join(f"{line}\n" for line in lines) if whole else "\n".join(lines))


def _block_anchor(search: _Search, old: str, new: str) -> Iterator[Edit]:
    quoted, fresh, whole = _blocks(old, new, trim=True)
    if not 3 <= len(quoted) <= _ANCHOR_MAX_LINES:
        return
    for first, after in _like(search, quoted):
        search.effort.spend(LINE_EFFORT * len(fresh) + len(new))
        window = search.lines[first:after]
        # Equal lines show how the indentation differs; the anchors are always equal.
        same = [(a, b) for a, b in zip(quoted, window, strict=False) if a.strip() == b.strip()]
        same.append((quoted[-1], window[-1]))
        placed = reindent(fresh, [a for a, _ in same], [b for _, b in same], search.effort)
        if placed is not None:
            yield _line_edit(search, first, after, placed, whole=whole)


def _like(search: _Search, quoted: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the first line, and the line after the last, of each block that is similar and has the same two anchors."""
    from rapidfuzz.distance import Indel

    middle = "\n".join(line.strip() for line in quoted[1:-1])
    if len(middle) > _ANCHOR_MAX_CHARACTERS:
        return
    view = search.lines.view(str.strip)
    lasts = list(search.lines.find(quoted[-1:], str.strip))
    slack = max(1, len(quoted) // 4)
    shortest, longest = max(2, len(quoted) - slack), len(quoted) + slack
    for first in search.lines.find(quoted[:1], str.strip):
        begin, end = bisect_left(lasts, first + shortest - 1), bisect_right(lasts, first + longest - 1)
        for last in lasts[begin:end]:
            size = view.length(first + 1, last)
            search.effort.spend(LINE_EFFORT)
            if min(size, len(middle)) * 2 < _ANCHOR_SIMILARITY * (size + len(middle)):
                continue
            search.effort.spend(LINE_EFFORT * len(quoted) + size * len(middle) // _PAIRS)
            if Indel.normalized_similarity(view.between(first + 1, last), middle) >= _ANCHOR_SIMILARITY:
                yield first, last + 1


STRATEGIES: Final[dict[str, _Strategy]] = {
    "exact": _exact,
    "trailing_whitespace": _by_lines(str.rstrip, move=False),
    "unicode_normalized": _typography,
    "escape_normalized": _escapes,
    "trimmed_boundary": _by_lines(str.rstrip, move=False, trim=True),
    "indentation_flexible": _by_lines(str.strip, move=True),
    "whitespace_normalized": _by_lines(collapse, move=True),
    "unicode_and_whitespace": _by_lines(collapse_plain, move=True, trim=True),
    "block_anchor": _block_anchor,
}
"""The strategies in the order in which they are tried. The model sees the name of the one that matched."""
