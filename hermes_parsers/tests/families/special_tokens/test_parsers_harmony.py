"""What the parser of gpt-oss does beyond the suite: channels, headers in any order, framing."""

from __future__ import annotations

import pytest
from parser_reading import function_tool, meaning, read, statuses

from hermes_parsers import get_parser

ANALYSIS, FINAL = "<|channel|>analysis<|message|>", "<|channel|>final<|message|>"
NEXT = "<|end|><|start|>assistant"
CALL = '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>'


def kinds(result):
    return [(segment.kind, segment.raw) for segment in result.segments]


def test_reasoning_preamble_and_calls_are_told_apart():
    text = f"{ANALYSIS}Hm.{NEXT}<|channel|>commentary<|message|>I look.{NEXT}{CALL}<|start|>assistant{CALL}"
    result = read("gpt-oss", text)
    assert (result.reasoning, result.content, meaning(result)) == ("Hm.", "I look.", [("f", {"a": 1})] * 2)
    assert len({call.id for call in result.calls}) == 2


def test_an_answer_s_header_and_end_are_no_content():
    """Without a call or reasoning next to them, they form a reasoning segment without reasoning."""
    result = read("gpt-oss", f"{FINAL}  It is sunny.\n<|return|>")
    assert (result.content, result.reasoning) == ("  It is sunny.\n", None)
    assert kinds(result) == [("reasoning", FINAL), ("text", "  It is sunny.\n"), ("reasoning", "<|return|>")]


def test_framing_belongs_to_the_reasoning_or_the_call_beside_it():
    result = read("gpt-oss", f"{ANALYSIS}Hm.{NEXT}<|channel|>commentary<|message|>So:{NEXT}{CALL}\n")
    assert kinds(result) == [
        ("reasoning", f"{ANALYSIS}Hm.{NEXT}<|channel|>commentary<|message|>"),
        ("text", "So:"),
        ("call", f"{NEXT}{CALL}\n"),
    ]
    assert result.attempts[0].raw == f"<|start|>assistant{CALL}"


def test_several_analysis_messages_are_one_reasoning():
    result = read("gpt-oss", f"{ANALYSIS}One.{NEXT}{ANALYSIS}\nTwo.{NEXT}{FINAL}Three.")
    assert (result.reasoning, result.content) == ("One.\n\nTwo.", "Three.")


@pytest.mark.parametrize(
    "header",
    [
        "<|channel|>commentary to=functions.f <|constrain|>json",
        "<|channel|>commentary to=functions.f<|constrain|>json",
        "<|channel|>commentary to=functions.f json",
        "<|channel|>commentary to=functions.f",
        "<|channel|>commentary to=f code",
        "<|channel|>analysis to=functions.f code",
        "<|channel|>final to=functions.f json",
        "<|start|>assistant to=functions.f<|channel|>commentary json",
        "<|start|>assistant to=functions.f<|channel|>analysis <|constrain|>json",
        "<|start|>assistant to=functions.f",
        " to=functions.f<|channel|>commentary json",
        "assistant to=functions.f<|channel|>commentary json",
        "assistant<|channel|>commentary to=functions.f json",
    ],
)
def test_a_recipient_makes_a_call_wherever_it_stands(header):
    for before in ("", f"{ANALYSIS}Hm.<|end|>"):
        result = read("gpt-oss", f'{before}{header}<|message|>{{"a": 1}}<|call|>')
        assert (meaning(result), result.content, statuses(result)) == ([("f", {"a": 1})], None, ["ok"])


@pytest.mark.parametrize(
    ("recipient", "name"),
    [("browser.search", "browser.search"), ("functions.files.read", "files.read"), ("functions.a-b", "a-b")],
)
def test_a_recipient_is_the_tool_s_name(recipient, name):
    assert meaning(read("gpt-oss", f"<|channel|>analysis to={recipient} code<|message|>{{}}<|call|>")) == [(name, {})]


def test_a_recipient_without_a_name_is_reported():
    result = read("gpt-oss", "<|channel|>commentary to=functions. json<|message|>{}<|call|>")
    assert (result.calls, statuses(result)) == ((), ["missing_name"])


def test_a_message_to_nobody_in_particular_is_text():
    assert read("gpt-oss", "<|channel|>commentary to=user<|message|>Hello.<|end|>").content == "Hello."


@pytest.mark.parametrize("end", ["<|call|>", "<|end|>", "<|return|>"])
def test_any_end_mark_closes_a_call(end):
    assert statuses(read("gpt-oss", CALL.replace("<|call|>", end))) == ["ok"]


def test_a_call_whose_end_mark_the_server_kept_is_unclosed():
    """`<|call|>` is a stop token, which many servers omit."""
    for text in (CALL.removesuffix("<|call|>"), CALL.removesuffix("ll|>"), CALL.replace("<|call|>", " ")):
        result = read("gpt-oss", text)
        assert (meaning(result), statuses(result), result.content) == ([("f", {"a": 1})], ["unclosed"], None)


