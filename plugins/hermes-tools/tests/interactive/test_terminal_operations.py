"""The operations on the screen's cells have the same results as pyte's, which are simple but slow."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyte.screens import Screen

from hermes_tools.interactive.emulator.counted_screen import CountedScreen
from hermes_tools.interactive.emulator.screen import TerminalScreen

COUNTED = (
    "insert_characters",
    "delete_characters",
    "erase_characters",
    "insert_lines",
    "delete_lines",
    "cursor_up",
    "cursor_down",
    "cursor_forward",
    "cursor_back",
)
OPERATIONS = st.one_of(
    st.tuples(st.just("draw"), st.tuples(st.text("abc日é", max_size=12))),
    st.tuples(st.sampled_from(COUNTED), st.tuples(st.integers(1, 12))),
    st.tuples(st.sampled_from(["erase_in_line", "erase_in_display"]), st.tuples(st.integers(0, 2))),
    st.tuples(st.sampled_from(["index", "reverse_index", "linefeed", "tab", "set_tab_stop"]), st.just(())),
    st.tuples(st.sampled_from(["alignment_display", "save_cursor", "restore_cursor", "reset"]), st.just(())),
    st.tuples(st.sampled_from(["set_margins", "cursor_position"]), st.tuples(st.integers(1, 6), st.integers(1, 9))),
    st.tuples(st.sampled_from(["set_mode", "reset_mode"]), st.tuples(st.sampled_from([4, 20, 6 << 5, 7 << 5]))),
)


def content(screen):
    """Return everything that a later operation could see, including the cell that pyte has beyond the last column."""
    return {y: dict(row) for y, row in screen.buffer.items()}, (screen.cursor.y, screen.cursor.x), screen.margins


@settings(max_examples=400)
@given(st.lists(OPERATIONS, max_size=30), st.integers(2, 5), st.integers(2, 8))
def test_every_operation_leaves_what_pytes_leaves(operations, rows, cols):
    quick, plain = CountedScreen(cols, rows), Screen(cols, rows)
    for name, arguments in operations:
        work = quick.work
        getattr(quick, name)(*arguments)
        getattr(plain, name)(*arguments)
        assert content(quick) == content(plain), name
        assert quick.work >= work


BEFORE = [b"", b"\x1b[2;4r", b"\x1b[1;3r", b"\x1b[?47h", b"\x1b[4h", b"\x1b[?7l"]


@pytest.mark.parametrize("letter", [b"S", b"T", b"b"])
@settings(max_examples=60)
@given(
    st.sampled_from(BEFORE),
    st.lists(st.text("ab日é", max_size=9), min_size=1, max_size=12),
    st.integers(1, 3),  # as many rows as any of the regions has
    st.sampled_from([b"", b"\x1b[3;3H", b"\x1b[5;1H"]),
)
def test_a_sequence_with_a_number_does_as_often_what_one_without_does(letter, before, lines, count, place):
    once, often = TerminalScreen(rows=5, cols=7, history=20), TerminalScreen(rows=5, cols=7, history=20)
    text = before + "\r\n".join(lines).encode() + place
    once.feed(text + b"\x1b[%d" % count + letter)
    often.feed(text + (b"\x1b[" + letter) * count)
    assert (once.lines, once.entire(), once.cursor) == (often.lines, often.entire(), often.cursor)
    assert once.dropped == often.dropped


PIECES = st.one_of(
    st.text("ab日é\u0301 \r\n\t", max_size=40).map(str.encode),
    st.sampled_from([b"\x1b#8", b"\x1b[9b", b"\x1b[4h", b"\x1b[99S", b"\x1b[99T", b"\x1b[3@", b"\x1b[2P", b"\x1bM"]),
    st.sampled_from([b"\x1b[2;4r", b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b]0;t", b"\x07", b"\x1b[6n", b"y\r\n" * 600]),
)


@settings(max_examples=100)
@given(st.lists(PIECES, max_size=20), st.integers(1, 500))
def test_in_small_portions_of_work_the_screen_is_the_same(pieces, amount):
    at_once, slowly = TerminalScreen(rows=6, cols=20), TerminalScreen(rows=6, cols=20)
    answers = at_once.feed(b"".join(pieces))
    slowly.take(b"".join(pieces))
    while slowly.is_behind:
        slowly.work(amount)
    assert slowly.answers() == answers
    assert (slowly.lines, slowly.entire(), slowly.cursor) == (at_once.lines, at_once.entire(), at_once.cursor)
    assert (slowly.title, slowly.dropped) == (at_once.title, at_once.dropped)
