"""In a list of Python calls, a value declared as a string is the text as it was written, even without quotes."""

from __future__ import annotations

import pytest
from every_cut import read_at_every_cut
from hypothesis import given, settings
from hypothesis import strategies as st
from parser_reading import function_tool, meaning, read, statuses

TEXT = {"type": "string"}
TEXTS = {"type": "array", "items": TEXT}
HOLDER = {"type": "object", "properties": {"zip": TEXT, "n": {"type": "integer"}, "l": TEXTS}}
PAIR = {"type": "array", "prefixItems": [TEXT, {"type": "number"}]}
TOOL = function_tool("now", zip=TEXT, o=HOLDER, l=TEXTS, p=PAIR, n={"type": "integer"})
NULLABLE = function_tool("now", zip={"type": ["string", "null"]}, l={"type": "array", "items": {"$ref": "#/$defs/t"}})
NULLABLE["function"]["parameters"]["$defs"] = {"t": TEXT}
FORMS = {
    "lfm2": "<|tool_call_start|>[now({})]<|tool_call_end|>",
    "pythonic": "[now({})]",
    "llama4_pythonic": "<|python_start|>[now({})]<|python_end|>",
    "olmo3": "<function_calls>now({})</function_calls>",
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize(
    "written",
    ["12345", "007", "1.10", "-0", "1e5", "1e999", "0x10", "1_000", "+49", ".5", "2024-01-02", "True", "false"],
)
def test_a_declared_text_is_the_text_as_it_stands(name, written):
    for text in (f"zip={written}", f"n=1, zip = {written} , l=[]", f"l=[],zip={written}\n"):
        result = read(name, FORMS[name].format(text), TOOL)
        assert (meaning(result)[0][1]["zip"], statuses(result)) == (written, ["ok"])
    for text, place in (
        (f"o={{'zip': {written}, 'n': 3}}", "o"),
        (f"l=[{written}, 'x']", "l"),
        (f"p=[{written},2]", "p"),
    ):
        wanted = {"o": {"zip": written, "n": 3}, "l": [written, "x"], "p": [written, 2]}[place]
        result = read(name, FORMS[name].format(text), TOOL)
        assert (meaning(result), statuses(result)) == ([("now", {place: wanted})], ["ok"])


@pytest.mark.parametrize("name", FORMS)
def test_none_is_nothing_and_brackets_stay_as_they_stand(name):
    assert meaning(read(name, FORMS[name].format("zip=None"), NULLABLE)) == [("now", {"zip": None})]
    assert meaning(read(name, FORMS[name].format("zip=null, l=[1, null]"), NULLABLE)) == [
        ("now", {"zip": None, "l": ["1", None]})
    ]
    result = read(name, FORMS[name].format("zip=[1, 'a'], n=2"), TOOL)
    assert meaning(result) == [("now", {"zip": "[1, 'a']", "n": 2})]
    assert result.attempts[0].reason == "a bracketed value was kept as text, as the schema declares"


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("written", ["n=007", "o={'n': 007}", "p=['a', 012]", "zip=Oslo", "zip=+49 30", "l=[1-]x]"])
def test_what_is_no_literal_and_no_declared_text_is_reported(name, written):
    result = read(name, FORMS[name].format(written), TOOL)
    # The text between the fault and the end of the list may be reported separately.
    assert (result.calls, set(statuses(result))) == ((), {"invalid_json"})


def test_without_a_declaration_a_literal_is_what_it_is():
    for tools in ((), (function_tool("now", zip={"type": "integer"}, l={"type": "array"}),), (function_tool("f"),)):
        result = read("lfm2", FORMS["lfm2"].format("zip=12, l=[1.5, True]"), *tools)
        assert meaning(result) == [("now", {"zip": 12, "l": [1.5, True]})]


def test_a_text_with_loose_quotes_beside_a_declared_text():
    text = FORMS["lfm2"].format("l=['x'], o={'zip': 1}, zip='it's', n=1")
    assert meaning(read("lfm2", text, TOOL)) == [("now", {"l": ["x"], "o": {"zip": "1"}, "zip": "it's", "n": 1})]


KEYS = st.sampled_from(["zip=", "n=", "o={'zip': ", "l=[", "p=('a',", "zip"])
VALUES = st.text("012-+.e_ 'T", max_size=4) | st.sampled_from(["True", "None", "[1", "{'a': 1", "'x'", "007"])
ENDS = st.sampled_from(["", "", "}", "]", ")", "\n"])


@settings(max_examples=200)
@given(
    st.sampled_from(sorted(FORMS)), st.lists(st.builds("{}{}{}".format, KEYS, VALUES, ENDS), max_size=3), st.booleans()
)
def test_any_arguments_stream_as_they_parse(name, members, is_lenient):
    text = FORMS[name].format(", ".join(members))
    read_at_every_cut(name, text, TOOL, mode="lenient" if is_lenient else "strict")
