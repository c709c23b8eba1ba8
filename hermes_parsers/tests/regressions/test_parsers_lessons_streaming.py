"""Lessons from other parsers' issues: streams, time, reasoning, truncation. Each test cites the issue it comes from."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parser_reading import (
    deepseek_v3,
    deepseek_v31,
    dsml,
    function_tool,
    glm45,
    hermes,
    kimi,
    meaning,
    minimax_m2,
    pieces,
    qwen3_coder,
    read,
    read_stream,
    statuses,
    wide,
)

from hermes_parsers import get_parser
from hermes_testing.suites.parser.invariants import is_json_object


def test_a_stream_hands_on_the_argument_text_that_the_model_wrote():
    """vllm#10395 (PR 10398): completing half an object and comparing gave arguments that the model had not written."""
    arguments = '{ "city":"Dallas",\t"state" : "TX", "n": [1.0, {"x": "\\u00e9}"}] }'
    events, result = read_stream(get_parser("hermes"), list(hermes(f'{{"name": "f", "arguments": {arguments}}}')))
    assert [event.call.arguments for event in events if event.call] == [arguments]
    assert result.calls[0].arguments == arguments


NO_ARGUMENTS = {
    "an empty object": ("hermes", hermes('{"name": "get_time", "arguments": {}}')),
    "a missing key": ("hermes", hermes('{"name": "get_time"}')),
    "null": ("hermes", hermes('{"name": "get_time", "arguments": null}')),
    "no parameters": ("qwen3_coder", "<tool_call>\n<function=get_time>\n</function>\n</tool_call>"),
    "no keys": ("glm45", "<tool_call>get_time\n</tool_call>"),
    "an empty list": ("pythonic", "[get_time()]"),
    "no DSML parameters": ("deepseek_v32", dsml("get_time")),
    "no invoke parameters": ("minimax_m2", minimax_m2("get_time")),
    "a Kimi object": ("kimi_k2", kimi(("functions.get_time:0", "{}"))),
}


@pytest.mark.parametrize(("name", "text"), NO_ARGUMENTS.values(), ids=NO_ARGUMENTS)
def test_a_call_without_parameters_has_an_empty_object(name, text):
    """vllm#28806, TensorRT-LLM PR 19228: such calls were never completed in a stream."""
    events, result = read_stream(get_parser(name), list(f"{text}\nAll done."))
    assert [(event.call.name, event.call.arguments) for event in events if event.call] == [("get_time", "{}")]
    assert "All done." in (result.content or "")


@pytest.mark.parametrize("value", ["a}b", "{{", '"}]', "</function", "<parameter"])
def test_braces_and_broken_tags_in_a_value_are_not_counted(value):
    """TensorRT-LLM PR 19228: the closing brace was found by counting braces in the values."""
    assert meaning(read("qwen3_coder", qwen3_coder("f", location=value))) == [("f", {"location": value})]


@pytest.mark.parametrize("name", ["hermes", "qwen25"])
def test_an_unbalanced_brace_inside_a_string_does_not_break_a_stream(name):
    """vllm#21544: the command of the issue."""
    command = "mkdir -p test/{test1,test2"
    text = hermes(f'{{"name": "run_shell_command", "arguments": {{"command": "{command}"}}}}')
    assert meaning(read(name, text)) == [("run_shell_command", {"command": command})]


_MANY = "".join(f"a{i}=1, " for i in range(3_000))
SLOW = {
    "a truncated python call": ("pythonic", f"[search({_MANY}"),
    "a whole python call": ("pythonic", f"[search({_MANY}z=1)]"),
    "many python calls": ("llama4_pythonic", f"[{', '.join(['f(a=1, b=[2], c=(3))'] * 1_000)}]"),
    "open python calls": ("pythonic", "[f(a=" * 4_000),
    "spaces for a name": ("glm45", "<tool_call>" + " " * 40_000 + "x"),
    "many openers": ("longcat", "<longcat_tool_call>" * 3_000),
    "whole blocks and a cut one": (
        "hermes",
        hermes(*['{"name": "f", "arguments": {"n": [13]}}'] * 800, '{"name": "f"')[:-13],
    ),
    "blocks without JSON": ("hermes", "<tool_call>a</tool_call>" * 2_000 + "X"),
    "many separators": (
        "deepseek_v3",
        wide("<|tool▁calls▁begin|>" + "<|tool▁call▁begin|>function<|tool▁sep|>" * 1_500),
    ),
    "many invokes": ("deepseek_v32", wide("<|DSML|function_calls>" + '<|DSML|invoke name="f">' * 2_500)),
    "many functions": ("qwen3_coder", "<tool_call><function=f><parameter=a>" * 2_000),
    "many array openers": ("mistral", "[TOOL_CALLS][{" * 4_000),
    "open objects": ("llama3_json", '{"name": ' * 5_000),
}


