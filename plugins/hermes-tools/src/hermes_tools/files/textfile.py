"""A text file that is edited without touching what the edit does not mean: line endings, encoding, mark, last line."""

from __future__ import annotations

import difflib
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from hermes_tools.files.fuzzy import Edit

DIFF_LIMIT: Final = 20_000
_MARK: Final = "\ufeff"
_CONTEXT: Final = 3


@dataclass(slots=True)
class TextFile:
    """`text` has plain newlines and an ended last line; `apply` writes edits of it back into the bytes."""

    text: str
    raw: str
    crlf: list[int] = field(default_factory=list)

    @classmethod
    def decode(cls, data: bytes) -> TextFile:
        """Read bytes; what is not UTF-8 survives unchanged."""
        raw = data.decode("utf-8", "surrogateescape")
        text = raw.removeprefix(_MARK).replace("\r\n", "\n")
        crlf: list[int] = []
        at = raw.find("\r\n")
        shift = len(raw) - len(raw.removeprefix(_MARK))
        while at >= 0:
            crlf.append(at - shift - len(crlf))
            at = raw.find("\r\n", at + 2)
        return cls(text if not text or text.endswith("\n") else text + "\n", raw, crlf)

    def apply(self, edits: Sequence[Edit]) -> bytes:
        """Return the file's bytes after the edits, which are in order and apart."""
        body = self.raw.removeprefix(_MARK)
        mark = _MARK if len(body) != len(self.raw) else ""
        ending = "\r\n" if len(self.crlf) * 2 > self.text.count("\n") else "\n"
        # The edits see a last line that is always ended; the file gets that end only if it had it.
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


def unified_diff(before: str, after: str, path_before: str, path_after: str) -> str:
    """Return a unified diff of two texts, cut with a notice when it is very long."""
    old, new = _lines(before), _lines(after)
    # Only what lies between the common ends is compared: comparing is quadratic at worst.
    head = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    limit = min(len(old), len(new)) - head
    tail = next((i for i in range(limit) if old[-1 - i] != new[-1 - i]), limit)
    skip, keep = max(0, head - _CONTEXT), max(0, tail - _CONTEXT)
    matcher = difflib.SequenceMatcher(None, old[skip : len(old) - keep], new[skip : len(new) - keep])
    parts = [f"--- {path_before}\n", f"+++ {path_after}\n"]
    for group in matcher.get_grouped_opcodes(_CONTEXT):
        parts += _hunk(group, old, new, skip)
    diff = "".join(part if part.endswith("\n") else part + "\n\\ No newline at end of file\n" for part in parts)
    diff = diff.encode("utf-8", "replace").decode()
    if len(diff) <= DIFF_LIMIT:
        return diff
    return f"{diff[:DIFF_LIMIT]}\n[diff cut, {len(diff) - DIFF_LIMIT} more characters]"


def _lines(text: str) -> list[str]:
    *ended, last = text.split("\n")
    return [f"{line}\n" for line in ended] + ([last] if last else [])


def _hunk(group: list[tuple[str, int, int, int, int]], old: list[str], new: list[str], skip: int) -> list[str]:
    (_, a1, _, b1, _), (_, _, a2, _, b2) = group[0], group[-1]
    lines = [f"@@ -{_range(a1 + skip, a2 - a1)} +{_range(b1 + skip, b2 - b1)} @@\n"]
    for tag, i1, i2, j1, j2 in group:
        if tag == "equal":
            lines += [" " + line for line in old[i1 + skip : i2 + skip]]
            continue
        lines += ["-" + line for line in old[i1 + skip : i2 + skip]]
        lines += ["+" + line for line in new[j1 + skip : j2 + skip]]
    return lines


def _range(start: int, length: int) -> str:
    return f"{start + 1 if length else start},{length}"
