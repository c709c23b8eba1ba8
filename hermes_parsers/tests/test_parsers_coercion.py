from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_parsers.coercion import coerce_text, coerce_value
from hermes_parsers.schemas import known_names, parameter_schemas
from hermes_parsers.writing import dumps
from hermes_testing.suites.parser.growth import DOUBLING, FOLD, time_growth

INTEGER = {"type": "integer"}
NUMBER = {"type": "number"}
BOOLEAN = {"type": "boolean"}
STRING = {"type": "string"}
OBJECT = {"type": "object"}
ARRAY = {"type": "array"}


def types(*names):
    return {"type": list(names)}


FITTING = [
    # A declared string is verbatim, indentation and all (hermes-agent; sglang PR 13411: a zip is a string).
    ("    def f():\n        return 1\n", STRING, "    def f():\n        return 1\n"),
    ("03106", STRING, "03106"),
    ("123", STRING, "123"),
    ("True", STRING, "True"),
    ('{"a": 1}', STRING, '{"a": 1}'),
    # vllm#39567: the words for null are legal strings.
    ("null", STRING, "null"),
    ("none", STRING, "none"),
    ("nil", STRING, "nil"),
    ("None", {"enum": ["None", "Some"]}, "None"),
    ("7", {"const": "7"}, "7"),
    ("7", {"type": ["integer", "string"], "enum": ["7", 8]}, "7"),
    # Without a type: the text.
    ("5", None, "5"),
    ("5", {}, "5"),
    ("5", {"description": "anything"}, "5"),
    ("5", {"type": "file"}, "5"),
    # vllm#38885: the templates themselves write Python's words.
    ("None", types("string", "null"), None),
    ("null", types("null", "string"), None),
    ("nil", types("string", "null"), "nil"),
    ("NONE", types("string", "null"), "NONE"),
    ("NULL", types("integer", "null"), None),
    ("None", {"anyOf": [INTEGER, {"type": "null"}]}, None),
    ("null", {"type": "integer", "nullable": True}, None),
    ("5", INTEGER, 5),
    ("-5", INTEGER, -5),
    ("\n5 ", INTEGER, 5),
    ("0", INTEGER, 0),
    ("123456789012345678901234567890", INTEGER, 123456789012345678901234567890),
    ("1.0", INTEGER, 1),
    ("1e3", INTEGER, 1000),
    ("1", NUMBER, 1),
    ("1.0", NUMBER, 1.0),
    ("1e3", NUMBER, 1000.0),
    ("-0.5", NUMBER, -0.5),
    ("true", BOOLEAN, True),
    ("False", BOOLEAN, False),
    ("TRUE", BOOLEAN, True),
    ('{"a": [1, {"b": null}]}', OBJECT, {"a": [1, {"b": None}]}),
    ("[]", ARRAY, []),
    # The order: null, integer, number, boolean, object, array, string.
    ("5", types("string", "integer"), 5),
    ("5", types("number", "integer"), 5),
    ("5.5", types("integer", "number"), 5.5),
    ("true", types("string", "boolean"), True),
    ("[1]", types("string", "array"), [1]),
    ("five", types("integer", "string"), "five"),
    ("1", types("boolean", "string"), "1"),
    ("{'a': 1}", types("object", "string"), "{'a': 1}"),
    ("5", {"enum": [1, 5]}, 5),
    ("auto", {"enum": [1, "auto"]}, "auto"),
    ("5", {"oneOf": [STRING, {"allOf": [INTEGER]}]}, 5),
    ("5", {"type": "string", "anyOf": [INTEGER]}, "5"),
    ('{"a": 1}', {"properties": {"a": INTEGER}}, {"a": 1}),
    ("plain", {"properties": {"a": INTEGER}}, "plain"),
    ("5", {"$ref": "#/$defs/count", "$defs": {"count": INTEGER}}, 5),
    ("5", {"$ref": "#/$defs/a~1b", "$defs": {"a/b": INTEGER}}, 5),
    # Aliases from signatures.
    ("5", {"type": "int"}, 5),
    ("5", {"type": "str"}, "5"),
    ("5.5", {"type": "Float"}, 5.5),
    ("true", {"type": "bool"}, True),
    ('{"a": 1}', {"type": "dict"}, {"a": 1}),
    ('["a"]', {"type": "List[str]"}, ["a"]),
]


@pytest.mark.parametrize(("text", "schema", "value"), FITTING)
def test_a_text_becomes_what_its_schema_says(text, schema, value):
    found, note = coerce_text(text, schema)
    assert (found, type(found), note) == (value, type(value), "")


