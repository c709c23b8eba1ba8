"""Any mixture of a format's tokens, in any order and cut in any way, satisfies every invariant of a result."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parser_reading import function_tool, pieces, read_stream

from hermes_parsers import get_parser
from hermes_testing.suites.parser.invariants import violations

_ANY = ["{", "}", "[1]", '"', "'", "\\", " ", "\n", ": ", "text", "5", "null", "f", '{"a": 1}', '{"a": ', "<", "[", "`"]
TOKENS = {
    "mistral": (
        "[TOOL_CALLS] [ARGS] [CALL_ID] [THINK] [/THINK] abcdefghi [TOOL _CALLS] "
        '[{"name":"f","arguments":{}}] {"name":"g","id":"abcdefghi"} ,'
    ),
    "deepseek_v3": (
        "<｜tool▁calls▁begin｜> <｜tool▁calls▁end｜> <｜tool▁call▁begin｜> <｜tool▁call▁end｜> <｜tool▁sep｜> "
        "<｜tool▁ ```json ``` function <think> </think>"
    ),
    "kimi_k2": (
        "<|tool_calls_section_begin|> <|tool_calls_section_end|> <|tool_call_section_begin|> <|tool_call_begin|> "
        "<|tool_call_end|> <|tool_call_argument_begin|> functions.f:0 call_1 <|tool_ <think> </think>"
    ),
    "gpt-oss": (
        "<|start|> <|channel|> <|message|> <|constrain|> <|end|> <|call|> <|return|> <|start|>assistant to=functions.f "
        'assistant analysis commentary final json <|channel|>commentary <|message|>{"a":1}<|call|> <|ch'
    ),
    "plamo3": (
        "<|plamo:begin_tool_requests:plamo|> <|plamo:end_tool_requests:plamo|> <|plamo:begin_tool_request:plamo|> "
        "<|plamo:end_tool_request:plamo|> <|plamo:begin_tool_name:plamo|> <|plamo:end_tool_name:plamo|> f{}< "
        "<|plamo:begin_tool_arguments:plamo|> <|plamo:end_tool_arguments:plamo|> <|plamo:constrain|>json "
        "<|plamo:msg|> <|plamo:begin_think:plamo|> <|plamo:end_think:plamo|> <think>"
    ),
    "apertus": (
        '<|tools_prefix|> <|tools_suffix|> [{"f":{"a":1}}] {"f":{ {"name":"f"} , ] <|inner_prefix|> <|inner_suffix|>'
    ),
    "cohere_command3": (
        "<|START_ACTION|> <|END_ACTION|> <|START_RESPONSE|> <|END_RESPONSE|> <|START_TEXT|> <|END_TEXT|> <|START_ "
        '<|END_OF_TURN_TOKEN|> <|START_THINKING|> <|END_THINKING|> [{"tool_name":"f","parameters":{}}] ] ,'
    ),
    "gigachat3": '<|message_sep|> function call<|role_sep|> <|function_call|> \n\n {"name":"f","arguments":{"a":1}}',
    "k2_horizon": (
        "<ifm|tool_calls> </ifm|tool_calls> <ifm|tool_call> </ifm|tool_call> <ifm|tool_call>f\n <ifm|arg_key> "
        "</ifm|arg_key> <ifm|arg_type>integer</ifm|arg_type> <ifm|arg_type> <ifm|arg_value> </ifm|arg_value> a "
        '{"name":"f","arguments":{}} <ifm|think> </ifm|think> <ifm|think_fast> </ifm|think_fast>'
    ),
    "solar_open2": (
        "<|tool_call:start|> <|tool_call:end|> <|tool_call:start|>f\n <|tool_arg:start|> a <|tool_arg:value|> "
        "<|tool_arg:end|> <|tool_arg:start|>a<|tool_arg:value|> <|think:start|> <|think:end|>"
    ),
}
TOOLS = [function_tool("f", a={"type": "integer"})]


@pytest.mark.parametrize("name", TOKENS)
@settings(max_examples=400, deadline=None, derandomize=True, database=None)
@given(data=st.data())
def test_any_mixture_of_tokens_is_read_alike_however_it_is_cut(name, data):
    parts = data.draw(st.lists(st.sampled_from([*TOKENS[name].split(" "), *_ANY]), max_size=14))
    text = "".join(parts)
    mode = data.draw(st.sampled_from(["strict", "lenient"]))
    tools = data.draw(st.sampled_from([(), TOOLS]))
    parser = get_parser(name, reasoning_opened=data.draw(st.booleans()))
    result = parser.parse(text, tools or None, mode)
    assert violations(text, result) == []
    assert parser.render(result) == text
    for deltas in (parts, pieces(text, 1), pieces(text, 5)):
        events, in_pieces = read_stream(parser, deltas, tools, mode)
        assert in_pieces == result
        assert [event.call for event in events if event.call] == list(result.calls)
