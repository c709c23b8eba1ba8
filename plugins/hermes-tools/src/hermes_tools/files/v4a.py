"""Patch texts in the V4A form: files added, deleted, updated and moved, with hunks found by their context.

*** Begin Patch
*** Update File: path
*** Move to: other path
@@ a line above the hunk
 context
-removed
+added
*** Add File: path
+content
*** Delete File: path
*** End Patch
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from hermes_tools.files.fuzzy import Edit, MatchError, collapsed, plain_collapsed, reindented, windows

_HEADERS: Final = {"*** Add File:": "add", "*** Delete File:": "delete", "*** Update File:": "update"}
_RANGE: Final = re.compile(r"-(\d+)(?:,\d+)? \+\d+(?:,\d+)? ?@@ ?(.*)")
_KEYS: Final[dict[str, Callable[[str], str]]] = {
    "exact": str,
    "trailing_whitespace": str.rstrip,
    "indentation_flexible": str.strip,
    "whitespace_normalized": collapsed,
    "unicode_and_whitespace": plain_collapsed,
}


class PatchFormatError(ValueError):
    """The patch text is not in the form; the message is for the model and names the line."""


@dataclass(slots=True)
class Hunk:
    """One change: `anchors` are lines above it, `line` is where a unified-diff header says it starts."""

    number: int
    anchors: list[str] = field(default_factory=list)
    line: int | None = None
    body: list[tuple[str, str]] = field(default_factory=list)
    at_end: bool = False

    @property
    def quoted(self) -> list[str]:
        """The lines that must be in the file: context and removed ones."""
        return [text for mark, text in self.body if mark != "+"]


@dataclass(slots=True)
class FileChange:
    """What a patch does to one file."""

    kind: Literal["add", "delete", "update"]
    path: str
    move_to: str | None = None
    added: list[str] = field(default_factory=list)
    hunks: list[Hunk] = field(default_factory=list)


def parse_patch(text: str) -> list[FileChange]:
    """Read a patch text; anything that is not understood is an error, because skipping it would change its meaning."""
    lines = text.replace("\r\n", "\n").strip("\n").split("\n")
    if lines[0].strip() != "*** Begin Patch" or lines[-1].strip() != "*** End Patch":
        raise PatchFormatError(
            "The patch text must start with the line '*** Begin Patch' and end with the line '*** End Patch'."
        )
    changes: list[FileChange] = []
    for number, line in enumerate(lines[1:-1], 2):
        if opened := _opened(line):
            changes.append(opened)
        elif changes:
            _continue(changes[-1], number, line)
        elif line.strip():
            raise _unexpected(number, line, "a line such as '*** Update File: path'")
    for change in changes:
        _finish(change)
    if not changes:
        raise PatchFormatError("The patch text changes no file; it needs a line such as '*** Update File: path'.")
    return changes


def _opened(line: str) -> FileChange | None:
    for header, kind in _HEADERS.items():
        if line.startswith(header):
            path = line.removeprefix(header).strip()
            if not path:
                raise PatchFormatError(f"'{header}' needs a path.")
            return FileChange("add" if kind == "add" else "delete" if kind == "delete" else "update", path)
    return None


def _continue(change: FileChange, number: int, line: str) -> None:
    if change.kind == "delete":
        if line.strip():
            raise _unexpected(number, line, "nothing after a '*** Delete File:' line")
    elif change.kind == "add":
        if line.startswith("+"):
            change.added.append(line[1:])
        elif line.strip():
            raise _unexpected(number, line, "lines that start with '+' after '*** Add File:'")
    elif line.startswith("*** Move to:") and not change.hunks:
        change.move_to = line.removeprefix("*** Move to:").strip()
    elif line.startswith("@@"):
        _open_hunk(change, number, line)
    else:
        _extend_hunk(change, number, line)


def _open_hunk(change: FileChange, number: int, line: str) -> None:
    if not (change.hunks and not change.hunks[-1].body):
        change.hunks.append(Hunk(number))
    hunk = change.hunks[-1]
    anchor = line[2:].strip()
    if unified := _RANGE.fullmatch(anchor):
        hunk.line, anchor = int(unified[1]), unified[2]
    anchor = anchor.removesuffix("@@").strip()
    if anchor:
        hunk.anchors.append(anchor)


def _extend_hunk(change: FileChange, number: int, line: str) -> None:
    if not change.hunks:
        if not line.strip():
            return
        change.hunks.append(Hunk(number))
    hunk = change.hunks[-1]
    if line.strip() == "*** End of File":
        hunk.at_end = True
    elif line == "":
        # Models leave out the space of an empty context line.
        hunk.body.append((" ", ""))
    elif line[0] in " +-":
        hunk.body.append((line[0], line[1:]))
    else:
        raise _unexpected(number, line, "a line that starts with ' ', '+', '-', '@@' or '***'")


def _finish(change: FileChange) -> None:
    for hunk in change.hunks:
        # Blank lines before the next header are layout, not context.
        while hunk.body and hunk.body[-1] == (" ", ""):
            hunk.body.pop()
        if not any(mark in "+-" for mark, _ in hunk.body):
            raise PatchFormatError(f"The hunk at line {hunk.number} of the patch text changes nothing.")
    if change.kind == "update" and not change.hunks and not change.move_to:
        raise PatchFormatError(f"'*** Update File: {change.path}' is not followed by a change.")


def _unexpected(number: int, line: str, wanted: str) -> PatchFormatError:
    return PatchFormatError(f"Line {number} of the patch text is {line[:100]!r}; expected {wanted}.")


def place_hunks(text: str, hunks: Sequence[Hunk], path: str) -> tuple[list[Edit], set[str]]:
    """Find every hunk in `text`, whose last line is ended; return the edits in order and how they were matched."""
    lines = text.removesuffix("\n").split("\n") if text else []
    edits: list[Edit] = []
    used: set[str] = set()
    taken: list[tuple[int, int]] = []
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    after = 0
    for hunk in hunks:
        place = _locate(lines, hunk, path, after, taken)
        used.add(place.how)
        taken.append((place.at, place.at + len(hunk.quoted)))
        after = place.at + len(hunk.quoted)
        edits += _edits(hunk, place, starts)
    return sorted(edits, key=lambda edit: (edit.start, edit.end)), used


@dataclass(frozen=True, slots=True)
class _Place:
    at: int
    how: str
    added: Sequence[str]


def _locate(lines: list[str], hunk: Hunk, path: str, after: int, taken: list[tuple[int, int]]) -> _Place:
    floor = _below_anchors(lines, hunk, path, after)
    quoted, fresh = hunk.quoted, [text for mark, text in hunk.body if mark == "+"]
    if not quoted:
        return _Place(_insertion(lines, hunk, path, floor), "exact", fresh)
    for how, key in _KEYS.items():
        found = [at for at in windows(lines, quoted, key) if at >= floor and _is_free(at, len(quoted), taken)]
        if hunk.at_end:
            found = [at for at in found if at + len(quoted) == len(lines)]
        if found:
            at = _one(found, hunk, path)
            moved = reindented(fresh, quoted, lines[at : at + len(quoted)])
            if moved is None:
                continue
            return _Place(at, how, moved)
    shown = "\n".join(quoted[:5])
    raise MatchError(
        f"{path}: the context of the hunk at line {hunk.number} of the patch text was not found. Nothing was changed. "
        f"Read the file again; this was looked for:\n{shown}"
    )


def _is_free(at: int, size: int, taken: Iterable[tuple[int, int]]) -> bool:
    return all(at + size <= first or at >= last for first, last in taken)


def _below_anchors(lines: list[str], hunk: Hunk, path: str, after: int) -> int:
    """Return the first line a hunk may begin at: the one after its anchors, which are looked for in order."""
    floor = 0
    for number, anchor in enumerate(hunk.anchors):
        wanted = collapsed(anchor)
        places = [at for at in range(floor, len(lines)) if collapsed(lines[at]) == wanted]
        places = places or [at for at in range(floor, len(lines)) if collapsed(lines[at]).startswith(wanted)]
        if not places:
            raise MatchError(f"{path}: the line '@@ {anchor}' was not found. Nothing was changed.")
        later = [at for at in places if at >= after]
        # The anchor may itself be the first line of the hunk.
        last = number == len(hunk.anchors) - 1
        at = (later or places)[0]
        if len(places) > 1 and not later:
            raise _ambiguous(places, hunk, path)
        begins = last and bool(hunk.quoted) and collapsed(hunk.quoted[0]) == collapsed(lines[at])
        floor = at if begins else at + 1
    return floor


def _one(found: list[int], hunk: Hunk, path: str) -> int:
    if len(found) == 1 or hunk.anchors:
        return found[0]
    if hunk.line is not None and hunk.line - 1 in found:
        return hunk.line - 1
    raise _ambiguous(found, hunk, path)


def _ambiguous(places: list[int], hunk: Hunk, path: str) -> MatchError:
    numbers = ", ".join(str(at + 1) for at in places[:10])
    return MatchError(
        f"{path}: the hunk at line {hunk.number} of the patch text fits in {len(places)} places (lines {numbers}). "
        "Nothing was changed. Add context lines, or a '@@' line with a line above the place."
    )


def _insertion(lines: list[str], hunk: Hunk, path: str, floor: int) -> int:
    if hunk.at_end or not lines:
        return len(lines)
    if hunk.anchors:
        return floor
    raise MatchError(
        f"{path}: the hunk at line {hunk.number} of the patch text only adds lines and does not say where. Nothing was "
        "changed. Add context lines, a '@@' line, or '*** End of File' to append."
    )


def _edits(hunk: Hunk, place: _Place, starts: Sequence[int]) -> Iterator[Edit]:
    """Yield an edit per run of changed lines, so that context keeps the file's own text."""
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
                yield Edit(starts[first], starts[line], "".join(added))
            line, added = line + 1, []
            first = line