@pytest.mark.parametrize(("name", "text"), SLOW.values(), ids=SLOW)
def test_no_text_holds_a_parser_up(name, text):
    """sglang#31912, sglang#18347 (PR 32107), vllm PR 54678, trl#5415: 150 characters blocked a worker for seconds.

    Every text here would take hours if the time doubled with each argument.
    """
    parser = get_parser(name)
    parser.parse(text)
    read_stream(parser, pieces(text, 5))


TWO_CALLS = {
    "qwen25": hermes('{"name": "f", "arguments": {"a": "x"}}', '{"name": "g", "arguments": {"b": 2}}'),
    "hermes": hermes('{"name": "f", "arguments": {"a": "x"}}', '{"name": "g", "arguments": {"b": 2}}'),
    "mistral": '[TOOL_CALLS] [{"name": "f", "arguments": {"a": "x"}}, {"name": "g", "arguments": {"b": 2}}]',
    "llama3_json": '{"name": "f", "parameters": {"a": "x"}}; {"name": "g", "parameters": {"b": 2}}',
    "deepseek_v3": deepseek_v3(("f", '{"a": "x"}'), ("g", '{"b": 2}')),
    "deepseek_v31": deepseek_v31(("f", '{"a": "x"}'), ("g", '{"b": 2}')),
    "kimi_k2": kimi(("functions.f:0", '{"a": "x"}'), ("functions.g:1", '{"b": 2}')),
    "qwen3_coder": f"{qwen3_coder('f', a='x')}\n{qwen3_coder('g', b='2')}",
    "glm45": f"{glm45('f', a='x')}\n{glm45('g', b='2')}",
    "minimax_m2": f"{minimax_m2('f', a='x')}\n{minimax_m2('g', b='2')}",
    "pythonic": "[f(a='x'), g(b=2)]",
}
TOOLS = [function_tool("g", b={"type": "integer"}), function_tool("f", a={"type": "string"})]


@pytest.mark.parametrize("name", TWO_CALLS)
@settings(max_examples=30)
@given(cuts=st.lists(st.integers(1, 300), max_size=4))
def test_two_calls_survive_every_way_of_cutting_the_stream(name, cuts):
    """sglang#31915, vllm#35266: with one to four pieces, 71 % (qwen25) and 91 % (hermes) of the messages lost data."""
    text = f"Look:\n{TWO_CALLS[name]}"
    places = sorted({0, *cuts, len(text)} & set(range(len(text) + 1)))
    deltas = [text[start:end] for start, end in pairwise(places)]
    events, result = read_stream(get_parser(name), deltas, TOOLS)
    assert [event.call.name for event in events if event.call] == ["f", "g"]
    assert result == get_parser(name).parse(text, TOOLS)
    assert meaning(result) == [("f", {"a": "x"}), ("g", {"b": 2})]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", "It ends in <tool_c"),
        ("mistral", "See [TOOL_"),
        ("kimi_k2", "See <|tool_calls_sec"),
        ("glm45", "a <"),
    ],
)
def test_the_end_of_a_stream_gives_out_what_was_held_back(name, text):
    """sglang#35563 (PR 35625): half a mark at the end was swallowed."""
    events, result = read_stream(get_parser(name), list(text))
    assert "".join(event.text for event in events) == text
    assert (result.content, result.calls) == (text, ())


def test_calls_are_numbered_by_their_place_in_the_answer():
    """sglang#35564 (PR 35625): not by the place of the tool among those offered."""
    result = read("hermes", TWO_CALLS["hermes"], *TOOLS)
    assert [call.name for call in result.calls] == ["f", "g"]
    assert [segment.call for segment in result.segments if segment.kind == "call"] == [0, 1]


@pytest.mark.parametrize("name", ["qwen3_coder", "glm45", "minimax_m2"])
def test_a_stream_goes_on_after_prose_that_mentions_a_mark(name):
    """club-3090#1191: the client saw nothing more until the end; now the next call or closing mark decides."""
    mark = "<minimax:tool_call>" if name == "minimax_m2" else "<tool_call>"
    prose = f"Every {mark} tag, as they say, must be closed; so far so good. "
    stream = get_parser(name).stream()
    call = get_parser(name).render(
        {"role": "assistant", "content": prose, "tool_calls": [{"function": {"name": "f", "arguments": {"a": "1"}}}]}
    )
    seen = [event for delta in f"{call}\nDone." for event in stream.feed(delta)]
    assert "".join(event.text for event in seen if event.kind == "text").startswith(prose.rstrip())
    assert [event.call.name for event in seen if event.call] == ["f"]


HERMES_BODY = '{"name": "A", "arguments": {}}'


def test_a_draft_in_the_reasoning_and_the_real_call_are_one_call():
    """verl#4757, renderers PR 80: the same tool was called twice."""
    text = f"<think>let me call A\n{hermes(HERMES_BODY)}\nit will tell me</think>\n{hermes(HERMES_BODY)}"
    result = read("hermes", text)
    assert meaning(result) == [("A", {})]
    assert statuses(result) == ["in_reasoning", "ok"]
    assert "it will tell me" in (result.reasoning or "")


