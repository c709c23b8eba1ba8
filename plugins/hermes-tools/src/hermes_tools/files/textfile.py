"""A text file that is edited without touching what the edit does not mean: line endings, encoding, mark, last line."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from hermes_tools.files.fuzzy import Edit

_MARK: Final = "\ufeff"


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
