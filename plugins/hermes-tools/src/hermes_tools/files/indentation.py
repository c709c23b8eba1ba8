"""Reindents new lines: they move as the quoted lines moved to the lines that were found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hermes_tools.files.matching import LINE_EFFORT, Effort


def reindent(new: Sequence[str], old: Sequence[str], found: Sequence[str], effort: Effort) -> list[str] | None:
    """Reindent `new` as the lines of `old` are reindented in `found`. Return None if that is ambiguous."""
    moves: dict[str, str] = {}
    for quoted, actual in zip(old, found, strict=True):
        if quoted.strip() and moves.setdefault(_indent(quoted), _indent(actual)) != _indent(actual):
            return None
    placed: dict[str, str | None] = {}
    lines = []
    for line in new:
        indent = _indent(line)
        if not line.strip():
            lines.append(line)
            continue
        if indent not in placed:
            effort.spend(LINE_EFFORT * len(moves))
            placed[indent] = _move(indent, moves)
        begin = placed[indent]
        if begin is None:
            return None
        lines.append(begin + line[len(indent) :])
    return lines


def _move(indent: str, moves: Mapping[str, str]) -> str | None:
    if indent in moves:
        return moves[indent]
    shifts = {len(actual) - len(quoted) for quoted, actual in moves.items()}
    if len(shifts) > 1 or any(quoted and actual.strip(quoted) for quoted, actual in moves.items()):
        # Tabs instead of spaces, or another indentation width: count the steps.
        for quoted, actual in moves.items():
            if quoted and indent == quoted * (len(indent) // len(quoted)):
                return actual * (len(indent) // len(quoted))
        return None
    shift = next(iter(shifts), 0)
    if shift < 0:
        return indent[-shift:] if len(indent) >= -shift else None
    quoted, actual = next(iter(moves.items()), ("", ""))
    added = actual[: len(actual) - len(quoted)]
    return None if added and indent and set(added) != set(indent) else added + indent


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]
