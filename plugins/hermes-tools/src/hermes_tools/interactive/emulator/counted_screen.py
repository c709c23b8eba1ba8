"""A screen based on pyte's, whose operations all take a bounded time and are counted as work."""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from itertools import repeat
from typing import Final

from pyte.screens import Char, Screen, StaticDefaultDict

_CALL: Final = 16
_MOVE_OF_A_ROW: Final = 8


class Row(StaticDefaultDict[int, Char]):
    """A row of cells. `wrapped` is true if its text continues in the next row without a line break."""

    wrapped = False


@lru_cache(maxsize=4096)
def cell(text: str) -> Char:
    """Return a cell with this text and without colours."""
    return Char(text)


BLANK: Final = cell(" ")


def blank_rows() -> defaultdict[int, StaticDefaultDict[int, Char]]:
    """Return a buffer that creates its rows when they are written to."""
    return defaultdict(lambda: Row(BLANK))


class CountedScreen(Screen):
    """Produces the same content as pyte's screen, but without colours.

    Each operation adds about the number of cells that it touches to `work`. A unit takes some tens of nanoseconds on
    one machine and more on another, but the same output is the same work everywhere.
    """

    def __init__(self, columns: int, lines: int) -> None:
        self.work = 0
        super().__init__(columns, lines)
        self.buffer = blank_rows()

    def reset(self) -> None:
        """Reset the terminal."""
        self.work += 2 * self.lines + self.columns
        super().reset()

    def index(self) -> None:
        """Move the cursor down. At the bottom, move the rows up instead."""
        _, bottom = self.margins or (0, self.lines - 1)
        if self.cursor.y == bottom:
            self.move_rows(1)
        else:
            self.cursor_down()

    def reverse_index(self) -> None:
        """Move the cursor up. At the top, move the rows down instead."""
        top, _ = self.margins or (0, self.lines - 1)
        if self.cursor.y == top:
            self.move_rows(-1)
        else:
            self.cursor_up()

    def move_rows(self, count: int) -> None:
        """Move the rows within the margins up, or down if `count` is negative, by at most the number of these rows."""
        top, bottom = self.margins or (0, self.lines - 1)
        rows = list(map(self.buffer.__getitem__, range(top, bottom + 1)))
        self.work += _CALL + len(rows) + _MOVE_OF_A_ROW * abs(count)
        blanks: list[StaticDefaultDict[int, Char]] = [Row(BLANK) for _ in range(abs(count) - 1)]
        # The last of the new rows is created when it is written to.
        if count > 0:
            self.buffer.update(enumerate([*rows[count:], *blanks], top))
            self.buffer.pop(bottom, None)
        else:
            self.buffer.update(enumerate([*blanks, *rows[: len(rows) + count]], top + 1))
            self.buffer.pop(top, None)

    def insert_lines(self, count: int | None = None) -> None:
        """Insert blank rows at the cursor, and move the rows below down."""
        self.work += _MOVE_OF_A_ROW * self.lines
        super().insert_lines(count)

    def delete_lines(self, count: int | None = None) -> None:
        """Delete rows at the cursor, and move the rows below up."""
        self.work += _MOVE_OF_A_ROW * self.lines
        super().delete_lines(count)

    def insert_characters(self, count: int | None = None) -> None:
        """Insert blank cells at the cursor, and move the following cells to the right."""
        row, x, count = self.buffer[self.cursor.y], self.cursor.x, count or 1
        moved = self._cells(row, x, self.columns + 1 - count)
        self._clear(row, x, self.columns + 1)
        row.update(enumerate(moved, x + count))

    def delete_characters(self, count: int | None = None) -> None:
        """Delete cells at the cursor, and move the following cells to the left."""
        row, x, count = self.buffer[self.cursor.y], self.cursor.x, count or 1
        moved = self._cells(row, x + count, self.columns + 1)
        # pyte's rows can have a cell beyond the last column, which moves like the others, but is not deleted.
        self._clear(row, x, self.columns + bool(moved))
        row.update(enumerate(moved, x))

    def _cells(self, row: StaticDefaultDict[int, Char], begin: int, end: int) -> list[Char]:
        self.work += _CALL + 2 * max(0, end - begin)
        return list(map(row.get, range(begin, end), repeat(BLANK)))

    def _clear(self, row: StaticDefaultDict[int, Char], begin: int, end: int) -> None:
        self.work += _CALL + max(0, end - begin)
        for x in range(begin, end):
            row.pop(x, None)

    def erase_characters(self, count: int | None = None) -> None:
        """Blank cells, starting at the cursor."""
        self.work += min(count or 1, self.columns)
        super().erase_characters(count)

    def erase_in_line(self, how: int = 0, private: bool = False) -> None:  # noqa: FBT001, FBT002 - pyte's signature
        """Blank a part of the row."""
        self.work += self.columns
        super().erase_in_line(how, private)

    def alignment_display(self) -> None:
        """Fill the screen with the letter E."""
        self.work += self.lines * self.columns
        letters = dict.fromkeys(range(self.columns), cell("E"))
        for y in range(self.lines):
            self.buffer[y].update(letters)

    def tab(self) -> None:
        """Move to the next tab stop."""
        self.work += len(self.tabstops)
        super().tab()
