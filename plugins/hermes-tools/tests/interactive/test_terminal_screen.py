"""The screen that results from a terminal's raw bytes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_tools.interactive.emulator.escape_parser import EscapeParser
from hermes_tools.interactive.emulator.screen import TerminalScreen


def screen(*pieces, rows=10, cols=20, history=100):
    made = TerminalScreen(rows=rows, cols=cols, history=history)
    for piece in pieces:
        made.feed(piece.encode() if isinstance(piece, str) else piece)
    return made


def test_text_appears_at_the_cursor():
    made = screen("one\r\ntwo\x1b[5;3Hthere\x1b[1;1HO")
    assert made.text == "One\ntwo\n\n\n  there"
    assert made.cursor == (0, 1)


def test_characters_cut_between_two_pieces_arrive_whole():
    data = "aé日本🙂z".encode()
    made = screen(*(data[at : at + 1] for at in range(len(data))))
    assert made.text == "aé日本🙂z"
    assert made.cursor == (0, 9)


def test_bytes_that_are_no_utf_8_are_shown_as_replaced():
    assert screen(b"a\xff\xfeb").text == "a��b"


@pytest.mark.parametrize(
    ("given_text", "shown"),
    [
        ("❤\ufe0f text", "❤\ufe0f text"),  # pyte shows nothing of what follows a variation selector
        ("👩\u200d💻 x", "👩\u200d💻 x"),
        ("e\u0301t\u0301", "ét\u0301"),
        ("a\u200bb", "a\u200bb"),
        ("日\x1b[1;2Hx", " x"),  # one half of a wide character is not kept
        ("\x1b(0lqk\x1b(B", "┌─┐"),
        ("ab\x1b[3bc", "abbbbc"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]0;title\x1b\\text", "text"),
        ("\x1bP+q544e\x1b\\text", "text"),
        ("\x1b[>4;2m\x1b[?1$p\x1b[!p\x1b[2 q\x1b[=ctext", "text"),
        ("a\tb", "a       b"),
        ("abc\x08\x08X", "aXc"),
        ("abcdef\x1b[1;2H\x1b[2P", "adef"),
        ("abc\x1b[1;2H\x1b[2@", "a  bc"),
    ],
)
def test_a_sequence_does_what_it_does_elsewhere(given_text, shown):
    assert screen(given_text).text == shown


def test_a_title_is_kept_and_not_shown():
    assert screen("\x1b]2;my title\x07").title == "my title"


def test_lines_that_leave_at_the_top_are_in_the_history():
    made = screen("".join(f"line {n}\r\n" for n in range(30)))
    assert made.lines[0] == "line 21"
    assert made.entire() == "\n".join(f"line {n}" for n in range(30))


def test_a_line_longer_than_the_screen_is_whole_again_in_the_history():
    made = screen("x" * 75 + "\r\n", "\r\n" * 12, "end")
    assert made.entire().splitlines()[0] == "x" * 75


def test_leaving_a_full_screen_program_brings_the_shells_screen_back():
    for number in (47, 1047, 1049):
        made = screen("$ vim\r\n", f"\x1b[?{number}h\x1b[2J\x1b[1;1HFILE", "\n" * 50)
        assert made.alternate
        assert "vim" not in made.text
        made.feed(f"\x1b[?{number}l".encode())
        assert not made.alternate
        assert made.text == "$ vim"
        assert made.cursor == (1, 0)
        assert made.entire() == "$ vim"


def test_the_terminal_answers_what_programs_ask():
    made = screen("ab")
    assert made.feed(b"\x1b[6n") == b"\x1b[1;3R"
    assert made.feed(b"\x1b[5n") == b"\x1b[0n"
    assert made.feed(b"\x1b[c") == b"\x1b[?6c"
    assert made.feed(b"\x1b[>c").startswith(b"\x1b[>0;")
    assert made.feed(b"\x1b[18t") == b"\x1b[8;10;20t"


def test_a_title_is_never_typed_back():
    made = screen("\x1b]0;rm -rf /\x07")
    assert made.feed(b"\x1b[21t\x1b[20t") == b""


def test_a_file_full_of_questions_is_answered_within_bounds():
    assert len(screen().feed(b"\x1b[6n" * 10_000)) < 1000


def test_sizes_change_and_rows_that_do_not_fit_go_into_the_history():
    made = screen("".join(f"{n}\r\n" for n in range(9)))
    made.resize(rows=4, cols=30)
    assert made.lines == ["6", "7", "8", ""]
    assert made.entire() == "\n".join(map(str, range(9)))
    assert made.cursor == (3, 0)
    made.resize(rows=10, cols=20)
    made.feed(b"on")
    assert made.text == "6\n7\n8\non"


def test_scrolling_regions_leave_the_rest_alone():
    made = screen("top\r\n", "\x1b[2;4r\x1b[2;1Ha\r\nb\r\nc\r\nd", "\x1b[r\x1b[10;1Hbottom")
    assert made.lines[:4] == ["top", "b", "c", "d"]
    assert made.lines[9] == "bottom"


def test_an_unfinished_string_hides_a_bounded_amount():
    made = screen("\x1b]0;never ended", "y" * 5000, "\n", "after", cols=40)
    assert made.text.strip() == "after"
    made = screen("\x1bP never ended" + "y" * 70_000, "after", cols=40)
    assert "after" in made.text


def test_a_flood_keeps_a_bounded_history_and_counts_what_it_dropped():
    made = screen(history=50)
    for _ in range(20):
        made.feed(b"flood\r\n" * 100)
    assert len(made.entire().splitlines()) <= 60
    assert made.dropped == 2000 - 50 - 9


@settings(max_examples=60)
@given(
    st.lists(st.text("ab ~", max_size=50), min_size=30, max_size=120),
    st.sampled_from(
        [b"", b"x", b"\n" * 40, b"\x1b[2;5r", b"\x1b[?1049h", b"\x1b[?7l", b"\x1b[4h", b"\x1b(0", b"\x1b[20h"]
    ),
    st.sampled_from([7, 100]),
)
def test_many_lines_at_once_are_what_they_are_one_by_one(lines, before, history):
    quick, slow = screen(before, history=history), screen(before, history=history)
    data = "".join(f"{line}\r\n" for line in [*lines, "pad" * 400]).encode()
    quick.feed(data)
    for at in range(0, len(data), 100):
        slow.feed(data[at : at + 100])
    assert (quick.lines, quick.cursor, quick.entire()) == (slow.lines, slow.cursor, slow.entire())
    assert quick.dropped == slow.dropped


def test_accents_without_end_stay_in_one_cell_of_bounded_size():
    assert len(screen("e" + "\u0301" * 10_000).text) < 20


_PIECES = st.one_of(
    st.binary(max_size=60),
    st.text(max_size=20).map(lambda text: text.encode("utf-8", "replace")),
    st.builds(
        lambda prefix, numbers, between, final: f"\x1b[{prefix}{';'.join(numbers)}{between}{final}".encode(),
        st.sampled_from(["", "?", ">", "=", "<"]),
        st.lists(st.sampled_from(["", "0", "1", "2", "3", "5", "6", "7", "25", "47", "1049", "99999999999", "4:3"])),
        st.sampled_from(["", "", "$", "!", " "]),
        st.sampled_from([chr(code) for code in range(0x40, 0x7F)]),
    ),
    st.sampled_from(
        [b"\x1b7", b"\x1b8", b"\x1bM", b"\x1bD", b"\x1bE", b"\x1bc", b"\x1bH", b"\x1b#8", b"\x1b(0", b"\t"]
    ),
    st.sampled_from([b"\r\n", b"\n" * 30, "日本".encode() * 9, b"\x1b]0;x", b"\x1bP", b"\x07", b"\x1b\\"]),
)


@settings(max_examples=200)
@given(st.lists(_PIECES, max_size=40), st.integers(10, 20), st.integers(20, 30))
def test_whatever_is_written_the_screen_stays_a_screen(pieces, rows, cols):
    made = screen(rows=rows, cols=cols)
    for number, piece in enumerate(pieces):
        made.feed(piece)
        if number == 10:
            made.resize(rows=cols - 10, cols=rows + 10)
    assert len(made.lines) == made.rows
    assert 0 <= made.cursor[0] < made.rows
    assert 0 <= made.cursor[1] < made.cols
    assert all(len(line) <= made.cols * 8 for line in made.lines)
    assert made.entire() is not None
    made.feed(b"\x18\x07\x1b\\\x1bc\x1b[2J\x1b[Hstill here")
    assert made.text == "still here"


@settings(max_examples=100)
@given(st.lists(_PIECES, max_size=20), st.randoms(use_true_random=False))
def test_where_the_stream_is_cut_does_not_matter(pieces, random):
    whole = b"".join(pieces)
    cuts = sorted(random.randrange(len(whole) + 1) for _ in range(8))
    parts = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    once, cut = screen(whole), screen(*parts)
    assert (once.lines, once.cursor, once.alternate) == (cut.lines, cut.cursor, cut.alternate)


def test_a_sequence_that_never_ends_keeps_nothing():
    class Sink:
        def __getattr__(self, name):
            return lambda *arguments: None

    parser = EscapeParser(Sink())
    for _ in range(1000):
        parser.feed("\x1b[" + "1;" * 500)
        parser.feed("\x1bP" + "x" * 500)
    held = [value for value in vars(parser).values() if isinstance(value, (str, list))]
    assert sum(len("".join(value)) for value in held) < 10_000
