"""The lines that have left a terminal's screen at the top, as text: the last ones, within bounds."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final, final

MOST_CHARACTERS: Final = 4_000_000
"""A row of 500 cells may hold 4,000 characters: a number of rows alone bounds no memory."""


@final
class History:
    """Rows, each with whether its text goes on in the next one; `dropped` counts those that had no room any more."""

    def __init__(self, rows: int, characters: int = MOST_CHARACTERS) -> None:
        self.dropped = 0
        self._rows: deque[tuple[str, bool]] = deque()
        self._most_rows = rows
        self._most_characters = characters
        self._characters = 0

    def __iter__(self) -> Iterator[tuple[str, bool]]:
        """Give the rows, the oldest first."""
        return iter(self._rows)

    def keep(self, text: str, wrapped: bool) -> None:  # noqa: FBT001 - half of a pair, as it comes out again
        """Add a row."""
        rows = self._rows
        rows.append((text, wrapped))
        self._characters += len(text)
        while len(rows) > self._most_rows or (self._characters > self._most_characters and rows):
            self._characters -= len(rows.popleft()[0])
            self.dropped += 1

    def clear(self) -> None:
        """Forget all rows, as a program wants it; that counts none."""
        self._rows.clear()
        self._characters = 0
