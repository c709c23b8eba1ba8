"""Whether a mark of a format is quoted: text that names a mark, or shows one in code, means no call by it."""

from __future__ import annotations

import re
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
    """Whether the mark `text[start:end]` stands between a quote or backtick and the one that matches it.

    The character behind the mark decides. In a stream it has to be there already: at the text's end the answer is no.
    """
    closing = _CLOSING.get(text[start - 1], "") if start > 0 else ""
    return closing != "" and end < len(text) and text[end] in closing


class Quotes:
    """Tells of places in ascending order whether what stands there is quoted: behind a quote, or in a code fence.

    `at` may be set ahead, behind a call: what stands in it opens and closes no fence.
    """

    def __init__(self, text: str, start: int) -> None:
        self._text = text
        self._start = self.at = start
        self._fence = ""

    def has(self, place: int) -> bool:
        """Whether the mark at this place is quoted."""
        for found in _FENCE.finditer(self._text, self.at, place):
            fence = found[0].lstrip()
            if not self._fence:
                self._fence = fence
            elif fence.startswith(self._fence):
                self._fence = ""
        self.at = place
        return bool(self._fence) or (place > self._start and self._text[place - 1] in _CLOSING)