@pytest.mark.parametrize(
    ("name", "draft", "real"),
    [
        ("kimi_k2", kimi(("functions.draft:0", "{}")), kimi(("functions.real:0", "{}"))),
        ("deepseek_v3", deepseek_v3(("draft", "{}")), deepseek_v3(("real", "{}"))),
        ("qwen3_coder", qwen3_coder("draft"), qwen3_coder("real")),
        ("glm45", glm45("draft"), glm45("real")),
        ("minimax_m2", minimax_m2("draft"), minimax_m2("real")),
        ("deepseek_v32", dsml("draft"), dsml("real")),
    ],
)
@pytest.mark.parametrize("promote", [False, True])
def test_the_call_after_the_reasoning_is_the_one_that_counts(name, draft, real, promote):
    """renderers PR 80: Kimi lost all calls, DeepSeek took the draft; also where drafts may become calls."""
    result = read(name, f"<think>Plan: {draft} perhaps.</think>{real}", promote_drafts=promote)
    assert [call.name for call in result.calls] == ["real"]
    assert [attempt.name for attempt in result.attempts] == ["draft", "real"]


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("qwen3_coder", qwen3_coder("read", path="/tmp/x")),
        ("hermes", hermes('{"name": "read", "arguments": {"path": "/tmp/x"}}')),
    ],
)
def test_a_call_made_inside_the_reasoning_only_is_reported_and_can_be_had(name, call):
    """vllm PR 55759 (#39056): it was lost; now it is an attempt, and a call with `promote_drafts`."""
    text = f"<think>\nThe user wants the file.\n{call}\n</think>"
    result = read(name, text)
    assert (result.calls, statuses(result)) == ((), ["in_reasoning"])
    assert meaning(read(name, text, promote_drafts=True)) == [("read", {"path": "/tmp/x"})]


@pytest.mark.parametrize("name", ["hermes", "qwen3_coder"])
def test_reasoning_about_the_syntax_is_no_attempt(name):
    """lmstudio-bug-tracker#1592: prose in the thoughts was read as broken calls."""
    real = hermes('{"name": "f"}') if name == "hermes" else qwen3_coder("f")
    thought = "Some models use `<function=...>`, others `<tool_call>`. The parser sees <tool_call> here."
    result = read(name, f"<think>{thought}</think>\n{real}")
    assert (meaning(result), statuses(result)) == ([("f", {})], ["ok"])
    assert result.reasoning == thought


CUT = {
    "hermes": hermes('{"name": "write", "arguments": {"path": "/a", "text": "one {two"}}'),
    "mistral": '[TOOL_CALLS]write[ARGS]{"path": "/a", "text": "one {two"}',
    "llama3_json": '{"name": "write", "parameters": {"path": "/a", "text": "one {two"}}',
    "kimi_k2": kimi(("functions.write:0", '{"path": "/a", "text": "one {two"}')),
    "deepseek_v3": deepseek_v3(("write", '{"path": "/a", "text": "one {two"}')),
    "deepseek_v31": deepseek_v31(("write", '{"path": "/a", "text": "one {two"}')),
    "deepseek_v32": dsml("write", ("path", True, "/a"), ("text", True, "one {two")),
    "qwen3_coder": qwen3_coder("write", path="/a", text="one {two"),
    "glm45": glm45("write", path="/a", text="one {two"),
    "minimax_m2": minimax_m2("write", path="/a", text="one {two"),
    "pythonic": "[write(path='/a', text='one {two')]",
    "gpt-oss": (
        "<|channel|>commentary to=functions.write <|constrain|>json"
        '<|message|>{"path": "/a", "text": "one {two"}<|call|>'
    ),
}


@pytest.mark.parametrize("name", CUT)
def test_a_call_cut_by_the_token_limit_is_truncated_and_no_call(name):
    """vllm#53269, vllm#58228 (PR 46303, PR 47963): a cut call passed for a finished one."""
    text = CUT[name]
    result = read(name, text[: text.index("{two")])
    assert (result.calls, statuses(result)) == ((), ["truncated"])
    assert result.attempts[0].reason


@pytest.mark.parametrize("name", CUT)
def test_what_is_handed_on_can_always_be_sent_back(name):
    """vllm#47761: arguments that are not JSON led to status 400 in the next turn."""
    text = CUT[name]
    whole = {"path": "/a", "text": "one {two"}
    for end in range(len(text) + 1):
        for call in get_parser(name).parse(text[:end]).calls:
            assert is_json_object(call.arguments)
            assert (call.name, meaning(get_parser(name).parse(text[:end]))) == ("write", [("write", whole)])


def test_complete_calls_before_the_cut_are_kept():
    """vllm#58228: the cut is visible, and costs only the call it is in."""
    text = TWO_CALLS["hermes"]
    result = read("hermes", text[: text.index('{"b"') + 3])
    assert (meaning(result), statuses(result)) == ([("f", {"a": "x"})], ["ok", "truncated"])
