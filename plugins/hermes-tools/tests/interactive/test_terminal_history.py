"""The history above a terminal's screen: how many lines it keeps, and in how much memory."""

from __future__ import annotations

from hermes_tools.interactive.emulator.history import History
from hermes_tools.interactive.emulator.screen import TerminalScreen

COLS = 500


def test_the_history_is_bounded_in_characters_too_and_counts_what_it_has_dropped():
    row = "".join("a" + "\u0301\u0316" * 3 + "\u0302" for _ in range(COLS)).encode() + b"\r\n"
    screen = TerminalScreen(rows=10, cols=COLS, characters=20_000)
    for _ in range(30):
        screen.feed(row)
    # The letter and its first accent become one character.
    assert 15_000 < len(screen.entire()) <= 20_000 + 10 * (8 * COLS + 1)
    assert screen.dropped >= 30 - 10 - 6
    screen.feed(b"\x1b[3J")
    dropped = screen.dropped
    screen.feed(b"x\r\n" * 20)
    assert screen.dropped >= dropped


def test_a_terminal_keeps_four_million_characters_however_many_lines_they_are():
    screen = TerminalScreen(rows=10, cols=COLS)
    for _ in range(100):
        screen.feed(b"\n" + (b"x" * 499 + b"\r\n") * 100)
    assert 3_900_000 < len(screen.entire()) < 4_100_000
    assert 1_900 < screen.dropped < 2_200


def test_a_history_drops_the_oldest():
    history = History(3, 10)
    for text in ("one", "two", "three", "four"):
        history.keep(text, wrapped=False)
    assert [text for text, _ in history] == ["three", "four"]
    assert history.dropped == 2
    history.keep("", wrapped=True)
    history.keep("", wrapped=False)
    assert list(history) == [("four", False), ("", True), ("", False)]
    history.keep("more than it may hold", wrapped=False)
    assert list(history) == []
    assert history.dropped == 7
