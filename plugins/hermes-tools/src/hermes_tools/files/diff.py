"""A unified diff of two texts, in time that grows with what it shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final, Literal

DIFF_LIMIT: Final = 20_000
_CONTEXT: Final = 3
_WINDOW: Final = 400

Opcode = tuple[Literal["replace", "delete", "insert", "equal"], int, int, int, int]


class _Comparison(SequenceMatcher[str]):
    """Two lists of lines, of which no more is compared than a diff can show."""

    def __init__(self, old: Sequence[str], new: Sequence[str]) -> None:
        super().__init__()
        self._old, self._new = old, new

    def get_opcodes(self) -> list[Opcode]:
        codes: list[Opcode] = []
        left = DIFF_LIMIT
        for code in _opcodes(self._old, self._new):
            codes.append(code)
            tag, i1, i2, j1, j2 = code
            if tag != "equal":
                left -= sum(len(line) for line in (*self._old[i1:i2], *self._new[j1:j2]))
            if left < 0:
                break
        return codes


def unified_diff(before: str, after: str, path_before: str, path_after: str) -> str:
    """Return a unified diff of two texts, cut with a notice when it is very long."""
    old, new = _lines(before), _lines(after)
    parts = [f"--- {path_before}\n", f"+++ {path_after}\n"]
    for group in _Comparison(old, new).get_grouped_opcodes(_CONTEXT):
        parts += _hunk(group, old, new)
    diff = "".join(part if part.endswith("\n") else part + "\n\\ No newline at end of file\n" for part in parts)
    diff = diff.encode("utf-8", "replace").decode()
    return diff if len(diff) <= DIFF_LIMIT else f"{diff[:DIFF_LIMIT]}\n[diff cut after {DIFF_LIMIT} characters]"


def _lines(text: str) -> list[str]:
    *ended, last = text.split("\n")
    return [f"{line}\n" for line in ended] + ([last] if last else [])


def _opcodes(old: Sequence[str], new: Sequence[str]) -> Iterator[Opcode]:
    """Yield what makes `new` of `old`, as `SequenceMatcher` does, which compares only a window at a time.

    Comparing two whole files takes as long as their lengths multiplied, or longer where lines repeat.
    """
    i = j = 0
    while i < len(old) or j < len(new):
        size = _common(old, new, i, j)
        if size:
            yield "equal", i, i + size, j, j + size
            i, j = i + size, j + size
            continue
        matcher = SequenceMatcher(None, old[i : i + _WINDOW], new[j : j + _WINDOW])
        is_last = i + _WINDOW >= len(old) and j + _WINDOW >= len(new)
        codes = matcher.get_opcodes()
        # The end of a window is no end of the texts: what was found last there may go on behind it.
        for tag, i1, i2, j1, j2 in codes if is_last or len(codes) == 1 else codes[:-1]:
            yield tag, i + i1, i + i2, j + j1, j + j2
        _, _, i2, _, j2 = codes[-1] if is_last or len(codes) == 1 else codes[-2]
        i, j = i + i2, j + j2


def _common(old: Sequence[str], new: Sequence[str], i: int, j: int) -> int:
    """Return how many lines are the same from there on."""
    size = 0
    limit = min(len(old) - i, len(new) - j)
    while size < limit and old[i + size] == new[j + size]:
        size += 1
    return size


def _hunk(group: Sequence[tuple[str, int, int, int, int]], old: Sequence[str], new: Sequence[str]) -> list[str]:
    (_, a1, _, b1, _), (_, _, a2, _, b2) = group[0], group[-1]
    lines = [f"@@ -{_range(a1, a2 - a1)} +{_range(b1, b2 - b1)} @@\n"]
    for tag, i1, i2, j1, j2 in group:
        if tag == "equal":
            lines += [" " + line for line in old[i1:i2]]
            continue
        lines += ["-" + line for line in old[i1:i2]]
        lines += ["+" + line for line in new[j1:j2]]
    return lines


def _range(start: int, length: int) -> str:
    return f"{start + 1 if length else start},{length}"
