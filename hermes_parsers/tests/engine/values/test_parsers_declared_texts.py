"""A value that a tool declares as a string is the text as it was written, whatever it looks like."""

from __future__ import annotations

import pytest
from parser_reading import function_tool, meaning, read, statuses, wide

WRITTEN = ["12345", "007", "1e5", "1.0", "-0", "true", "false", "True", "null", "None", "1e999", "0x10", "Oslo"]


def dsml(value):
    return wide(
        '<|DSML|function_calls>\n<|DSML|invoke name="f">\n'
        f'<|DSML|parameter name="zip" string="false">{value}</|DSML|parameter>\n'
        "</|DSML|invoke>\n</|DSML|function_calls>"
    )


def kimi_k3(value):
    argument = f'<|open|>argument key="zip" type="number"<|sep|>{value}<|close|>argument<|sep|>'
    call = f'<|open|>call tool="f" index="1"<|sep|>{argument}<|close|>call<|sep|>'
    return f"<|open|>tools<|sep|>{call}<|close|>tools<|sep|>"


WRITERS = {
    "gemma4": lambda value: f"<|tool_call>call:f{{zip:{value}}}<tool_call|>",
    "functiongemma": lambda value: f"<start_function_call>call:f{{zip:{value}}}<end_function_call>",
    "deepseek_v32": dsml,
    "kimi_k3": kimi_k3,
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_declared_text_is_the_text_as_it_stands(name):
    for value in WRITTEN:
        result = read(name, WRITERS[name](value), function_tool("f", zip={"type": "string"}))
        assert (meaning(result), statuses(result)) == ([("f", {"zip": value})], ["ok"]), value


@pytest.mark.parametrize("name", WRITERS)
def test_only_null_is_nothing_where_a_text_may_be_null(name):
    for value in WRITTEN:
        for schema in ({"type": ["string", "null"]}, {"anyOf": [{"type": "string"}, {"type": "null"}]}):
            result = read(name, WRITERS[name](value), function_tool("f", zip=schema))
            wanted = None if value in {"null", "None"} else value
            assert meaning(result) == [("f", {"zip": wanted})], value


@pytest.mark.parametrize("name", WRITERS)
def test_without_a_declaration_a_number_is_a_number(name):
    for tools in ((), (function_tool("f", zip={"type": "integer"}),), (function_tool("g"),)):
        assert meaning(read(name, WRITERS[name]("12345"), *tools)) == [("f", {"zip": 12345})]


def test_other_members_of_gemma_s_object_keep_their_types():
    tool = function_tool("f", a={"type": "string"}, b={"type": "integer"}, c={"type": "object"})
    text = '<|tool_call>call:f{a:1, b:2,c:{a:3},d:<|"|>x<|"|>,e:[true]}<tool_call|>'
    assert meaning(read("gemma4", text, tool)) == [("f", {"a": "1", "b": 2, "c": {"a": 3}, "d": "x", "e": [True]})]


def test_gemma_s_opener_is_read_without_its_word():
    call = '<|tool_call>:f{a:<|"|>x<|"|>,n:1}'
    assert meaning(read("gemma4", f"Hi.{call}<tool_call|>{call}<tool_call|>")) == [("f", {"a": "x", "n": 1})] * 2
    assert statuses(read("gemma4", call)) == ["unclosed"]
    assert statuses(read("gemma4", call[:-4])) == ["truncated"]
    prose = "<|tool_call>: that is how a call begins, and <|tool_call>:f is none."
    assert read("gemma4", prose).content == prose
