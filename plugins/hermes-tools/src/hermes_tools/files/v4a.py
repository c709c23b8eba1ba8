"""Parses patch texts in the V4A format: files are added, deleted, updated and moved, and hunks are found by context.

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
from dataclasses import dataclass, field
from typing import Final, Literal

_HEADERS: Final = {"*** Add File:": "add", "*** Delete File:": "delete", "*** Update File:": "update"}
_RANGE: Final = re.compile(r"-(\d+)(?:,\d+)? \+\d+(?:,\d+)? ?@@ ?(.*)")


class PatchFormatError(ValueError):
    """The patch text is not in the V4A format. The message is for the model and names the line."""


@dataclass(slots=True)
class Hunk:
    """One change. `anchors` are lines above it, and `line` is its first line according to a unified diff header."""

    number: int
    anchors: list[str] = field(default_factory=list)
    line: int | None = None
    body: list[tuple[str, str]] = field(default_factory=list)
    at_end: bool = False

    @property
    def quoted(self) -> list[str]:
        """The lines that must be in the file: context lines and removed lines."""
        return [text for mark, text in self.body if mark != "+"]


@dataclass(slots=True)
class FileChange:
    """The change of one file."""

    kind: Literal["add", "delete", "update"]
    path: str
    move_to: str | None = None
    added: list[str] = field(default_factory=list)
    # Models omit the mark of an empty line. Before the first line and before the next header, empty lines are layout.
    gap: list[str] = field(default_factory=list)
    hunks: list[Hunk] = field(default_factory=list)


def parse_patch(text: str) -> list[FileChange]:
    """Parse a patch text. An unknown line is an error, because to skip it would change the meaning of the patch."""
    lines = text.replace("\r\n", "\n").strip("\n").split("\n")
    if lines[0].strip() != "*** Begin Patch" or lines[-1].strip() != "*** End Patch":
        raise PatchFormatError(
            "The patch text must start with the line '*** Begin Patch' and end with the line '*** End Patch'."
        )
    changes: list[FileChange] = []
    for number, line in enumerate(lines[1:-1], 2):
        if opened := _parse_header(line):
            changes.append(opened)
        elif changes:
            _continue(changes[-1], number, line)
        elif line.strip():
            raise _unexpected_line(number, line, "a line such as '*** Update File: path'")
    for change in changes:
        _finish(change)
    if not changes:
        raise PatchFormatError("The patch text changes no file; it needs a line such as '*** Update File: path'.")
    return changes


def _parse_header(line: str) -> FileChange | None:
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
            raise _unexpected_line(number, line, "nothing after a '*** Delete File:' line")
    elif change.kind == "add":
        _add_line(change, number, line)
    elif line.startswith("*** Move to:") and not change.hunks:
        change.move_to = line.removeprefix("*** Move to:").strip()
    elif line.startswith("@@"):
        _open_hunk(change, number, line)
    else:
        _extend_hunk(change, number, line)


def _add_line(change: FileChange, number: int, line: str) -> None:
    wanted = "lines that start with '+' after '*** Add File:'"
    if not line.strip():
        change.gap.append(line)
    elif line.startswith("+"):
        for at, gap in enumerate(change.gap, number - len(change.gap)):
            if change.added and gap:
                raise _unexpected_line(at, gap, wanted)
        change.added += [*(change.gap if change.added else ()), line[1:]]
        change.gap.clear()
    else:
        raise _unexpected_line(number, line, wanted)


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
        # Models omit the space of an empty context line.
        hunk.body.append((" ", ""))
    elif line[0] in " +-":
        hunk.body.append((line[0], line[1:]))
    else:
        raise _unexpected_line(number, line, "a line that starts with ' ', '+', '-', '@@' or '***'")


def _finish(change: FileChange) -> None:
    for hunk in change.hunks:
        # Blank lines before the next header are layout, not context.
        while hunk.body and hunk.body[-1] == (" ", ""):
            hunk.body.pop()
        if not any(mark in "+-" for mark, _ in hunk.body):
            raise PatchFormatError(f"The hunk at line {hunk.number} of the patch text changes nothing.")
    if change.kind == "update" and not change.hunks and not change.move_to:
        raise PatchFormatError(f"'*** Update File: {change.path}' is not followed by a change.")


def _unexpected_line(number: int, line: str, wanted: str) -> PatchFormatError:
    return PatchFormatError(f"Line {number} of the patch text is {line[:100]!r}; expected {wanted}.")
