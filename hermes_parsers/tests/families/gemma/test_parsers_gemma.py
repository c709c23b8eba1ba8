"""Calls as Gemma writes them: repairs, and the readable parts of broken calls."""

from __future__ import annotations

import pytest
from parser_reading import meaning, read, statuses

from hermes_parsers import get_parser


def test_gemma_reasons_in_a_channel_of_its_own():
    call = '<|tool_call>call:f{a:<|"|>x<|"|>}<tool_call|>'
    message = {
        "reasoning_content": "hm",
        "content": "",
        "tool_calls": [{"function": {"name": "f", "arguments": {"a": "x"}}}],
    }
    text = get_parser("gemma4").render(message)
    assert text == f"<|channel>thought\nhm\n<channel|>{call}"
    result = read("gemma4", text)
    assert (result.reasoning, result.content, meaning(result)) == ("hm", None, [("f", {"a": "x"})])


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ('f{a:<|"|>x', "truncated"),
        ("f{a:1}", "unclosed"),
        ("f{a:1,}<tool_call|>", "invalid_json"),
        ("f{a:foo}<tool_call|>", "invalid_json"),
        ("f{a:1b:2}<tool_call|>", "invalid_json"),
        ("f{a:1}}<tool_call|>", "invalid_json"),
        ('f{a:<|"|>x}<tool_call|>', "invalid_json"),
        ("{a:1}<tool_call|>", "missing_name"),
    ],
)
def test_a_broken_gemma_call_is_told_and_the_next_is_kept(body, status):
    alone = read("gemma4", f"<|tool_call>call:{body}")
    assert statuses(alone) == [status]
    assert alone.attempts[0].reason
    following = "" if "<tool_call|>" in body else "<tool_call|>"
    result = read("gemma4", f'<|tool_call>call:{body}{following}<|tool_call>call:g{{b:<|"|>y<|"|>}}<tool_call|>')
    assert meaning(result)[-1] == ("g", {"b": "y"})


@pytest.mark.parametrize("body", ["f{a:1,}", "f{a:1}}", "f{a:[1,2,]}"])
def test_lenient_mode_repairs_gemma_s_commas_and_braces(body):
    result = read("gemma4", f"<|tool_call>call:{body}<tool_call|>", mode="lenient")
    assert (len(result.calls), statuses(result)) == (1, ["repaired"])


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("location:Paris", {"location": "Paris"}),
        ("date:2024-01-01,n:1", {"date": "2024-01-01", "n": 1}),
        ("key:", {"key": ""}),
        ("l:[New York , 2]", {"l": ["New York", 2]}),
    ],
)
def test_lenient_mode_takes_gemma_s_bare_words_for_text(body, value):
    text = f"<|tool_call>call:f{{{body}}}<tool_call|>"
    result = read("gemma4", text, mode="lenient")
    assert (meaning(result), statuses(result)) == ([("f", value)], ["repaired"])
    assert statuses(read("gemma4", text)) == ["invalid_json"]


@pytest.mark.parametrize("body", ["f{a:1 = x}", "f{a:07x, b:2}", "f{a:[2024-01-01 at noon]}", "f{a:None or so}"])
def test_lenient_mode_takes_bare_words_wherever_the_stream_cuts_them(body):
    text = f"<|tool_call>call:{body}<tool_call|>"
    parser = get_parser("gemma4")
    whole = parser.parse(text, mode="lenient")
    assert statuses(whole) == ["repaired"]
    for place in range(1, len(text)):
        stream = parser.stream(mode="lenient")
        stream.feed(text[:place])
        stream.feed(text[place:])
        stream.finish()
        assert stream.result() == whole
