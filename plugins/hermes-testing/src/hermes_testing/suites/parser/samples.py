"""Texts, values and tool lists that every parser must accept."""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping
from typing import Any, Final

from hypothesis import strategies as st

PLAIN: Final = {
    "prose": "The answer is 42.",
    "unicode": "Grüße ✓ 你好 🎉 - fine",
    "lines": "one\n\n  two\n\ttabbed\r\n\nlast\n",
    "json": 'Here is JSON: {"name": 1, "list": [1, 2, {"a": "}"}]} and more.',
    "code": "```python\nprint({'a': 1})\n```\nDone.",
    "html": "a < b and b > c, <b>bold</b>, </i> & [1] [/INST]",
    "spaces": "  leading and trailing  ",
}
HOSTILE: Final = {
    "lone_surrogate": "a \ud800 b \udfff",
    "nul": "a\0b",
    "replacement": b"\xff\xfe caf\xc3\xa9".decode("utf-8", "replace"),
    "only_quotes": '"' * 50,
    "only_backslashes": "\\" * 51,
    "open_braces": "{" * 200,
    "nested_lists": "[" * 5000,
}
TRICKY_TEXTS: Final[dict[str, str]] = {
    "empty": "",
    "braces": "if (a) { b[0] = '}'; } // ]]}",
    "unbalanced": "mkdir test/{a,b [",
    "quotes": 'she said "it\'s" \\ and \\" left',
    "unicode": "你好 🎉 \u2028 é",
    "lone_surrogate": "a \ud83d b",
    "newlines": "one\ntwo\r\n\ttabbed\n",
    "indentation": "def f():\n    return {\n        'a': 1,\n    }\n",
    "tags": "</a><tool></tool>[/x]<|y|>```\n``` <b>",
    "separators": "a; b, c: d = e; [f(x='y')]",
    "json": '{"name": "f", "arguments": {"a": [1, 2]}}',
}
NESTED_VALUES: Final[dict[str, Any]] = {
    "object": {"b": {"c": {"d": "}"}}},
    "list": [[], [[1, "]"]], [{}]],
    "mixture": {"b": [{"c": []}, {}, [[1]], None, True, 1.5, -3, "text"]},
}
SCALARS: Final[dict[str, tuple[Any, Any]]] = {
    "integer": ("integer", -7),
    "big_integer": ("integer", 12345678901234567890123),
    "number": ("number", 1.5),
    "whole_number": ("number", 1.0),
    "true": ("boolean", True),
    "false": ("boolean", False),
    "null": ("null", None),
    "nullable_null": (["integer", "null"], None),
    "nullable_integer": (["integer", "null"], 5),
    "nullable_false": (["boolean", "null"], False),
    "text": ("string", "Paris"),
    "digits_that_are_text": ("string", "03106"),
    "null_that_is_text": ("string", "null"),
    "true_that_is_text": ("string", "true"),
    "number_that_is_text": ("string", "1.0"),
    "json_that_is_text": ("string", '{"a": [1]}'),
    "quoted_text": ("string", '"quoted"'),
    "indented_text": ("string", "  def f():\n\n        return 1\n"),
    "spaces": ("string", "  x  "),
}
"""Name -> the type a schema declares, and a value of it."""
REPAIRS: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "raw_newline": (('"Paris"', '"Par\nis"'),),
    "raw_tab": (('"Paris"', '"Par\tis"'),),
    "trailing_comma": (('"Paris"', '"Paris",'),),
    "single_quotes": (('"Paris"', "'Paris'"),),
    "python_literals": (("true", "True"), ("null", "None")),
}
"""A fault that lenient mode repairs -> replacements in a call's JSON that produce it."""
RENDERED: Final[dict[str, dict[str, Any]]] = {
    "true": {"value": True},
    "false": {"value": False},
    "nothing": {"value": None},
    "words": {"a": "true", "b": "True", "c": "null", "d": "None", "e": "false"},
    "numbers": {"a": 0, "b": -1, "c": 1.0, "d": 1e5, "e": 1e-7, "f": 1e16, "g": 10**20, "h": -0.5},
    "texts_like_numbers": {"a": "1e5", "b": "007", "c": "1.0", "d": "12345", "e": "-0", "f": "1e999", "g": "NaN"},
    "texts_like_json": {"a": "[1]", "b": '{"a": 1}', "c": '"x"'},
    "nested": {"value": {"a": [True, None, 1.5, {"b": "007"}], "c": "true"}},
    "list": {"value": [True, False, None, "None", "1", 1]},
    "empty": {"a": "", "b": [], "c": {}},
    "quotes": {"value": "a \"b\" 'c' \\ `d`", "list": ["it's", 'say "x"', "\\'"]},
    "lines": {"value": "one\n\ttwo\n", "list": ["a\nb"]},
}
"""Arguments that a message may contain and that must read back, with their tools."""
BLOCK_TEXTS: Final[dict[str, str]] = {
    "nothing": "",
    "spaces": " \n\t ",
    "word": "now",
    "prose": "I would call it here, but I do not know how.",
    "lines": "\nfirst\n\n  second\n",
    "number": "5",
    "null": "null",
    "string": '"now"',
    "list": "[1, 2]",
    "list_of_nothing": "[]",
    "object": '{"a": 1}',
    "object_of_nothing": "{}",
    "nameless": '{"name": "", "arguments": {}}',
    "call_in_a_list": '[{"name": "now", "arguments": {}}]',
    "call_without_quotes": "{name: now, arguments: {}}",
    "call_in_parentheses": "call:now(a=1)",
    "python": "now(a=1",
    "assignment": "x = [1, {'a': 2}]",
    "markup": "<now><a>1</a></now>",
    "quote": '"',
    "backslash": "\\",
    "braces": "}{",
    "brackets": "][",
    "unicode": "Grüße 你好 🎉",
}
"""Possible texts between the marks of a block."""
UNWRITABLE: Final[list[Any]] = [
    "not json",
    "[1]",
    "3",
    '{"a": NaN}',
    '{"a": ',
    '{"a": 1e999}',
    '{"a": [{"b": -1e999}]}',
    '{"a": -Infinity}',
    {"a": float("inf")},
    {"a": [float("nan")]},
    {"a": {"b": float("-inf")}},
]
STRANGE_TOOLS: Final[dict[str, list[Any]]] = {
    "none": [],
    "nothing_in_it": [{}],
    "no_function": [{"type": "function"}, {"type": "function", "function": None}],
    "no_mapping": [3, None, "get_weather", ["get_weather"]],
    "no_name": [{"type": "function", "function": {"name": 3}}, {"function": {"name": ["get_weather"]}}],
    "no_parameters": [{"function": {"name": "get_weather", "parameters": 3}}],
    "no_properties": [{"function": {"name": "get_weather", "parameters": {"properties": ["city"]}}}],
    "no_schema": [{"function": {"name": "get_weather", "parameters": {"properties": {"city": 3, "days": None}}}}],
    "odd_types": [
        {
            "function": {
                "name": "get_weather",
                "parameters": {"properties": {"city": {"type": 7}, "days": {"type": ["no", {}], "anyOf": 1}}},
            }
        }
    ],
    "in_a_circle": [
        {
            "function": {
                "name": "get_weather",
                "parameters": {"$ref": "#", "properties": {"city": {"$ref": "#/properties/city"}, "days": {"$ref": 1}}},
            }
        }
    ],
}

