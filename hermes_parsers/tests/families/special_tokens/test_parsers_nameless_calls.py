"""Calls without a name, in formats with the name outside the arguments: each is reported, none counts as an answer."""

from __future__ import annotations

import pytest
from every_cut import read_at_every_cut
from hypothesis import given, settings
from hypothesis import strategies as st
from parser_reading import function_tool, meaning, read, statuses

BODIES = ["{}", '{"a": 1}', '"{}"', "[1]", "null"]
GAPS = ["", " ", "\n", "\u00a0", "\u3000"]
CALL_HEADERS = [
    "<|channel|>commentary to=",
    "<|channel|>commentary to=functions.",
    "<|channel|>commentary to=<|constrain|>json",
    "<|channel|>commentary to=functions. <|constrain|>json",
    "<|channel|>commentary <|constrain|>json",
    "<|channel|>commentary json",
    "<|start|>assistant<|channel|>commentary to= json",
    "<|start|>assistant to=functions.<|channel|>commentary json",
    " to=<|channel|>commentary json",
    " to=functions.<|channel|>commentary json",
]


@pytest.mark.parametrize("header", CALL_HEADERS)
@pytest.mark.parametrize("end", ["<|call|>", "<|end|>", ""])
def test_a_call_of_gpt_oss_without_a_name_is_reported(header, end):
    for gap, body in zip(GAPS, BODIES, strict=True):
        for written in (f"{header}{gap}", header.replace("<|channel|>", f"{gap}<|channel|>")):
            result = read("gpt-oss", f"{written}<|message|>{body}{end}")
            assert (result.calls, result.content, len(result.attempts)) == ((), None, 1), written
            assert statuses(result)[0] in {"missing_name", "" if body[0] == "{" else "invalid_json"}, written


@pytest.mark.parametrize("header", ["<|channel|>commentary", "<|start|>assistant", "<|start|>assistant\n", ""])
@pytest.mark.parametrize("body", [*BODIES[:4], ' {"a": 1}\n', ""])
def test_arguments_that_end_as_a_call_s_are_one_whatever_the_header_says(header, body):
    result = read("gpt-oss", f"{header}<|message|>{body}<|call|>")
    assert (result.calls, statuses(result), result.content) == ((), ["missing_name"], None)
    for end in ("<|end|>", "<|return|>", ""):
        result = read("gpt-oss", f"{header}<|message|>{body}{end}")
        assert (result.attempts, result.content or "") == ((), body)


@pytest.mark.parametrize("channel", ["analysis", "commentary", "final"])
def test_a_text_of_gpt_oss_that_ends_as_a_call_stays_and_is_reported(channel):
    result = read("gpt-oss", f"<|channel|>{channel}<|message|>I call it.<|call|>")
    assert statuses(result) == ["missing_name"]
    assert "I call it." in {result.content, result.reasoning}


def test_a_nameless_call_of_gpt_oss_costs_only_itself():
    call = "<|channel|>commentary to=functions.now json<|message|>{}<|call|>"
    nameless = call.replace("functions.now", "")
    for end in ("<|call|>", ""):
        text = f"<|channel|>commentary<|message|>Hi.<|end|>{call}<|start|>assistant{nameless[:-8]}{end}{call}"
        result = read("gpt-oss", text, function_tool("now"))
        assert (meaning(result), result.content) == ([("now", {})] * 2, "Hi.")
        assert statuses(result) == ["ok", "missing_name", "ok"]


@pytest.mark.parametrize("header", ["<|channel|>commentary json", "<|channel|>commentary to= <|constrain|>json"])
def test_a_nameless_header_that_the_text_s_end_cuts_is_truncated(header):
    for size in range(header.index(" j") + 3 if " j" in header else header.index("<|constrain") + 12, len(header)):
        result = read("gpt-oss", header[:size])
        assert (result.content or "", statuses(result)) in [("", ["truncated"]), ("", [])], header[:size]


@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("mark", ["[ARGS]", "[CALL_ID]abcdefghi[ARGS]"])
def test_a_call_of_mistral_without_a_name_is_reported(gap, mark):
    for body in BODIES:
        for opener in ("[TOOL_CALLS]", "[TOOL_CALLS][TOOL_CALLS]"):
            result = read("mistral", f"{opener}{gap}{mark}{body}")
            if body == "[1]":
                assert (result.calls, statuses(result), result.content) == ((), ["invalid_json"], None)
            else:
                assert (result.calls, statuses(result), result.content) == ((), ["missing_name"], None)


@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("name", ["", "now", "now\u00a0"])
@pytest.mark.parametrize("rest", ["[ARGS]", "[CALL_ID]", "[CALL_ID]abc[ARGS]", '[ARGS]{"a"', "[ARGS]-", '[ARGS]"'])
def test_a_call_of_mistral_that_the_text_s_end_cuts_is_truncated(gap, name, rest):
    result = read("mistral", f"Hi.[TOOL_CALLS]{gap}{name}{rest}")
    assert (result.content, statuses(result)) == ("Hi.", ["truncated"])


@pytest.mark.parametrize(
    "text", ["[TOOL_CALLS] now", "[TOOL_CALLS] and [ARGS] are tokens", "[TOOL_CALLS][ARGS] is one", "[ARGS]{}"]
)
def test_prose_about_mistral_s_tokens_is_text(text):
    result = read("mistral", text)
    assert (result.content, result.attempts) == (text, ())


MISTRAL = ["[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "now", " ", "\u00a0", "{}", '{"a":1}', "[", "nul", "-", '"']
GPT_OSS = [
    *("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|call|>", "<|end|>", "assistant", "commentary"),
    *("final", "analysis", " to=", "functions.", "now", " json", "{}", " ", "\u3000", "\n", "Hi."),
]


@settings(max_examples=150)
@given(st.lists(st.sampled_from(MISTRAL), max_size=8).map("".join))
def test_any_order_of_mistral_s_pieces_streams_as_it_parses(text):
    read_at_every_cut("mistral", f"[TOOL_CALLS]{text}")


@settings(max_examples=300)
@given(st.lists(st.sampled_from(GPT_OSS), max_size=10).map("".join))
def test_any_order_of_gpt_oss_s_pieces_streams_as_it_parses(text):
    read_at_every_cut("gpt-oss", text)