def test_code_for_a_tool_that_came_with_the_model_is_reported():
    for end in ("<|call|>", ""):
        result = read("gpt-oss", f"<|channel|>analysis to=python code<|message|>print(1)\n{end}")
        assert (result.calls, statuses(result), result.attempts[0].name) == ((), ["invalid_json"], "python")
        assert "print(1)" in result.attempts[0].reason


def test_a_bad_call_costs_only_itself():
    bad = CALL.replace("1}", "}")
    result = read("gpt-oss", f"{CALL}<|start|>assistant{bad}<|start|>assistant{CALL}")
    assert (len(result.calls), statuses(result)) == (2, ["ok", "invalid_json", "ok"])
    repaired = read("gpt-oss", CALL.replace("1}", "1,}"), mode="lenient")
    assert (meaning(repaired), statuses(repaired)) == ([("f", {"a": 1})], ["repaired"])


def test_a_call_follows_a_message_without_an_end():
    for channel, field in (("analysis", "reasoning"), ("final", "content")):
        result = read("gpt-oss", f"<|channel|>{channel}<|message|>I look.<|start|>assistant{CALL}")
        assert (getattr(result, field), meaning(result)) == ("I look.", [("f", {"a": 1})])


@pytest.mark.parametrize(
    "text",
    [
        "The <|channel|> token, then <|message|>, then <|end|>.",
        "<|channel|> is a token",
        "It ends with <|return|>",
        "I write to=functions.f for fun",
        " to=functions.f",
        "assistant",
        "<|end|> is a mark",
        "<|start|>assistant says:\n<|message|>",
    ],
)
def test_tokens_in_prose_are_text(text):
    result = read("gpt-oss", text)
    assert (result.content, result.attempts) == (text, ())


@pytest.mark.parametrize("prose", ["A <|channel|> b <|message|> c.", "The <|start|> of a <|message|>, x"])
def test_odd_headers_in_the_middle_of_a_message_are_text(prose):
    result = read("gpt-oss", f"{ANALYSIS}In {prose}{NEXT}{FINAL}So {prose}<|return|>")
    assert (result.reasoning, result.content) == (f"In {prose}", f"So {prose}")


@pytest.mark.parametrize("size", range(1, len("<|start|>assistant<|channel|>final<|message|>") + 1))
def test_a_header_cut_by_the_text_s_end_is_no_content(size):
    header = "<|start|>assistant<|channel|>final<|message|>"[:size]
    result = read("gpt-oss", f"{ANALYSIS}Hm.<|end|>{header}")
    assert (result.reasoning, result.content or "") == ("Hm.", header if size < len("<|start|>") else "")


def test_a_call_cut_in_its_header_is_truncated():
    for end in range(CALL.index("functions") + 1, CALL.index("{")):
        result = read("gpt-oss", f"{ANALYSIS}Hm.{NEXT}{CALL[:end]}")
        assert (statuses(result), result.content) == (["truncated"], None), CALL[:end]


def test_reasoning_that_the_prompt_has_opened():
    result = read("gpt-oss", f"Hm.{NEXT}{FINAL}Yes.", reasoning_opened=True)
    assert (result.reasoning, result.content) == ("Hm.", "Yes.")


def message(content=None, reasoning=None, calls=()):
    made = [{"id": "c", "type": "function", "function": {"name": name, "arguments": args}} for name, args in calls]
    return {"role": "assistant", "content": content, "reasoning_content": reasoning, "tool_calls": made}


def test_it_writes_what_the_template_does_behind_the_prompt():
    """The prompt ends with `<|start|>assistant`; kept turns end with `<|end|>`, as the format's documentation says."""
    render = get_parser("gpt-oss").render
    call = ' to=functions.f<|channel|>commentary json<|message|>{"a": 1}<|call|>'
    assert render(message("Yes.", "Hm.")) == f"{ANALYSIS}Hm.{NEXT}{FINAL}Yes.<|end|>"
    assert render(message(None, "Hm.", [("f", '{"a": 1}')])) == f"{ANALYSIS}Hm.{NEXT}{call}"
    preamble = "<|channel|>commentary<|message|>So:"
    assert render(message("So:", None, [("f", {"a": 1})] * 2)) == f"{preamble}{NEXT}{call}<|start|>assistant{call}"
    assert render(message()) == ""


def test_what_cannot_be_written_is_refused():
    for broken in (message("a <|end|> b"), message("x", f"a{FINAL}b"), message(None, None, [("a b", {})])):
        with pytest.raises(ValueError, match="cannot be written"):
            get_parser("gpt-oss").render(broken)


def test_an_unknown_recipient_is_flagged():
    result = read("gpt-oss", CALL, function_tool("g"))
    assert ([call.name for call in result.calls], statuses(result)) == (["f"], ["unknown_tool"])