NOT_FITTING = [
    ("abc", INTEGER),
    ("", INTEGER),
    ("03106", INTEGER),
    ("0755", INTEGER),
    ("1.5", INTEGER),
    ("0.99999999999999999999", INTEGER),
    ("9" * 5000, INTEGER),
    ("1_000", INTEGER),
    ("٣", INTEGER),
    ("NaN", NUMBER),
    ("Infinity", NUMBER),
    ("-inf", NUMBER),
    ("1e999", NUMBER),
    (".", NUMBER),
    ("1,5", NUMBER),
    # sglang PR 15135: a bad boolean is not false, and `"false"` must not come out truthy as if it fitted.
    ("yes", BOOLEAN),
    ('"false"', BOOLEAN),
    ("maybe", types("boolean", "null")),
    ("[1]", OBJECT),
    ('{"a": NaN}', OBJECT),
    ('{"a": 1e999}', OBJECT),
    ('{"a": 1', OBJECT),
    ("{[1]: 2}", OBJECT),
    ("{'a': open('x')}", OBJECT),
    ("['a' 'b']", ARRAY),
    ("1,2", ARRAY),
    ("[" * 5000 + "]" * 5000, ARRAY),
    ("[" * 400 + "]" * 400, ARRAY),
    ("['" + "\\x4", ARRAY),
]


@pytest.mark.parametrize(("text", "schema"), NOT_FITTING)
def test_what_fits_nothing_stays_the_text_and_is_noted(text, schema):
    value, note = coerce_text(text, schema)
    assert value == text
    assert "kept as a string" in note
    assert len(note) < 200


LOOSE = [
    ("1", BOOLEAN, True),
    ("0", BOOLEAN, False),
    ("+5", INTEGER, 5),
    (".5", NUMBER, 0.5),
    ("5.", NUMBER, 5.0),
    ("{'a': True, 'b': None, 'c': (1, 2), 'd': 'it\\'s',}", OBJECT, {"a": True, "b": None, "c": [1, 2], "d": "it's"}),
    (r"['\x41\u00e9\n\d', " + '"q"]', ARRAY, ["Aé\n\\d", "q"]),
    ('{"n": "5"}', {"type": "object", "properties": {"n": INTEGER}}, {"n": 5}),
    ('["5", "x"]', {"type": "array", "items": INTEGER}, [5, "x"]),
]


@pytest.mark.parametrize(("text", "schema", "value"), LOOSE)
def test_a_loose_reading_is_noted(text, schema, value):
    found, note = coerce_text(text, schema)
    assert found == value
    assert note


def test_strings_inside_values_follow_the_schema_of_their_place():
    schema = {
        "type": "object",
        "properties": {"zip": STRING, "days": {"anyOf": [INTEGER, {"type": "null"}]}, "tree": {"$ref": "#/$defs/tree"}},
        "$defs": {"tree": {"type": "object", "properties": {"n": INTEGER, "next": {"$ref": "#/$defs/tree"}}}},
    }
    text = '{"zip": "03106", "days": "null", "tree": {"n": "1", "next": {"n": "2"}}, "other": "3"}'
    value, note = coerce_text(text, schema)
    assert value == {"zip": "03106", "days": None, "tree": {"n": 1, "next": {"n": 2}}, "other": "3"}
    assert "tree.next.n" in note


def test_a_number_where_a_string_is_declared_stays_what_the_model_wrote():
    assert coerce_value({"zip": 3106}, {"properties": {"zip": STRING}}) == ({"zip": 3106}, "")


@pytest.mark.parametrize(("text", "value"), [("5", 5), ('"5"', "5"), ("null", None), ('{"a": [1]}', {"a": [1]})])
def test_what_the_wire_calls_json_needs_no_schema(text, value):
    assert coerce_text(text, None, declared="json") == (value, "")


def test_what_the_wire_calls_json_and_is_not_is_read_by_the_schema_or_kept():
    assert coerce_text("True", BOOLEAN, declared="json") == (True, "")
    value, note = coerce_text("hello there", None, declared="json")
    assert (value, bool(note)) == ("hello there", True)


def test_what_the_wire_calls_text_is_final():
    assert coerce_text("5", INTEGER, declared="text") == ("5", "")


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "enum", "const", "anyOf", "allOf", "$ref", "properties", "items", "nullable", "$defs"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
texts = st.text(max_size=30) | st.sampled_from(
    [text for text, *_ in FITTING + LOOSE] + [text for text, _ in NOT_FITTING]
)


@settings(max_examples=300, deadline=None)
@given(text=texts, schema=junk, declared=st.sampled_from([None, "json", "text"]))
def test_no_schema_makes_it_raise_and_every_value_can_be_written(text, schema, declared):
    value, note = coerce_text(text, schema, declared=declared)
    assert isinstance(note, str)
    assert json.loads(dumps({"v": value})) == {"v": value}


