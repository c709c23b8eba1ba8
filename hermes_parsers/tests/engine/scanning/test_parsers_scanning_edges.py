"""Edge cases of formats, texts and pieces; each test also compares streaming with parsing the whole text."""

from __future__ import annotations

import json

import pytest
from parser_reading import meaning, read

from hermes_core.contracts.parsing import AttemptStatus
from hermes_parsers import get_parser

F = '{"name": "f", "arguments": {}}'
G = '{"name": "g", "arguments": {}}'
BOTH = [("f", {}), ("g", {})]


def statuses(result):
    return [attempt.status for attempt in result.attempts]


@pytest.mark.parametrize("name", ["hermes", "longcat", "internlm"])
def test_an_escaped_newline_in_a_string_is_the_same_however_it_is_cut(name):
    opener, closer = {
        "hermes": ("<tool_call>", "</tool_call>"),
        "longcat": ("<longcat_tool_call>", "</longcat_tool_call>"),
        "internlm": ("<|action_start|><|plugin|>", "<|action_end|>"),
    }[name]
    text = f'{opener}{{"name": "f", "arguments": {{"a": "}} x\\\ny {closer} "}}}}{closer} end'
    assert statuses(read(name, text)) == [AttemptStatus.INVALID_JSON]


def test_a_brace_behind_a_space_spoils_a_bare_call():
    assert read("llama3_json", '{"name": "f", "parameters": {}} }').calls == ()


def test_a_mark_at_the_end_behind_a_call_is_text():
    result = read("glm45", "<tool_call>g\n</tool_call>\n<tool_call>")
    assert (meaning(result), result.content) == ([("g", {})], "\n<tool_call>")


@pytest.mark.parametrize(
    "text",
    ['[{"name": "Alice", "age": 3}]', 'Result: [{"id": 1, "name": "Bob"}]', '```json\n[{"id": 1, "x": 2}]\n```'],
)
def test_an_answer_in_json_is_no_call(text):
    result = read("xlam", text)
    assert (result.content, result.attempts) == (text, ())


@pytest.mark.parametrize("between", [", null, ", ", 5, ", ', "text", '])
def test_an_item_that_is_no_object_costs_no_call(between):
    result = read("jamba", f"<tool_calls>[{F}{between}{G}]</tool_calls>")
    assert (meaning(result), result.content) == (BOTH, None)
    assert AttemptStatus.INVALID_JSON in statuses(result)


@pytest.mark.parametrize("name", ["jamba", "mistral", "granite"])
def test_a_missing_comma_costs_no_call(name):
    before, after = {"jamba": ("<tool_calls>[", "]</tool_calls>"), "mistral": ("[TOOL_CALLS] [", "]")}.get(
        name, ("<tool_call>[", "]")
    )
    assert meaning(read(name, f"{before}{F} {G}{after}")) == BOTH


@pytest.mark.parametrize("mode", ["strict", "lenient"])
def test_an_array_that_ends_behind_a_comma_is_unclosed(mode):
    result = read("mistral", f"[TOOL_CALLS] [{F},", mode=mode)
    assert (statuses(result), result.content) == ([AttemptStatus.UNCLOSED], None)


def test_reasoning_tags_that_are_mentioned_stay_text():
    text = "Use <think> and </think> around it."
    assert read("hermes", text).content == text


def test_only_the_template_s_own_framing_is_taken_from_content():
    assert read("mistral", "[THINK]r[/THINK]\nHi").content == "\nHi"
    assert read("hermes", "<think>\nr\n</think>\n\nHi").content == "Hi"


def test_reasoning_that_the_prompt_opened_may_be_opened_again():
    result = read("hermes", "<think>\nr\n</think>\n\nHi", reasoning_opened=True)
    assert (result.reasoning, result.content) == ("r", "Hi")


def test_a_promoted_draft_keeps_its_status():
    block = f"<tool_call>{F}"
    result = read("hermes", f"<think>plan {block}</think>done", promote_drafts=True)
    assert (meaning(result), statuses(result)) == ([("f", {})], [AttemptStatus.UNCLOSED])


def test_a_bare_call_that_the_text_cuts_off_is_an_attempt():
    assert statuses(read("llama3_json", '{"name": "f", "par')) == [AttemptStatus.TRUNCATED]


@pytest.mark.parametrize(
    ("name", "text"),
    [("phi4_mini_json", "functools {cache} is nice"), ("hermes", "<tool_call> name {json} so it goes")],
)
def test_prose_with_a_mark_and_a_brace_is_prose(name, text):
    result = read(name, text)
    assert (result.content, result.attempts) == (text, ())


def test_a_number_that_is_no_number_is_refused():
    assert statuses(read("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1e999}}</tool_call>')) == [
        AttemptStatus.INVALID_JSON
    ]


def test_a_fence_without_its_closing_mark_is_framing():
    text = '<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{"a": 1}\n```<｜tool▁calls▁end｜>'
    result = read("deepseek_v3", text)
    assert (meaning(result), result.content) == ([("f", {"a": 1})], None)


def test_repairs_far_down_the_stack_do_not_raise():
    nested = "[" * 100 + "True" + "]" * 100
    text = f'<tool_call>{{"name": "f", "arguments": {{"a": {nested},}}}}</tool_call>'

    def at_depth(depth):
        return get_parser("hermes").parse(text, mode="lenient") if depth == 0 else at_depth(depth - 1)

    assert len(at_depth(0).calls) == 1
    assert at_depth(700).attempts


def test_a_mode_that_does_not_exist_is_an_error():
    with pytest.raises(ValueError, match="'strict' or 'lenient'"):
        get_parser("hermes").parse("text", mode="LENIENT")


def test_text_behind_the_end_of_a_stream_is_an_error():
    stream = get_parser("hermes").stream()
    stream.finish()
    with pytest.raises(RuntimeError, match="another stream"):
        stream.feed("more")


@pytest.mark.parametrize(
    "message", [None, "text", {"tool_calls": 5}, {"tool_calls": [{"function": {"name": "f", "arguments": []}}]}]
)
def test_what_is_no_message_is_not_written(message):
    with pytest.raises(ValueError, match="got"):
        get_parser("hermes").render(message)


def test_a_message_and_its_wire_id_are_written_as_the_model_did():
    wire = "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
    function = {"name": "f", "arguments": json.dumps({})}
    call = {"id": "functions.f:7", "wire_id": "functions.f:0", "type": "function", "function": function}
    assert get_parser("kimi_k2").render({"content": None, "tool_calls": [call]}).startswith(wire)
