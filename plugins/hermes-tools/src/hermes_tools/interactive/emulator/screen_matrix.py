"""The cells of a terminal: pyte's screen, extended by what programs need and made safe against hostile output."""

from __future__ import annotations

import copy
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Final

from pyte import charsets, modes
from pyte.screens import Char, Cursor, StaticDefaultDict, wcwidth

from hermes_tools.interactive.emulator.counted_screen import BLANK, CountedScreen, Row, blank_rows, cell
from hermes_tools.interactive.emulator.history import MOST_CHARACTERS, History

_MOST_COMBINED: Final = 8
"""Maximum number of characters in a cell, because a program can combine any number of accents."""
_PRIVATE_MODES: Final = frozenset({6, 7, 25})
_MODES: Final = frozenset({4, 20})


_PLAIN: Final = {chr(code): cell(chr(code)) for code in range(128)}
_ODD: Final = 16
"""Work for a character that is not ASCII, whose width and covered cells must be looked up."""


def text_of(row: StaticDefaultDict[int, Char]) -> str:
    """Return the text of a row, without trailing blanks unless it is wrapped."""
    text = "".join([row[x].data for x in range(max(row, default=-1) + 1)])
    return text if getattr(row, "wrapped", False) else text.rstrip(" ")


class Matrix(CountedScreen):
    """A screen without colours. It keeps the last `history` lines that scrolled out at the top, as text."""

    def __init__(self, columns: int, rows: int, history: int, characters: int = MOST_CHARACTERS) -> None:
        super().__init__(columns, rows)
        self.history = History(history, characters)
        self._main: tuple[dict[int, StaticDefaultDict[int, Char]], Cursor] | None = None
        self._last = " "

    @property
    def alternate(self) -> bool:
        """Whether a full-screen program uses the second screen."""
        return self._main is not None

    @property
    def place(self) -> tuple[int, int]:
        """Row and column of the cursor, always within the screen."""
        return self.cursor.y, min(self.cursor.x, self.columns - 1)

    def row(self, y: int) -> StaticDefaultDict[int, Char]:
        """Return a row, without adding it to the buffer."""
        return self.buffer[y] if y in self.buffer else Row(BLANK)

    def reset(self) -> None:
        """Reset to an empty first screen. The history stays."""
        super().reset()
        self._main = None
        self.savepoints.clear()

    def draw(self, data: str) -> None:
        """Draw text at the cursor. Characters without width join the previous one; unprintable ones are skipped."""
        table = self.g1_charset if self.charset else self.g0_charset
        if table is not charsets.LAT1_MAP:
            data = data.translate(table)
        if data.isascii() and modes.IRM not in self.mode:
            self._put_plain(data)
            return
        self.work += _ODD * len(data)
        for char in data:
            width = 1 if " " <= char <= "~" else wcwidth(char)
            if width > 0:
                self._put(char, width)
            elif width == 0:
                self._combine(char)

    def _put_plain(self, data: str) -> None:
        """Draw ASCII text as `_put` does for each character, but much faster. Most output is of this kind."""
        self._last = data[-1:] or self._last
        self.work += len(data)
        while data:
            if self.cursor.x >= self.columns:
                self._wrap(1)
            row, x = self.buffer[self.cursor.y], self.cursor.x
            piece, data = data[: self.columns - x], data[self.columns - x :]
            self._mend(row, x, len(piece))
            row.update(enumerate([_PLAIN[char] for char in piece], x))
            self.cursor.x = x + len(piece)

    def _mend(self, row: StaticDefaultDict[int, Char], x: int, width: int) -> None:
        # When one half of a wide character is overwritten, the other half becomes blank.
        if x and row[x].data == "":
            row[x - 1] = BLANK
        if x + width < self.columns and row[x + width].data == "":
            row[x + width] = BLANK

    def repetition(self, count: int) -> str:
        """Return the last character, repeated `count` times, but at most enough to fill the screen."""
        return self._last * min(count, self.columns * self.lines)

    def _put(self, char: str, width: int) -> None:
        if self.cursor.x + width > self.columns:
            self._wrap(width)
        if modes.IRM in self.mode:
            self.insert_characters(width)
        row, x = self.buffer[self.cursor.y], self.cursor.x
        self._mend(row, x, width)
        row[x] = cell(char)
        if width == 2:
            row[x + 1] = cell("")
        self.cursor.x = x + width
        self._last = char

    def _wrap(self, width: int) -> None:
        if modes.DECAWM not in self.mode:
            self.cursor.x = self.columns - width
            return
        row = self.buffer[self.cursor.y]
        if isinstance(row, Row):
            row.wrapped = True
        self.cursor.x = 0
        self.index()

    def _combine(self, char: str) -> None:
        row, x = self.buffer[self.cursor.y], self.cursor.x - 1
        if x > 0 and row[x].data == "":
            x -= 1
        if x >= 0 and len(row[x].data) < _MOST_COMBINED:
            row[x] = cell(unicodedata.normalize("NFC", row[x].data + char))

    def index(self) -> None:
        """Move the cursor down. At the bottom, move the rows up instead, and the first one into the history."""
        top, bottom = self.margins or (0, self.lines - 1)
        if self.cursor.y > bottom:
            self.cursor.y = min(self.cursor.y + 1, self.lines - 1)
            return
        if self.cursor.y == bottom and top == 0 and not self.alternate:
            self._keep(self.row(0))
        super().index()

    def _keep(self, row: StaticDefaultDict[int, Char]) -> None:
        self.work += 8 + 2 * len(row)
        self.history.keep(text_of(row), getattr(row, "wrapped", False))

    def pour(self, lines: Sequence[str]) -> None:
        """Draw many plain lines, each followed by a line break. Most of them go straight to the history as text."""
        at, seen = 0, self.lines + 2
        while at < len(lines) and self.cursor.y < self.lines - 1:
            self._draw_line(lines[at])
            at += 1
        if len(lines) - at > seen:
            self._draw_line(lines[at])
            for y in range(self.lines - 1):
                self._keep(self.row(y))
            self._keep_lines(lines[at + 1 : -seen])
            self.buffer.clear()
            self.cursor.y, at = 0, len(lines) - seen
        for line in lines[at:]:
            self._draw_line(line)

    def _draw_line(self, line: str) -> None:
        self.draw(line)
        self.linefeed()
        self.carriage_return()

    @property
    def is_simple(self) -> bool:
        """Whether no mode changes how plain lines are drawn, so that `pour` can draw them."""
        return (
            self.margins is None
            and not self.alternate
            and modes.DECAWM in self.mode
            and modes.IRM not in self.mode
            and (self.g1_charset if self.charset else self.g0_charset) is charsets.LAT1_MAP
        )

    def _keep_lines(self, lines: Iterable[str]) -> None:
        width = self.columns
        for line in lines:
            self.work += 4 + len(line) // 4
            for at in range(0, max(1, len(line)), width):
                text, wrapped = line[at : at + width], at + width < len(line)
                self.history.keep(text if wrapped else text.rstrip(" "), wrapped)

    def scroll(self, count: int) -> None:
        """Move the rows within the margins up, or down if `count` is negative. The cursor stays."""
        top, bottom = self.margins or (0, self.lines - 1)
        size = bottom - top + 1
        count = max(-size, min(count, size))
        if top == 0 and not self.alternate:
            for y in range(count):
                self._keep(self.row(y))
        self.move_rows(count)

    def cursor_down(self, count: int | None = None) -> None:
        """Move the cursor down, at most to the bottom margin, or from below it to the last row."""
        bottom = self.lines - 1
        if self.margins is not None and self.cursor.y <= self.margins.bottom:
            bottom = self.margins.bottom
        self.cursor.y = min(self.cursor.y + (count or 1), bottom)

    def cursor_up(self, count: int | None = None) -> None:
        """Move the cursor up, at most to the top margin, or from above it to the first row."""
        top = self.margins.top if self.margins is not None and self.cursor.y >= self.margins.top else 0
        self.cursor.y = max(self.cursor.y - (count or 1), top)

    def cursor_to_line(self, line: int | None = None) -> None:
        """Move the cursor to a row. pyte's method fails in origin mode without margins."""
        self.cursor_position(line, self.cursor.x + 1)

    def tab_back(self, count: int) -> None:
        """Move the cursor back by `count` tab stops."""
        self.work += len(self.tabstops)
        stops = [0, *sorted(stop for stop in self.tabstops if stop < self.cursor.x)]
        self.cursor.x = stops[max(0, len(stops) - count)]

    def save_cursor(self) -> None:
        """Save the cursor. Like other terminals, keep only one saved cursor."""
        self.savepoints.clear()
        super().save_cursor()

    def restore_cursor(self) -> None:
        """Restore the saved cursor, which stays saved."""
        kept = list(self.savepoints)
        super().restore_cursor()
        self.cursor = copy.copy(self.cursor)
        self.savepoints = kept

    def erase_in_line(self, how: int = 0, private: bool = False) -> None:  # noqa: FBT001, FBT002 - pyte's signature
        """Blank a part of the row."""
        if how in {0, 1, 2}:
            super().erase_in_line(how, private)
            row = self.buffer[self.cursor.y]
            if isinstance(row, Row) and how != 1:
                row.wrapped = False

    def erase_in_display(self, how: int = 0, *_args: object, **_kwargs: object) -> None:
        """Blank a part of the screen; 3 clears the history."""
        y = self.cursor.y
        self.work += self.lines
        if how == 3:
            self.history.clear()
            return
        gone = {0: range(y + 1, self.lines), 1: range(y), 2: range(self.lines)}.get(how, range(0))
        for number in gone:
            self.buffer.pop(number, None)
        if how in {0, 1}:
            self.erase_in_line(how)

    def switch(self, number: int, *, private: bool, on: bool) -> None:
        """Set or reset a mode, if it affects the position of text."""
        if number in (_PRIVATE_MODES if private else _MODES):
            (self.set_mode if on else self.reset_mode)(number, private=private)

    def use_alternate(self, *, on: bool) -> None:
        """Switch to the second screen, which is blank, or back to the first, which is unchanged."""
        self.work += self.lines
        if on and self._main is None:
            self._main = (self.buffer, copy.copy(self.cursor))
            self.buffer = blank_rows()
        elif not on and self._main is not None:
            self.buffer, self.cursor = self._main
            self._main, self.margins = None, None
            self._fit()

    def change_size(self, columns: int, rows: int) -> None:
        """Change the size. Rows above the cursor that no longer fit go into the history."""
        for buffer in (self.buffer, self._main[0] if self._main else {}):
            for row in buffer.values():
                for x in [x for x in row if x >= columns]:
                    del row[x]
        self.columns, self.lines = columns, rows
        self.tabstops = set(range(8, columns, 8))
        self.margins = None
        self._fit()

    def _fit(self) -> None:
        surplus = max(0, self.cursor.y - self.lines + 1)
        for y in range(surplus):
            if not self.alternate:
                self._keep(self.row(y))
        moved = {y - surplus: row for y, row in self.buffer.items() if 0 <= y - surplus < self.lines}
        self.buffer = blank_rows()
        self.buffer.update(moved)
        self.cursor.y -= surplus
        self.ensure_hbounds()
        self.ensure_vbounds()
