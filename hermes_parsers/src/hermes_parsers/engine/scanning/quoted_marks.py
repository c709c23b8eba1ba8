"""Detect quoted marks: text that names a mark, or shows one in code, is not a call."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_FENCE: Final = re.compile(r"`{3,}|^[ \t]*~{3,}", re.MULTILINE)
_CLOSING: Final = {
    "`": "`",
    '"': '"',
    "'": "'",
    "\N{LEFT DOUBLE QUOTATION MARK}": "\N{RIGHT DOUBLE QUOTATION MARK}",
    "\N{LEFT SINGLE QUOTATION MARK}": "\N{RIGHT SINGLE QUOTATION MARK}",
    "\N{DOUBLE LOW-9 QUOTATION MARK}": "\N{LEFT DOUBLE QUOTATION MARK}\N{RIGHT DOUBLE QUOTATION MARK}",
    "«": "»",
}
"""The characters that open a quotation, each with those that close it."""


def is_between_quotes(text: str, start: int, end: int) -> bool:
    """Whether the mark `text[start:end]` stands between a quote or backtick and the matching one.

    The character after the mark decides. In a stream it must have arrived: at the end of the text the answer is no.
    """
    closing = _CLOSING.get(text[start - 1], "") if start > 0 else ""
    return closing != "" and end < len(text) and text[end] in closing


class Quotes:
    """Tells whether the mark at a place is quoted: after a quote, or in a code fence. Ask in ascending order.

    The text arrives in pieces.
    """

    __slots__ = ("_begin", "_fence", "_index", "_last", "_pieces", "at")

    def __init__(self, pieces: Sequence[str], start: int = 0) -> None:
        self._pieces = pieces
        self._index = self._begin = 0
        self._fence = self._last = ""
        self.at = start

    def has(self, place: int) -> bool:
        """Whether the mark at this place is quoted."""
        before = self._last
        text = before + self._text_before(place)
        for found in _FENCE.finditer(text, len(before)):
            fence = found[0].lstrip()
            if not self._fence:
                self._fence = fence
            elif fence.startswith(self._fence):
                self._fence = ""
        self._last = text[-1:]
        return bool(self._fence) or self._last in _CLOSING

    def skip_to(self, place: int) -> None:
        """Continue after a call: text inside it neither opens nor closes a fence."""
        if place > self.at:
            self.at, self._last = place, ""

    def _text_before(self, stop: int) -> str:
        """Return the text since the last call; each piece is searched once."""
        found = []
        while self._index < len(self._pieces):
            piece = self._pieces[self._index]
            end = self._begin + len(piece)
            found.append(piece[max(self.at - self._begin, 0) : max(stop - self._begin, 0)])
            if end > stop:
                break
            self._index += 1
            self._begin = end
        self.at = max(self.at, stop)
        return "".join(found)
