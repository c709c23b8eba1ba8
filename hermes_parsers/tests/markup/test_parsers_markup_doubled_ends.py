"""The first of two closing marks ends the value, and the status says so; a mark inside text is text."""

from __future__ import annotations

import pytest
from markup_families import FAMILIES, dialect_of, end_of, write_calls
from parser_reading import function_tool, meaning, read, statuses

from hermes_parsers import get_parser

TEXT, INTEGER = {"type": "string"}, {"type": "integer"}
TOOL = function_tool("f", a=TEXT, n=INTEGER, b=TEXT)
ARGUMENTS = {"a": "ls -la", "n": 5, "b": "x y"}
each_family = pytest.mark.parametrize("name", FAMILIES)
each_key = pytest.mark.parametrize("key", ARGUMENTS)
each_gap = pytest.mark.parametrize("gap", ["", "\n", " \t\n\n"])


def ends(name, text, key):
    """Return where the closing mark of a parameter begins and ends."""
    mark = end_of(name, key)
    at = text.index(mark, text.index(str(ARGUMENTS[key])))
    return at, at + len(mark)


def call_with_repeated_end(name, key, between, times=1):
    """Write a call in which the closing mark of a parameter appears again after other text."""
    text = write_calls(name, ("f", ARGUMENTS))
    start, end = ends(name, text, key)
    return text[:end] + (between + text[start:end]) * times + text[end:]


@each_family
@each_key
@each_gap
@pytest.mark.parametrize("times", [1, 2])
def test_a_value_ends_at_the_first_of_two_closing_marks(name, key, gap, times):
    text = call_with_repeated_end(name, key, gap, times)
    result = read(name, text, TOOL)
    assert (meaning(result), statuses(result)) == ([("f", ARGUMENTS)], ["repaired"])
    assert f"{key}: its closing mark appears twice" in result.attempts[0].reason
    assert get_parser(name).render(result) == text
    [untyped] = read(name, text).calls
    assert "</" not in untyped.arguments
    assert "close" not in untyped.arguments


@each_family
def test_all_of_a_call_s_closing_marks_may_stand_there_twice(name):
    text = write_calls(name, ("f", ARGUMENTS), ("f", {"a": "1"}))
    for key in reversed(ARGUMENTS):
        start, end = ends(name, text, key)
        text = f"{text[:end]}\n{text[start:end]}{text[end:]}"
    result = read(name, text, TOOL)
    assert (meaning(result), statuses(result)) == ([("f", ARGUMENTS), ("f", {"a": "1"})], ["repaired", "ok"])


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "minimax_m3"])
@pytest.mark.parametrize("tools", [(), (TOOL,)])
def test_a_closing_mark_with_text_around_it_is_text(name, tools):
    mark = dialect_of(name).parameter_close
    for value in (f"a {mark} b", f"a{mark}\n{mark}b", f"a\n{mark}\n{mark}\nb {mark} c"):
        result = read(name, call_with_value(name, value), *tools)
        assert [values["a"] for _, values in meaning(result)] == [value], value
        assert statuses(result) == ["ok"]
        assert "read as text" in result.attempts[0].reason


def call_with_value(name, value):
    """Write a call with a value that contains marks, which `render` may refuse."""
    return write_calls(name, ("f", {"a": "QQ", "b": "2"})).replace("QQ", value)


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "minimax_m3"])
def test_a_value_with_a_mark_in_it_ends_at_the_first_of_the_last_two(name):
    mark = dialect_of(name).parameter_close
    text = call_with_value(name, f"a {mark} b")
    end = text.index(mark, text.index(f"{mark} b") + 1) + len(mark)
    result = read(name, f"{text[:end]}\n{mark}{text[end:]}", TOOL)
    assert (meaning(result), statuses(result)) == ([("f", {"a": f"a {mark} b", "b": "2"})], ["repaired"])


@each_family
def test_two_marks_of_one_parameter_and_none_of_another_are_both_told(name):
    text = call_with_repeated_end(name, "a", "\n")
    start, end = ends(name, text, "n")
    result = read(name, text[:start].rstrip("\n") + text[end:].lstrip("\n"), TOOL)
    found = [(tool, {key: str(value).strip() for key, value in values.items()}) for tool, values in meaning(result)]
    assert found == [("f", {key: str(value) for key, value in ARGUMENTS.items()})]
    assert statuses(result) == ["unclosed"]
    assert "n: its closing mark is missing" in result.attempts[0].reason
    assert "a: its closing mark appears twice" in result.attempts[0].reason


def test_two_marks_of_a_nested_minimax_m3_element_end_it_at_the_first():
    token = "]<]minimax[>["
    body = "<s><c>Oslo</c></c><t><item>1</item></item><item>2</item></t></t></s>".replace("<", f"{token}<")
    text = f'{token}<tool_call>\n{token}<invoke name="f">{body}{token}</invoke>\n{token}</tool_call>'
    for tools in ((), (function_tool("f", s={"type": "object"}),)):
        result = read("minimax_m3", text, *tools)
        assert (meaning(result), statuses(result)) == ([("f", {"s": {"c": "Oslo", "t": ["1", "2"]}})], ["repaired"])


KEYS = {"glm45": "</arg_key>", "glm47": "</arg_key>", "hy_v3": "</arg_key>", "k2_horizon": "</ifm|arg_key>"}


@pytest.mark.parametrize(("name", "mark"), KEYS.items())
@pytest.mark.parametrize("key", ["a", "n", "b"])
@each_gap
def test_a_key_s_closing_mark_may_stand_there_twice(name, mark, key, gap):
    text = write_calls(name, ("f", ARGUMENTS)).replace(f">{key}{mark}", f">{key}{mark}{gap}{mark}")
    result = read(name, text, TOOL)
    assert (meaning(result), statuses(result)) == ([("f", ARGUMENTS)], ["repaired"])
    assert f"{key}: {mark} appears twice" in result.attempts[0].reason
    parser = get_parser(name)
    for cut in range(1, len(text)):
        stream = parser.stream([TOOL])
        stream.feed(text[:cut])
        stream.feed(text[cut:])
        stream.finish()
        assert stream.result() == result, cut


def test_a_doubled_mark_of_a_key_goes_with_a_type():
    pair = (
        "<ifm|arg_key>n</ifm|arg_key></ifm|arg_key>\n<ifm|arg_type>int</ifm|arg_type>\n<ifm|arg_value>5</ifm|arg_value>"
    )
    text = f"<ifm|tool_calls>\n<ifm|tool_call>f\n{pair}\n</ifm|tool_call>\n</ifm|tool_calls>"
    result = read("k2_horizon", text)
    assert (meaning(result), statuses(result)) == ([("f", {"n": 5})], ["repaired"])


def test_two_marks_of_kimi_k3_s_json_end_it_at_the_first():
    closing = "<|close|>json<|sep|>"
    block = f'<|open|>json type="object"<|sep|>{{"a": 1}}{closing}\n{closing}'
    call = f'<|open|>call tool="f" index="1"<|sep|>{block}<|close|>call<|sep|>'
    result = read("kimi_k3", f"<|open|>tools<|sep|>{call}<|close|>tools<|sep|>")
    assert (meaning(result), statuses(result)) == ([("f", {"a": 1})], ["repaired"])


@pytest.mark.parametrize("mode", ["strict", "lenient"])
def test_it_is_a_call_in_both_modes(mode):
    result = get_parser("qwen3_coder").parse(call_with_repeated_end("qwen3_coder", "a", "\n"), [TOOL], mode)
    assert (meaning(result), statuses(result)) == ([("f", ARGUMENTS)], ["repaired"])
