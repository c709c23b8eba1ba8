"""A closed block between a format's marks is a call, or an attempt reported to the model; never silent prose."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parser_reading import function_tool, meaning, pieces, read, read_stream, statuses, wide

from hermes_parsers import get_parser
from hermes_testing.suites.parser.invariants import violations

F = '{"name": "f", "arguments": {}}'
G = '{"name": "g", "arguments": {"a": 1}}'
QUOTE = '<|"|>'

BLOCKS = {
    "hermes": ("<tool_call>", "</tool_call>"),
    "ernie45": ("<tool_call>", "</tool_call>"),
    "longcat": ("<longcat_tool_call>", "</longcat_tool_call>"),
    "internlm": ("<|action_start|><|plugin|>", "<|action_end|>"),
    "interns1": ("<|action_start|> <|plugin|>", "<|action_end|>"),
    "jamba": ("<tool_calls>", "</tool_calls>"),
    "hunyuan": ("<tool_calls>", "</tool_calls>"),
    "xlam": ("<tool_call>", "</tool_call>"),
    "cohere_command3": ("<|START_ACTION|>", "<|END_ACTION|>"),
    "cohere_command4": ("<|START_ACTION|>", "<|END_ACTION|>"),
    "apertus": ("<|tools_prefix|>", "<|tools_suffix|>"),
    "deepseek_v3": (wide("<|tool▁calls▁begin|>"), wide("<|tool▁calls▁end|>")),
    "deepseek_v31": (wide("<|tool▁call▁begin|>"), wide("<|tool▁call▁end|>")),
    "kimi_k2": ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
    "kimi": ("<|tool_call_begin|>", "<|tool_call_end|>"),
    "plamo3": ("<|plamo:begin_tool_request:plamo|>", "<|plamo:end_tool_request:plamo|>"),
    "llama3_json": ("<|python_tag|>", "<|eom_id|>"),
    "gemma4": ("<|tool_call>", "<tool_call|>"),
    "functiongemma": ("<start_function_call>", "<end_function_call>"),
    "llama4_pythonic": ("<|python_start|>", "<|python_end|>"),
    "lfm2": ("<|tool_call_start|>", "<|tool_call_end|>"),
    "olmo3": ("<function_calls>", "</function_calls>"),
    "inkling": ("f<|content_invoke_tool_json|>", "<|end_message|>"),
    "gpt-oss": ("<|channel|>commentary to=functions.f<|message|>", "<|call|>"),
}
FRAGMENTS = (
    "",
    " ",
    "\n",
    "words",
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    ":",
    ",",
    "f",
    "call:",
    "call:f",
    "call:f(…)",
    "f(a=1)",
)
FRAGMENTS += ('"', "'", "\\", "5", "null", "{}", "[]", F, f"[{F}]", '{"x": 1}', "[1, 2]", "```json\n", "```", QUOTE)
FRAGMENTS += (
    "functions.f:0",
    "<|tool_call_argument_begin|>",
    wide("<|tool▁sep|>"),
    "<think>",
    "</think>",
    "<answer>",
    "<",
)


def block(name: str, body: str) -> str:
    opener, closer = BLOCKS[name]
    return f"{opener}{body}{closer}"


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("body", ["", "words", "\n{not: json\n", "[]", "[5]", '"text"', "f", "()", "call:f(…)"])
def test_marks_around_what_cannot_be_read_are_an_attempt_with_a_reason(name: str, body: str):
    result = read(name, f"{block(name, body)} and so on")
    assert result.attempts
    assert all(attempt.reason for attempt in result.attempts if attempt.status.value != "ok")
    assert BLOCKS[name][1] not in (result.content or "")


@pytest.mark.parametrize("name", BLOCKS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_text_between_the_marks_is_a_call_or_an_attempt(name: str, data: st.DataObject):
    opener, closer = BLOCKS[name]
    parts = data.draw(st.lists(st.sampled_from([*FRAGMENTS, opener[:3], closer[:-1], closer]), max_size=5))
    text, size = block(name, "".join(parts)), data.draw(st.integers(1, 9))
    parser = get_parser(name)
    result = parser.parse(text)
    assert result.attempts
    assert violations(text, result) == []
    assert parser.render(result) == text
    assert read_stream(parser, pieces(text, size))[1] == result


@pytest.mark.parametrize("name", BLOCKS)
def test_an_opening_mark_that_nothing_closes_is_prose(name: str):
    opener = BLOCKS[name][0] if name != "gpt-oss" else "<|call|>"
    text = f"A call begins with {opener} and so on"
    assert (read(name, text).content, read(name, text).attempts) == (text, ())


def test_the_reason_says_what_stood_between_the_marks():
    attempt = read("hermes", "<tool_call>\nls -a\n</tool_call>").attempts[0]
    assert attempt.reason == "expected a call between <tool_call> and </tool_call>, got 'ls -a'"


def test_a_mark_in_prose_does_not_take_a_call_behind_it():
    result = read("hermes", f"Use <tool_call> so:\n<tool_call>{F}</tool_call>")
    assert (meaning(result), result.content) == ([("f", {})], "Use <tool_call> so:")


def test_marks_around_a_section_belong_to_the_attempt_in_it():
    text = "<|tool_calls_section_begin|><|tool_call_begin|>?<|tool_call_end|><|tool_calls_section_end|>"
    assert (read("kimi_k2", text).content, statuses(read("kimi_k2", text))) == (None, ["invalid_json"])


def test_a_stream_tells_what_stands_before_a_mark_it_cannot_judge_yet():
    stream = get_parser("hermes").stream()
    told = [event.text for delta in "Every <tool_call> tag must be closed." for event in stream.feed(delta)]
    assert "".join(told) == "Every"
    assert "".join(event.text for event in stream.finish()) == " <tool_call> tag must be closed."


@pytest.mark.parametrize("name", ["hermes", "longcat", "internlm"])
@pytest.mark.parametrize("between", [", ", "\n", ",\n\n"])
def test_each_element_of_a_list_in_a_block_is_a_call(name: str, between: str):
    result = read(name, "Hi\n" + block(name, f"\n[{F}{between}{G}]\n"))
    assert (meaning(result), result.content.strip()) == ([("f", {}), ("g", {"a": 1})], "Hi")


@pytest.mark.parametrize("name", ["hermes", "jamba", "hunyuan"])
@pytest.mark.parametrize("other", ["5", '"text"', "null", "words"])
def test_what_is_no_call_in_a_list_is_an_attempt_and_costs_no_call(name: str, other: str):
    for listed in (f"[{F}, {other}]", f"[{F}, {other}, {F}]"):
        result = read(name, block(name, listed))
        assert "invalid_json" in statuses(result)
        assert (result.content, len(result.calls)) == (None, listed.count(F))
    first = read(name, block(name, f"[{other}, {F}]"))
    assert (first.content, statuses(first)) == (None, ["invalid_json"])


def test_a_list_behind_a_mark_without_a_closing_one_is_read():
    for name, mark in (("granite-20b-fc", "<function_call> "), ("gigachat3", "<|function_call|>")):
        assert meaning(read(name, f"{mark}[{F}, {G}]")) == [("f", {}), ("g", {"a": 1})]


GEMMA = {
    "call:f()": {},
    "call:f": {},
    f"call:f(a:{QUOTE}ls -a{QUOTE})": {"a": "ls -a"},
    f"call:f(a={QUOTE}ls{QUOTE}, b = {QUOTE}d (e){QUOTE})": {"a": "ls", "b": "d (e)"},
    "call:f(a=1, b=[1, 2], c={d:null})": {"a": 1, "b": [1, 2], "c": {"d": None}},
    "call:f({a:1})": {"a": 1},
    'call:f({"a": "x"})': {"a": "x"},
    'call:f(a="x", "b": true)': {"a": "x", "b": True},
    f"call:f{{a={QUOTE}x{QUOTE},b=2}}": {"a": "x", "b": 2},
}


@pytest.mark.parametrize("body", GEMMA)
def test_gemma_s_arguments_in_parentheses_are_read(body: str):
    result = read("gemma4", block("gemma4", body))
    assert (meaning(result), result.content) == ([("f", GEMMA[body])], None)
    other = read("functiongemma", block("functiongemma", body.replace(QUOTE, "<escape>")))
    assert meaning(other) == [("f", GEMMA[body])]


@pytest.mark.parametrize("body", ["call:f(…)", f"call:f({QUOTE}ls{QUOTE})", "call:f(a=1", "call:f(ls -a)", "f(a=1)"])
def test_gemma_s_parentheses_that_hold_no_named_values_are_an_attempt(body: str):
    result = read("gemma4", block("gemma4", body))
    assert (result.calls, result.content, statuses(result)) == ((), None, ["invalid_json"])


def test_a_declared_text_in_parentheses_is_text():
    tool = function_tool("f", zip={"type": "string"})
    assert meaning(read("gemma4", block("gemma4", "call:f(zip=12345)"), tool)) == [("f", {"zip": "12345"})]
