"""Unfinished segments, and the quoted places in the text after them."""

from __future__ import annotations

from collections.abc import Sequence

from hermes_parsers.engine.scanning.quoted_marks import Quotes
from hermes_parsers.engine.scanning.scan import Draft


class Span:
    """An unfinished segment; positions are those of the whole source."""

    __slots__ = ("draft", "end", "kind", "start")

    def __init__(self, kind: str, start: int, end: int, draft: Draft | None = None) -> None:
        self.kind = kind
        self.start = start
        self.end = end
        self.draft = draft


class SpanQuotes:
    """Tells whether a place in a text is quoted, while the text is read. Ask in ascending order.

    `spans` are the segments so far. Calls and reasoning neither quote nor fence the text after them.
    """

    __slots__ = ("_last", "_looked", "_pieces", "_quotes", "_spans")

    def __init__(self, pieces: Sequence[str], spans: Sequence[Span]) -> None:
        self._pieces = pieces
        self._spans = spans
        self._last: Span | None = None
        self._looked = 0
        self._quotes: Quotes | None = None

    def has(self, place: int) -> bool:
        """Whether the mark at this place is quoted."""
        spans = self._spans
        if self._quotes is None or self._is_retold():
            self._quotes, self._looked = Quotes(self._pieces), 0
        for at in range(self._looked, len(spans)):
            if spans[at].kind != "text":
                self._quotes.has(spans[at].start)
                self._quotes.skip_to(spans[at].end)
        self._looked = len(spans)
        self._last = spans[-1] if spans else None
        return self._quotes.has(place)

    def _is_retold(self) -> bool:
        """Whether everything that counted as text turned out to be reasoning."""
        return self._looked > 0 and self._spans[self._looked - 1] is not self._last