_scalars: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20)
)
_values = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
_NAMES: Final = st.text(string.ascii_lowercase, min_size=2, max_size=8)


def objects(lacks: Mapping[str, str]) -> st.SearchStrategy[dict[str, Any]]:
    """Return the argument objects that a format without these capabilities can write."""
    names = _NAMES if "any_names" in lacks else st.text(min_size=1, max_size=8)
    return st.dictionaries(names, _scalars if "nested_values" in lacks else _values, max_size=3)


def schemas_of(calls: Iterable[tuple[str, Mapping[str, Any]]]) -> list[Mapping[str, Any]]:
    """Return the tools that declare these arguments with their types."""
    properties: dict[str, dict[str, Any]] = {}
    for name, arguments in calls:
        declared = properties.setdefault(name, {})
        declared.update({key: {"type": _type_of(value)} for key, value in arguments.items()})
    return [schema(name, declared) for name, declared in properties.items()]


def whole_schemas_of(calls: Iterable[tuple[str, Mapping[str, Any]]]) -> list[Mapping[str, Any]]:
    """Return the tools that declare these arguments with the types of all their members."""
    return [schema(name, {key: _schema_of(value) for key, value in arguments.items()}) for name, arguments in calls]


def _schema_of(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return {"type": "object", "properties": {key: _schema_of(member) for key, member in value.items()}}
    if isinstance(value, list):
        return {"type": "array", "prefixItems": [_schema_of(item) for item in value]}
    return {"type": _type_of(value)}


def schema(name: str, properties: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
    """Return a tool's schema in the form OpenAI gave it."""
    parameters = {"type": "object", "properties": dict(properties or {})}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def _type_of(value: Any) -> str:
    # A bool is an int in Python but not in JSON, so it comes first.
    types = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return next((name for kind, name in types.items() if isinstance(value, kind)), "null")
