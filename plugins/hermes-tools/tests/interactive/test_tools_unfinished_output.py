"""How much of a piece of output is held back until its rest arrives."""

from __future__ import annotations

import pytest

from hermes_tools.unfinished_output import count_unfinished_bytes


@pytest.mark.parametrize("whole", ["\x1b[1;31m", "\x1b]0;title\x07", "\x1b(B", "é", "日", "🙂"])
def test_an_unfinished_sequence_is_counted_from_its_first_byte(whole: str) -> None:
    data = whole.encode()
    assert count_unfinished_bytes(b"text" + data) == 0
    for length in range(1, len(data)):
        assert count_unfinished_bytes(b"text" + data[:length]) == length


def test_bytes_that_begin_no_sequence_are_not_held_back() -> None:
    assert count_unfinished_bytes(b"") == 0
    assert count_unfinished_bytes(b"text") == 0
    assert count_unfinished_bytes(b"\x80\x80\x80\x80") == 0
    assert count_unfinished_bytes(b"\x1b]" + b"x" * 300) == 0
