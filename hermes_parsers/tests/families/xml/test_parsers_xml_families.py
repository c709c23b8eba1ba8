"""Special cases of single families with tagged arguments."""

from __future__ import annotations

import json

import pytest
from parser_reading import function_tool, read, statuses

from hermes_parsers import get_parser

TEXT, INTEGER = {"type": "string"}, {"type": "integer"}
ARRAY, OBJECT = {"type": "array"}, {"type": "object"}
M3 = "]<]minimax[>["


def calls(result):
    return [(call.name, json.loads(call.arguments)) for call in result.calls]


def m3(body):
    tagged = body.replace("<", f"{M3}<")
    return f'{M3}<tool_call>\n{M3}<invoke name="f">{tagged}{M3}</invoke>\n{M3}</tool_call>'


def k3(name, key, value="x"):
    argument = f'<|open|>argument key="{key}" type="string"<|sep|>{value}<|close|>argument<|sep|>'
    call = f'<|open|>call tool="{name}" index="1"<|sep|>{argument}<|close|>call<|sep|>'
    return f"<|open|>tools<|sep|>{call}<|close|>tools<|sep|>"


def atem(name):
    return f'<atem:function_calls>\n<atem:invoke name="{name}">\n</atem:invoke>\n</atem:function_calls>'


def test_dots_calls_are_read_as_tags_and_as_json_and_written_as_tags():
    invoke = '<invoke name={q}search{q}>\n<parameter name={q}query{q}>a "b" <c></parameter>\n</invoke>\n'
    wanted = ("search", {"query": 'a "b" <c>'})
    for quote in ('"', "'", ""):
        text = f"<dots_function_call>\n{invoke.replace('{q}', quote) * 2}</dots_function_call>"
        assert calls(read("dots", text)) == [wanted, wanted]
    body = json.dumps({"name": wanted[0], "arguments": wanted[1]})
    assert calls(read("dots", f"Hm.\n<dots_function_call>\n{body}\n</dots_function_call>")) == [wanted]
    call = {"function": {"name": "search", "arguments": {"query": wanted[1]["query"], "count": 3}}}
    assert get_parser("dots").render({"content": None, "tool_calls": [call]}) == (
        '<dots_function_call>\n<invoke name="search">\n<parameter name="query">a "b" <c></parameter>\n'
        '<parameter name="count">3</parameter>\n</invoke>\n</dots_function_call>'
    )


@pytest.mark.parametrize("blank", ["", "\n", "  "])
def test_an_empty_minimax_m3_element_is_what_its_schema_says(blank):
    inner = {"type": "object", "properties": {"x": ARRAY, "y": OBJECT, "z": TEXT}}
    kinds = {"a": ARRAY, "b": OBJECT, "c": TEXT, "d": inner, "e": {"anyOf": [ARRAY, {"type": "null"}]}}
    nested = f"<x>{blank}</x><y>{blank}</y><z>{blank}</z>"
    body = f"<a>{blank}</a><b>{blank}</b><c>{blank}</c><d>{nested}</d><e>{blank}</e><g>{blank}</g>"
    kinds["f"] = {"type": "array", "items": ARRAY}
    result = read(
        "minimax_m3", m3(f"{body}<f><item>{blank}</item><item><item>1</item></item></f>"), function_tool("f", **kinds)
    )
    wanted = {"a": [], "b": {}, "c": blank, "d": {"x": [], "y": {}, "z": blank}, "e": [], "g": blank, "f": [[], ["1"]]}
    assert calls(result) == [("f", wanted)]
    assert result.attempts[0].reason == ""


def test_no_value_of_minimax_m3_holds_the_token_of_its_tags():
    schemas = {"a": TEXT, "b": ARRAY, "c": {"type": ["string", "null"]}}
    bodies = {
        "<a><item>1</item></a>": {"a": "<item>1</item>"},
        "<a>keep <x>1</x> me</a>": {"a": "keep <x>1</x> me"},
        "<a>x <y>1</a>": {"a": "x <y>1"},
        "<c><x>1</x></c>": {"c": "<x>1</x>"},
        "<z>keep <x>1</x> me</z>": {"z": "keep <x>1</x> me"},
        "<b><item>one <x>1</x> more</item></b>": {"b": ["one <x>1</x> more"]},
    }
    for body, wanted in bodies.items():
        result = read("minimax_m3", m3(body), function_tool("f", **schemas))
        assert (calls(result), statuses(result)) == ([("f", wanted)], ["ok"]), body
        assert "token" in result.attempts[0].reason, body


def test_names_of_kimi_k3_are_read_and_written_without_the_escapes_of_an_attribute():
    for name, written in {
        "f<g>": "f<g>",
        "f&g": "f&amp;g",
        'say "f"': "say &quot;f&quot;",
        "f&quot;": "f&amp;quot;",
        "a<|b|>": "a<|b|>",
        "x > y": "x > y",
    }.items():
        text = k3(written, written, "x&amp;y")
        result = read("kimi_k3", text, function_tool(name, **{name: TEXT}))
        assert (calls(result), statuses(result)) == ([(name, {name: "x&amp;y"})], ["ok"]), name
        call = {"function": {"name": name, "arguments": {name: "x&amp;y"}}}
        assert get_parser("kimi_k3").render({"content": None, "tool_calls": [call]}) == text, name


@pytest.mark.parametrize(
    ("written", "tools", "name", "status"),
    [
        ("weather.get", ["weather.get", "get"], "weather.get", "ok"),
        ("weather.get", ["get"], "get", "ok"),
        ("get.get", ["get"], "get", "ok"),
        ("get", ["weather.get"], "weather.get", "ok"),
        ("get", ["weather.get", "time.get"], "get", "unknown_tool"),
        ("other.get", ["weather.get", "time.get"], "other.get", "unknown_tool"),
        ("weather.", ["get"], "weather.", "unknown_tool"),
        ("weather.get", [], "weather.get", "ok"),
    ],
)
def test_a_namespace_before_a_name_of_muse_is_left_out_where_one_tool_is_meant(written, tools, name, status):
    result = read("muse", atem(written), *[function_tool(tool) for tool in tools])
    assert ([call.name for call in result.calls], statuses(result)) == ([name], [status])
