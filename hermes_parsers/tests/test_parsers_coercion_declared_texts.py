"""In a parameter with JSON text, numbers are strings where the schema declares strings."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parser_reading import dsml as write_dsml
from parser_reading import function_tool, glm45, meaning, minimax_m2, qwen3_coder, read, statuses

from hermes_parsers.coercion import coerce_json, coerce_text

TEXT = {"type": "string"}
TEXTS = {"type": "array", "items": TEXT}
HOLDER = {"type": "object", "properties": {"zip": TEXT, "n": {"type": "integer"}, "l": TEXTS}}
TOOL = function_tool("now", l=TEXTS, o=HOLDER)
WRITERS = {
    "glm45": lambda **values: glm45("now", **values),
    "qwen3_coder": lambda **values: qwen3_coder("now", **values),
    "minimax_m2": lambda **values: minimax_m2("now", **values),
    "deepseek_v32": lambda **values: write_dsml("now", *[(key, False, text) for key, text in values.items()]),
}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("[1,2]", ["1", "2"]),
        ('[3.10, "3.9", true]', ["3.10", "3.9", "true"]),
        ("[007]", ["007"]),
        ("[1, null]", ["1", None]),
        (r'["a\/b", 1]', ["a/b", "1"]),
        ("[]", []),
    ],
)
def test_an_array_of_strings_holds_texts(name, written, value):
    result = read(name, WRITERS[name](l=written), TOOL)
    assert (meaning(result), statuses(result)) == ([("now", {"l": value})], ["ok"])


@pytest.mark.parametrize("name", WRITERS)
def test_a_member_that_is_declared_to_be_a_text_is_one_at_any_depth(name):
    result = read(name, WRITERS[name](o='{"zip": 012, "n": "5", "l": [1.50]}'), TOOL)
    assert meaning(result) == [("now", {"o": {"zip": "012", "n": 5, "l": ["1.50"]}})]
    result = read(name, WRITERS[name](o='{"zip": 12, "n": 5, "l": [1.50]}'), TOOL)
    assert meaning(result) == [("now", {"o": {"zip": "12", "n": 5, "l": ["1.50"]}})]


def test_what_may_be_a_number_stays_one():
    for items in ({"type": ["string", "integer"]}, {"type": "integer"}, {}, True):
        assert coerce_text("[1]", {"type": "array", "items": items}) == ([1], "")
    assert coerce_text("[[1], {}]", TEXTS) == ([[1], {}], "")


@given(st.lists(st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.booleans() | st.text()))
def test_the_texts_are_what_was_written(values):
    written = [json.dumps(value) for value in values]
    wanted = [value if isinstance(value, str) else text for value, text in zip(values, written, strict=True)]
    for coerce in (coerce_text, coerce_json):
        assert coerce(f"[{', '.join(written)}]", TEXTS)[0] == wanted
