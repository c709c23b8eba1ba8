"""The screen of a terminal as text, as a person in front of it would see it.

Needs pyte (`pip install 'hermes-tools[screen]'`).
"""

from __future__ import annotations

import codecs
import re
from collections import deque
from typing import Final, final

from hermes_tools.interactive.emulator.escape_parser import EscapeParser
from hermes_tools.interactive.emulator.history import MOST_CHARACTERS
from hermes_tools.interactive.emulator.interpreter import Interpreter
from hermes_tools.interactive.emulator.screen_matrix import Matrix, text_of

DEFAULT_ROWS: Final = 40
DEFAULT_COLS: Final = 120
DEFAULT_HISTORY: Final = 20_000
_FLOOD: Final = 1024
_STEP: Final = 48
"""Work to find the next item in the output, of any kind."""
_AT_ONCE: Final = 128
# A group that is repeated possessively must be atomic: Python 3.11.0 to 3.11.4 match others incorrectly (gh-106052).
_PLAIN_LINES: Final = re.compile(r"(?>[ -~]*+\r\n)++")


@final
class TerminalScreen:
    """Shows the raw bytes of a terminal's output, in pieces that can be cut anywhere. No content makes it raise.

    It supports the second screen of full-screen programs, and keeps the last `history` lines that have scrolled out of
    the first one, with at most `characters` in total. `feed` shows bytes at once; `take` queues them, and each call of
    `work` shows a bounded part.
    """

    def __init__(
        self,
        *,
        rows: int = DEFAULT_ROWS,
        cols: int = DEFAULT_COLS,
        history: int = DEFAULT_HISTORY,
        characters: int = MOST_CHARACTERS,
    ) -> None:
        self._matrix = Matrix(cols, rows, history, characters)
        self._interpreter = Interpreter(self._matrix)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._parser = EscapeParser(self._interpreter)
        self._pieces: deque[str] = deque()

    @property
    def title(self) -> str:
        """The window title that a program has set."""
        return self._interpreter.title

    @property
    def application_cursor(self) -> bool:
        """Whether a program has requested the application codes of the cursor keys."""
        return self._interpreter.application_cursor

    @property
    def rows(self) -> int:
        """Number of visible rows."""
        return self._matrix.lines

    @property
    def cols(self) -> int:
        """Number of columns."""
        return self._matrix.columns

    @property
    def alternate(self) -> bool:
        """Whether a full-screen program uses the second screen."""
        return self._matrix.alternate

    @property
    def cursor(self) -> tuple[int, int]:
        """Row and column of the cursor, counted from 0."""
        return self._matrix.place

    @property
    def dropped(self) -> int:
        """Number of lines that the history has dropped."""
        return self._matrix.history.dropped

    @property
    def is_behind(self) -> bool:
        """Whether queued bytes are not shown yet."""
        return bool(self._interpreter.repeats or self._pieces or self._parser.is_behind)

    @property
    def lines(self) -> list[str]:
        """All visible rows, without trailing blanks."""
        return [text_of(self._matrix.row(y)).rstrip(" ") for y in range(self.rows)]

    @property
    def text(self) -> str:
        """The visible rows down to the last one that is not blank."""
        return "\n".join(self.lines).rstrip("\n")

    def entire(self) -> str:
        """Return the history and the screen. Lines that were wrapped at the terminal's width are joined."""
        pairs = list(self._matrix.history)
        if not self.alternate:
            pairs += [(text_of(row), getattr(row, "wrapped", False)) for row in map(self._matrix.row, range(self.rows))]
        pieces = [text if wrapped else f"{text.rstrip(' ')}\n" for text, wrapped in pairs]
        whole = "".join(pieces).rstrip("\n")
        return f"{whole}\n{self.text}" if self.alternate else whole

    def resize(self, *, rows: int, cols: int) -> None:
        """Change the size."""
        self._matrix.change_size(cols, rows)

    def feed(self, data: bytes) -> bytes:
        """Show the next bytes. Return the terminal's answers, which the caller writes to the program."""
        self.take(data)
        while self._go_on():
            pass
        return self.answers()

    def take(self, data: bytes) -> None:
        """Queue some kilobytes for `work`. The limit matters because the lines of a piece can be drawn in one step."""
        text = self._decoder.decode(data)
        # The text before the first line break of a long piece can be the end of a sequence or of a line.
        begin = text.find("\n") + 1 if len(text) >= _FLOOD else 0
        self._pieces.extend(piece for piece in (text[:begin], text[begin:]) if piece)

    def work(self, amount: int) -> int:
        """Show queued bytes for this amount of work, and at most one operation more. Return how much work was done.

        Work is counted in about the number of cells touched. A result below `amount` means that everything is shown.
        """
        matrix = self._matrix
        before = matrix.work
        end = before + amount
        while matrix.work < end and self._go_on():
            pass
        return matrix.work - before

    def _go_on(self) -> bool:
        self._matrix.work += _STEP
        if repeats := self._interpreter.repeats:
            self._interpreter.repeats = repeats[_AT_ONCE:]
            self._matrix.draw(repeats[:_AT_ONCE])
        elif not self._parser.step():
            if not self._pieces:
                return False
            self._begin(self._pieces.popleft())
        return True

    def _begin(self, text: str) -> None:
        """Draw the plain lines at the beginning of a long piece directly, and pass the rest to the parser."""
        end = 0
        if len(text) >= _FLOOD and self._parser.is_idle and self._matrix.is_simple:
            lines = _PLAIN_LINES.match(text)
            if lines is not None:
                self._matrix.pour(lines[0].split("\r\n")[:-1])
                end = lines.end()
        self._parser.take(text[end:])

    def drop(self) -> int:
        """Drop the queued bytes that are not shown yet. Return their number."""
        text = self._parser.drop() + "".join(self._pieces)
        self._pieces.clear()
        self._interpreter.repeats = ""
        return len(text.encode())

    def answers(self) -> bytes:
        """Return what the terminal has answered since this was last asked."""
        return self._interpreter.answers()
