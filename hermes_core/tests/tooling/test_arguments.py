"""Arguments: decoding, coercion by schema, validation, and the answers to the model."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_core.contracts.errors import BrokenComponentError
from hermes_core.specs import ToolSpec
from hermes_core.tooling.arguments import ArgumentChecker, ArgumentsError, prepare_arguments, unknown_tool_answer
from hermes_tools import TOOLS

TERMINAL = next(spec for spec in TOOLS if spec.name == "terminal")


def spec_of(**properties):
    parameters = {"type": "object", "properties": properties, "additionalProperties": False}
    return ToolSpec(name="thing", summary="s", target="a.b:C", toolset="things", description="d", parameters=parameters)


def prepare_value(schema, value):
    return prepare_arguments(spec_of(x=schema), json.dumps({"x": value}))["x"]


def answer(spec, text):
    with pytest.raises(ArgumentsError) as caught:
        prepare_arguments(spec, text)
    return str(caught.value)


@pytest.mark.parametrize(
    ("schema", "given_value", "expected"),
    [
        ({"type": "integer"}, "42", 42),
        ({"type": "integer"}, " -7 ", -7),
        ({"type": "integer"}, "42.0", 42),
        ({"type": "integer"}, 42.0, 42),
        ({"type": "number"}, "1.5", 1.5),
        ({"type": "number"}, "1e3", 1000.0),
        ({"type": "boolean"}, "true", True),
        ({"type": "boolean"}, "False", False),
        ({"type": "array"}, '["a", 1]', ["a", 1]),
        ({"type": "array", "items": {"type": "string"}}, "a", ["a"]),
        ({"type": "array", "items": {"type": "integer"}}, "5", [5]),
        ({"type": "array", "items": {"type": "integer"}}, 5, [5]),
        ({"type": "array", "items": {"type": "integer"}}, ["1", 2], [1, 2]),
        ({"type": "object"}, '{"a": 1}', {"a": 1}),
        ({"type": "object", "properties": {"n": {"type": "integer"}}}, '{"n": "3"}', {"n": 3}),
        ({"type": ["integer", "null"]}, "null", None),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "null", None),
        ({"anyOf": [{"type": "integer"}, {"type": "boolean"}]}, "true", True),
    ],
)
def test_values_are_brought_to_the_declared_type(schema, given_value, expected):
    result = prepare_value(schema, given_value)
    assert result == expected
    assert type(result) is type(expected)


@given(st.sampled_from(["42", "true", "null", "[1]", '{"a": 1}', " x ", "1.0"]) | st.text(st.characters(codec="utf-8")))
@settings(max_examples=60, deadline=None)
def test_a_declared_string_stays_as_it_was_written(text):
    assert prepare_value({"type": "string"}, text) == text
    assert prepare_value({"type": ["string", "integer", "null"]}, text) == text


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "integer"}, "many"),
        ({"type": "integer"}, "1.5"),
        ({"type": "integer"}, "null"),
        ({"type": "integer"}, True),
        ({"type": "number"}, "1e999"),
        ({"type": "number"}, "nan"),
        ({"type": "integer"}, "9" * 5000),
        ({"type": "boolean"}, "yes"),
        ({"type": "object"}, "[1]"),
        ({"type": "array"}, None),
    ],
)
def test_a_value_that_cannot_be_coerced_is_kept_and_refused(schema, value):
    text = answer(spec_of(x=schema), json.dumps({"x": value}))
    assert "x: expected" in text
    assert ", got " in text


@pytest.mark.parametrize(
    "text",
    ['{"command": "ls"', "{'command': 'ls'}", '{"command": NaN}', "[" * 100_000, '{"command": "a\nb"}', '{"a":1}}'],
)
def test_bad_json_is_answered_with_the_request_to_retry(text):
    said = answer(TERMINAL, text)
    assert said.startswith("Invalid JSON in tool arguments: ")
    assert said.endswith("Please retry with valid JSON.")


def test_half_a_surrogate_pair_is_refused_before_it_reaches_a_tool():
    assert "surrogate" in answer(TERMINAL, '{"command": "\\ud800"}')
    assert prepare_arguments(TERMINAL, '{"command": "\\ud83d\\ude00"}') == {"command": "\U0001f600"}


def test_a_name_given_twice_is_not_decided_silently():
    assert '"command" occurs twice' in answer(TERMINAL, '{"command": "ls", "command": "rm"}')


def test_arguments_encoded_twice_are_unwrapped():
    assert prepare_arguments(TERMINAL, json.dumps(json.dumps({"command": "ls"}))) == {"command": "ls"}


@pytest.mark.parametrize("text", ["[]", '"ls"', "3", "null", "true"])
def test_arguments_that_are_no_object_are_refused(text):
    assert "must be a JSON object" in answer(TERMINAL, text)


def test_no_text_means_no_arguments():
    assert prepare_arguments(spec_of(), "") == {}
    assert "missing argument 'command'" in answer(TERMINAL, "")


@pytest.mark.parametrize(
    ("schema", "value", "said"),
    [
        ({"type": "string", "minLength": 1}, "", 'expected a text that is not empty, got string ""'),
        ({"type": "integer", "minimum": 1}, 0, "expected minimum 1, got integer 0"),
        ({"type": "array", "maxItems": 1}, [1, 2], "expected a value that satisfies maxItems: 1, got array [1, 2]"),
    ],
)
def test_the_answer_says_which_bound_a_value_breaks(schema, value, said):
    spec = spec_of(x=schema)
    assert said in answer(spec, json.dumps({"x": value}))


def test_a_text_that_only_begins_like_a_list_stays_a_text_and_is_refused():
    spec = spec_of(x={"type": "object"})
    assert 'expected object, got string "{a"' in answer(spec, '{"x": "{a"}')


def test_an_unknown_argument_is_answered_with_the_nearest_one():
    said = answer(TERMINAL, '{"command": "ls", "time_out": 3}')
    assert '"time_out"' in said
    assert "did you mean 'timeout'?" in said


def test_the_answer_names_the_path_what_was_found_and_what_is_expected():
    todo = next(spec for spec in TOOLS if spec.name == "todo")
    said = answer(todo, '{"todos": [{"id": "a"}, {"id": "b", "status": "done"}]}')
    assert "todos[1].status" in said
    assert '"done"' in said
    assert '"completed"' in said


def test_a_long_value_is_cut_in_the_answer():
    assert len(answer(spec_of(x={"type": "integer"}), json.dumps({"x": "y" * 10_000}))) < 400


HOSTILE = {
    "a number without end": (spec_of(x={"type": "number"}), {"x": "1" * 400_000 + "x"}, "expected number"),
    "very many values of a wrong type": (
        spec_of(x={"type": "array", "items": {"type": "object"}}),
        {"x": [0] * 200_000},
        "and at least 17 more",
    ),
    "very many unknown names": (spec_of(), {f"n{n}": 0 for n in range(200_000)}, "and at least 17 more"),
}


@pytest.mark.parametrize(("spec", "value", "said"), HOSTILE.values(), ids=HOSTILE)
def test_a_call_can_be_refused_before_its_every_problem_is_known(spec, value, said):
    """Each kept the event loop, and so every rollout, for minutes."""
    refusal = answer(spec, json.dumps(value))
    assert said in refusal
    assert len(refusal) < 1000


def test_a_name_given_twice_among_very_many_is_found_in_one_pass():
    text = "{" + ",".join(f'"n{n}":0' for n in range(200_000)) + ',"n199999":0}'
    assert 'the key "n199999" occurs twice' in answer(spec_of(), text)


def test_a_schema_is_compiled_once_per_spec():
    checker = ArgumentChecker()
    for _ in range(3):
        assert checker.prepare(TERMINAL, '{"command": "ls"}') == {"command": "ls"}
    other = spec_of(command={"type": "integer"})
    assert checker.prepare(other, '{"command": "1"}') == {"command": 1}


@pytest.mark.parametrize("schema", [{"type": "no such type"}, {"$ref": "http://localhost:1/x.json"}, {"$ref": "#/no"}])
def test_a_broken_schema_is_the_plugins_fault_and_nothing_is_fetched(schema):
    with pytest.raises(BrokenComponentError, match="thing"):
        prepare_arguments(spec_of(x=schema), '{"x": 1}')


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda c: st.lists(c) | st.dictionaries(st.text(), c),
        max_leaves=8,
    )
)
@settings(max_examples=80, deadline=None)
def test_any_json_gives_arguments_or_an_answer(value):
    for spec in TOOLS:
        with contextlib.suppress(ArgumentsError):
            assert isinstance(prepare_arguments(spec, json.dumps(value)), dict)


@given(st.text())
@settings(max_examples=80, deadline=None)
def test_any_text_gives_arguments_or_an_answer(text):
    with contextlib.suppress(ArgumentsError):
        assert isinstance(prepare_arguments(TERMINAL, text), dict)


def test_an_unknown_tool_is_answered_with_near_names_and_the_list():
    said = unknown_tool_answer("readfile", ["terminal", "read_file"])
    assert "Did you mean read_file?" in said
    assert "Available tools: terminal, read_file." in said
    assert unknown_tool_answer("x", []) == 'Unknown tool "x". No tools are available.'
