"""Gemma writes values without quotes; values declared as strings are read the same however they arrive."""

from __future__ import annotations

import pytest
from every_cut import read_at_every_cut
from hypothesis import given, settings
from hypothesis import strategies as st
from parser_reading import function_tool, meaning, statuses

TEXT = {"type": "string"}
TEXTS = {"type": "array", "items": TEXT}
HOLDER = {"type": "object", "properties": {"zip": TEXT, "n": {"type": "integer"}, "l": TEXTS}}
TOOL = function_tool("now", zip=TEXT, o=HOLDER, l=TEXTS, n={"type": "integer"})
FORMS = {
    "gemma4": "<|tool_call>call:now{}<tool_call|>",
    "functiongemma": "<start_function_call>call:now{}<end_function_call>",
}


def read_object(name, written, *tools):
    before, after = FORMS[name].split("{}")
    return read_at_every_cut(name, f"{before}{written}{after}", *tools)


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize(
    ("written", "arguments"),
    [
        ("{zip:12-34}", {"zip": "12-34"}),
        ("{zip:+49 30}", {"zip": "+49 30"}),
        ("{zip:New York}", {"zip": "New York"}),
        ("{zip:1e}", {"zip": "1e"}),
        ("{zip:12345\n}", {"zip": "12345"}),
        ("{zip:\n12345\n,\nn:3\n}", {"zip": "12345", "n": 3}),
        ("{o:{zip:12}}", {"o": {"zip": "12"}}),
        ("{o:{zip:012,n:7}}", {"o": {"zip": "012", "n": 7}}),
        ("{o:{zip:New York,l:[1,02]}}", {"o": {"zip": "New York", "l": ["1", "02"]}}),
        ("{l:[1,2]}", {"l": ["1", "2"]}),
        ("{l:[1.10,true,x y]}", {"l": ["1.10", "true", "x y"]}),
        ("{l:[]}", {"l": []}),
        ('{l:[<|"|>a<|"|>,1]}', {"l": ["a", "1"]}),
        ("{zip:[1]}", {"zip": "[1]"}),
        ("{zip:{a:1}}", {"zip": "{a:1}"}),
        ("(zip=12-34)", {"zip": "12-34"}),
        ("(o={zip:12},l=[1])", {"o": {"zip": "12"}, "l": ["1"]}),
    ],
)
def test_a_declared_text_is_read_alike_wherever_it_stands(name, written, arguments):
    if name == "functiongemma":
        written = written.replace('<|"|>', "<escape>")
    result = read_object(name, written, TOOL)
    assert meaning(result) == [("now", arguments)]
    assert statuses(result) == ["ok"]


@pytest.mark.parametrize("written", ["{zip:New York, NY}", "{zip:12:30}", "{zip:it's}", "{o:{zip:a:b}}", "{zip:}"])
def test_a_text_whose_end_is_in_doubt_is_reported(written):
    result = read_object("gemma4", written, TOOL)
    assert (meaning(result), statuses(result)) == ([], ["invalid_json"])


def test_a_list_for_a_declared_text_is_noted():
    [attempt] = read_object("gemma4", '{zip:[<|"|>a<|"|>,1]}', TOOL).attempts
    assert attempt.arguments == r'{"zip": "[\"a\",1]"}'
    assert attempt.reason == "the tool declares zip as a string: a bracketed value was kept as text"


def test_without_a_declaration_values_are_what_they_look_like():
    assert meaning(read_object("gemma4", "{l:[1,2],o:{zip:12}}")) == [("now", {"l": [1, 2], "o": {"zip": 12}})]


KEYS = st.sampled_from(["zip:", "n:", "o:{zip:", "l:[", "", "zip"])
VALUES = st.text('12-+. eN\n"<}', max_size=4) | st.sampled_from(["New York", "null", '<|"|>a', "[1", "{a:1"])
ENDS = st.sampled_from(["", "", "}", "]", ",", "\n"])


@settings(max_examples=300)
@given(st.lists(st.builds("{}{}{}".format, KEYS, VALUES, ENDS), max_size=3), st.sampled_from("{("), st.booleans())
def test_any_text_without_quotes_streams_as_it_parses(members, opening, is_lenient):
    text = f"<|tool_call>call:now{opening}{','.join(members)}}}<tool_call|>"
    read_at_every_cut("gemma4", text, TOOL, mode="lenient" if is_lenient else "strict")
