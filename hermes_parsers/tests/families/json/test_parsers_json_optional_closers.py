"""Formats without a closing mark still accept one, since models know it from other formats."""

from __future__ import annotations

import pytest
from every_cut import read_at_every_cut
from hypothesis import given
from hypothesis import strategies as st
from parser_reading import meaning, read, statuses

CALL = '{"name": "now", "arguments": {"a": "x"}}'
MARKS = [
    ("granite", "<tool_call>", "</tool_call>"),
    ("granite", "<|tool_call|>", "</tool_call>"),
    ("granite-20b-fc", "<function_call>", "</function_call>"),
]


@pytest.mark.parametrize(("name", "opener", "closer"), MARKS)
@pytest.mark.parametrize("body", ["now", "", "[1,2]", "[]", " now(a=1)\n", "null", "say it"])
def test_a_closed_block_that_is_no_call_is_reported(name, opener, closer, body):
    for before in ("", "Hi.", "<think>\nink\n</think>\n\n", f"{opener}[{CALL}]{closer}"):
        result = read_at_every_cut(name, f"{before}{opener}{body}{closer}")
        assert statuses(result)[-1] == "invalid_json"
        assert (result.content, len(result.calls)) == ("Hi." if before == "Hi." else None, CALL in before)


@pytest.mark.parametrize(("name", "opener", "closer"), MARKS)
@pytest.mark.parametrize("gap", ["", "\n", " \n"])
def test_the_mark_behind_a_call_is_no_content(name, opener, closer, gap):
    for body, count in ((f"[{CALL}]", 1), (CALL, 1), (f"[{CALL}, {CALL}]", 2)):
        block = f"{opener}{body}{gap}{closer}"
        for text, content, times in ((block, None, 1), (f"{block}{gap}{block}", None, 2), (f"{block}Bye.", "Bye.", 1)):
            result = read_at_every_cut(name, text)
            assert meaning(result) == [("now", {"a": "x"})] * count * times
            assert (result.content, set(statuses(result))) == (content, {"ok"})
        assert set(statuses(read(name, f"{opener}{body}"))) == {"ok"}


@given(
    st.sampled_from(MARKS),
    st.lists(st.sampled_from([*"[]{}, \n", "now", CALL, "</tool_call>", "</function_call>", '"name"']), max_size=6),
)
def test_any_body_streams_as_it_parses(marks, pieces):
    name, opener, closer = marks
    read_at_every_cut(name, f"{opener}{''.join(pieces)}{closer}")
