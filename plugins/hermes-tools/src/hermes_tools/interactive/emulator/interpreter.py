"""Applies the escape sequences of terminal output to the screen."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final, final

from pyte import charsets

from hermes_tools.interactive.emulator.screen_matrix import Matrix

_MAX_NUMBER: Final = 9999
_MAX_NUMBERS: Final = 32
_MOST_ANSWERS: Final = 64
"""Maximum number of answers to queries in one piece of output, so that a file full of queries cannot type endlessly."""
_LONGEST_TITLE: Final = 256
_NUMBER: Final = 48
"""Work for each number of a sequence."""
_ALTERNATE: Final = frozenset({47, 1047, 1049})
_CURSOR_KEYS: Final = 1
_SAVED_CURSOR: Final = 1048
_SAVES_CURSOR: Final = 1049


@final
class Interpreter:
    """Applies what the parser finds to the matrix, and collects the terminal's answers.

    `repeats` is text that is still to be drawn: a short sequence can request a whole screen of it.
    """

    def __init__(self, matrix: Matrix) -> None:
        self.title = ""
        self.application_cursor = False
        self.repeats = ""
        self._matrix = matrix
        self._answers: list[str] = []

    def answers(self) -> bytes:
        """Return the terminal's answers since the last call."""
        answers, self._answers = self._answers, []
        return "".join(answers).encode()

    def show(self, text: str) -> None:
        """Draw text."""
        self._matrix.draw(text)

    def control(self, character: str) -> None:
        """Apply a control character."""
        matrix = self._matrix
        match character:
            case "\n" | "\x0b" | "\x0c":
                matrix.linefeed()
            case "\r":
                matrix.carriage_return()
            case "\b":
                matrix.backspace()
            case "\t":
                matrix.tab()
            case "\x0e":
                matrix.shift_out()
            case "\x0f":
                matrix.shift_in()
            case _:
                pass

    def escape(self, middle: str, last: str) -> None:
        """Apply an escape sequence."""
        matrix = self._matrix
        if middle in {"(", ")"}:
            if last in charsets.MAPS:
                matrix.define_charset(last, middle)
            return
        simple: dict[str, Callable[[], None]] = {
            "7": matrix.save_cursor,
            "8": matrix.restore_cursor,
            "D": matrix.index,
            "E": self._next_line,
            "M": matrix.reverse_index,
            "H": matrix.set_tab_stop,
            "c": self._reset,
        }
        if not middle and last in simple:
            simple[last]()
        elif middle == "#" and last == "8":
            matrix.alignment_display()

    def _next_line(self) -> None:
        self._matrix.carriage_return()
        self._matrix.index()

    def _reset(self) -> None:
        self._matrix.reset()
        self.application_cursor = False

    def string(self, opener: str, text: str) -> None:
        """Set the title, or answer that a capability is unknown."""
        if opener == "]":
            kind, _, value = text.partition(";")
            if kind in {"0", "2"}:
                self.title = value[:_LONGEST_TITLE]
        elif opener == "P" and text.startswith("+q"):
            self._answer("\x1bP0+r\x1b\\")

    def sequence(self, parameters: str, between: str, final: str) -> None:
        """Apply a control sequence."""
        prefix = parameters[:1] if parameters[:1] in {"?", "<", "=", ">"} else ""
        numbers = _numbers(parameters[len(prefix) :])
        self._matrix.work += _NUMBER * (len(numbers) - 1)
        if between:
            self._with_intermediate(prefix, numbers, between, final)
        elif prefix == "?":
            self._private(numbers, final)
        elif prefix == ">":
            if final == "c":
                self._answer("\x1b[>0;10;1c")
        elif not prefix:
            self._plain(numbers, final)

    def _with_intermediate(self, prefix: str, numbers: list[int], between: str, final: str) -> None:
        if between == "$" and final == "p":  # query of a mode; the answer is "unknown"
            self._answer(f"\x1b[{prefix}{numbers[0]};0$y")
        elif between == "!" and final == "p":
            self._matrix.set_margins()
            for number, private in ((4, False), (6, True)):
                self._matrix.switch(number, private=private, on=False)
            self._matrix.switch(25, private=True, on=True)

    def _private(self, numbers: list[int], final: str) -> None:
        if final in {"h", "l"}:
            for number in numbers:
                self._switch(number, on=final == "h")
        elif final == "n" and numbers[0] == 6:
            self._report_cursor("?")
        elif final == "J":
            self._matrix.erase_in_display(numbers[0])
        elif final == "K":
            self._matrix.erase_in_line(numbers[0])

    def _switch(self, number: int, *, on: bool) -> None:
        matrix = self._matrix
        if number == _CURSOR_KEYS:
            self.application_cursor = on
        elif number == _SAVED_CURSOR:
            (matrix.save_cursor if on else matrix.restore_cursor)()
        elif number in _ALTERNATE:
            # All three modes save the cursor of the first screen with it.
            matrix.use_alternate(on=on)
            if on and number == _SAVES_CURSOR:
                matrix.erase_in_display(2)
        else:
            matrix.switch(number, private=True, on=on)

    def _plain(self, numbers: list[int], final: str) -> None:
        matrix, first = self._matrix, numbers[0]
        one: dict[str, Callable[[int], None]] = {
            "@": matrix.insert_characters, "A": matrix.cursor_up, "B": matrix.cursor_down, "C": matrix.cursor_forward,
            "D": matrix.cursor_back, "E": matrix.cursor_down1, "F": matrix.cursor_up1, "G": matrix.cursor_to_column,
            "J": matrix.erase_in_display, "K": matrix.erase_in_line, "L": matrix.insert_lines,
            "M": matrix.delete_lines, "P": matrix.delete_characters, "X": matrix.erase_characters,
            "a": matrix.cursor_forward, "d": matrix.cursor_to_line, "e": matrix.cursor_down,
            "`": matrix.cursor_to_column, "g": matrix.clear_tab_stop,
        }  # fmt: skip
        counted: dict[str, Callable[[int], None]] = {
            "S": matrix.scroll, "T": lambda count: matrix.scroll(-count), "Z": matrix.tab_back, "b": self._repeat,
        }  # fmt: skip
        if final in one:
            one[final](first)
        elif final in counted:
            counted[final](first or 1)
        elif final in {"H", "f"}:
            matrix.cursor_position(first, numbers[1] if len(numbers) > 1 else 1)
        elif final == "r":
            matrix.set_margins(first or 1, (numbers[1] if len(numbers) > 1 else 0) or self._matrix.lines)
        elif final in {"h", "l"}:
            for number in numbers:
                matrix.switch(number, private=False, on=final == "h")
        else:
            self._questions(first, final)

    def _repeat(self, count: int) -> None:
        self.repeats = self._matrix.repetition(count)

    def _questions(self, first: int, final: str) -> None:
        match final, first:
            case "s", _:
                self._matrix.save_cursor()
            case "u", _:
                self._matrix.restore_cursor()
            case "c", 0:
                self._answer("\x1b[?6c")
            case "n", 5:
                self._answer("\x1b[0n")
            case "n", 6:
                self._report_cursor("")
            case "t", 18:
                self._answer(f"\x1b[8;{self._matrix.lines};{self._matrix.columns}t")
            case _:
                pass

    def _report_cursor(self, prefix: str) -> None:
        row, column = self._matrix.place
        self._answer(f"\x1b[{prefix}{row + 1};{column + 1}R")

    def _answer(self, text: str) -> None:
        if len(self._answers) < _MOST_ANSWERS:
            self._answers.append(text)


def _numbers(text: str) -> list[int]:
    return list(_each_number(text.split(";")[:_MAX_NUMBERS]))


def _each_number(parts: Iterable[str]) -> Iterable[int]:
    for part in parts:
        digits = re.match(r"0*(\d*)", part, re.ASCII)
        found = digits[1][:5] if digits else ""
        yield min(int(found or 0), _MAX_NUMBER)