@settings(max_examples=100, deadline=None)
@given(text=st.text(), schema=st.sampled_from([STRING, None, {}, {"type": "str"}, {"enum": ["a"]}]))
def test_a_string_is_the_text_whatever_it_is(text, schema):
    assert coerce_text(text, schema) == (text, "")


@settings(max_examples=200, deadline=None)
@given(value=st.integers() | st.booleans() | st.lists(st.text(max_size=5) | st.integers(), max_size=4))
def test_a_value_written_as_json_or_as_python_comes_back(value):
    kind = {"type": {int: "integer", bool: "boolean", list: "array"}[type(value)]}
    assert coerce_text(json.dumps(value), kind)[0] == value
    assert coerce_text(str(value), kind)[0] == value


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}}},
        {"$ref": "https://example.org/schema.json"},
        {"$ref": "#/$defs/absent"},
        {"anyOf": [{"anyOf": [{}] * 500}] * 500},
    ],
)
def test_references_that_lead_nowhere_say_nothing(schema):
    assert coerce_text("5", schema) == ("5", "")


def test_a_schema_that_contains_itself_ends():
    schema: dict = {"type": "object", "properties": {}}
    schema["properties"]["again"] = schema
    schema["anyOf"] = [schema]
    value = {"again": {"again": {"again": "x"}}}
    assert coerce_text(json.dumps(value), schema)[0] == value


@pytest.mark.parametrize("unit", ["'\\n", "['a',", "\\", "{'a':(", "1", '"', "[1,"])
def test_a_megabyte_that_is_no_literal_is_refused_in_linear_time(unit):
    short, long = ("[" + unit * (size // len(unit)) for size in (1_000_000 // FOLD, 1_000_000))
    assert coerce_text(long, ARRAY)[0] == long
    assert time_growth(lambda text: coerce_text(text, ARRAY), short, long) <= DOUBLING**3


def entry(name, properties=None, **more):
    return {
        "type": "function",
        "function": {"name": name, "parameters": {"type": "object", "properties": properties or {}, **more}},
    }


def test_a_tool_s_parameters_are_found_by_name():
    tools = [entry("a", {"x": INTEGER}), {"name": "b", "parameters": {"properties": {"y": STRING}}}]
    assert parameter_schemas(tools, "a") == {"x": INTEGER}
    assert parameter_schemas(tools, "b") == {"y": STRING}
    assert parameter_schemas(tools, "c") is None
    assert known_names(tools) == {"a", "b"}


def test_a_parameter_s_schema_resolves_references_into_the_tool_s_definitions():
    tools = [entry("a", {"x": {"$ref": "#/$defs/count"}}, **{"$defs": {"count": INTEGER}})]
    schemas = parameter_schemas(tools, "a")
    assert schemas is not None
    assert coerce_text("5", schemas["x"]) == (5, "")


MALFORMED = [None, [], {}, "tools", 5, [None, 1, "x"], [{}], [{"function": None}], [{"function": {"name": 3}}], b"x"]


@pytest.mark.parametrize("tools", MALFORMED)
def test_a_malformed_tool_list_knows_nothing_and_does_not_raise(tools):
    assert (known_names(tools), parameter_schemas(tools, "f")) == (None, None)


@pytest.mark.parametrize("parameters", [None, [], "x", 5, {}, {"properties": []}, {"properties": None, "$defs": 3}])
def test_malformed_parameters_declare_nothing(parameters):
    assert parameter_schemas([{"function": {"name": "f", "parameters": parameters}}], "f") == {}


def test_json_is_written_unescaped_unless_it_could_not_be_encoded():
    assert dumps({"grüße": "你好", "t": "</b>"}) == '{"grüße": "你好", "t": "</b>"}'
    assert dumps({"x": "\ud800ü"}) == '{"x": "\\ud800\\u00fc"}'


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text() | st.integers(), inner, max_size=20),
)


@settings(max_examples=200, deadline=None)
@given(value=values)
def test_json_is_what_the_standard_library_writes(value):
    unescaped = json.dumps(value, ensure_ascii=False)
    is_encodable = all(not "\ud800" <= char <= "\udfff" for char in unescaped)
    assert dumps(value) == (unescaped if is_encodable else json.dumps(value))


@pytest.mark.parametrize("value", [math.nan, math.inf, {"a": -math.inf}])
def test_what_json_has_no_word_for_is_not_written(value):
    with pytest.raises(ValueError, match=r"\w"):
        dumps(value)


def test_a_value_too_deep_to_be_written_is_refused_by_name():
    value: list = []
    for _ in range(100_000):
        value = [value]
    try:
        with pytest.raises(ValueError, match="deep"):
            dumps(value)
    finally:
        while value:
            value = value.pop()
