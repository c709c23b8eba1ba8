"""A bounded history of the lines that have scrolled out of a terminal's screen, as text."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final, final

MOST_CHARACTERS: Final = 4_000_000
"""A row of 500 cells can have 4,000 characters, so a maximum number of rows alone does not bound the memory."""


@final
class History:
    """Rows of text, each with a flag for a wrapped line. `dropped` counts the rows that were removed for the limits."""

    def __init__(self, rows: int, characters: int = MOST_CHARACTERS) -> None:
        self.dropped = 0
        self._rows: deque[tuple[str, bool]] = deque()
        self._most_rows = rows
        self._most_characters = characters
        self._characters = 0

    def __iter__(self) -> Iterator[tuple[str, bool]]:
        """Yield the rows, oldest first."""
        return iter(self._rows)

    def keep(self, text: str, wrapped: bool) -> None:  # noqa: FBT001 - half of a pair, which iteration returns
        """Add a row, and drop the oldest rows beyond the limits."""
        rows = self._rows
        rows.append((text, wrapped))
        self._characters += len(text)
        while len(rows) > self._most_rows or (self._characters > self._most_characters and rows):
            self._characters -= len(rows.popleft()[0])
            self.dropped += 1

    def clear(self) -> None:
        """Delete all rows at a program's request. They do not count as dropped."""
        self._rows.clear()
        self._characters = 0
