"""Where a block of calls ends: at a duplicate closing mark, or after other text before the closing mark."""

from __future__ import annotations

import pytest
from parser_reading import function_tool, meaning, pieces, read, read_stream, scanning_parser, statuses, wide

from hermes_parsers import get_parser

CALL = {"id": "call00000", "function": {"name": "f", "arguments": {"a": "x"}}}
OTHER = {"id": "call00001", "function": {"name": "g", "arguments": {"n": 1}}}
MEANT = [("f", {"a": "x"})]
BOTH = [*MEANT, ("g", {"n": 1})]
PLAMO = "<|plamo:{}:plamo|>"
ENDS = {
    "hermes": ["</tool_call>"],
    "ernie45": ["</tool_call>"],
    "granite4": ["</tool_call>"],
    "longcat": ["</longcat_tool_call>"],
    "jamba": ["</tool_calls>"],
    "hunyuan": ["</tool_calls>"],
    "internlm": ["<|action_end|>"],
    "interns1": ["<|action_end|>"],
    "lfm2": ["<|tool_call_end|>"],
    "olmo3": ["</function_calls>"],
    "gemma4": ["<tool_call|>"],
    "functiongemma": ["<end_function_call>"],
    "cohere_command3": ["<|END_ACTION|>"],
    "cohere_command4": ["<|END_ACTION|>"],
    "apertus": ["<|tools_suffix|>"],
    "inkling": ["<|end_message|>"],
    "gpt-oss": ["<|call|>"],
    "kimi_k2": ["<|tool_call_end|>", "<|tool_calls_section_end|>"],
    "deepseek_v3": [wide("<|tool▁call▁end|>"), wide("<|tool▁calls▁end|>")],
    "deepseek_v31": [wide("<|tool▁call▁end|>"), wide("<|tool▁calls▁end|>")],
    "plamo3": [PLAMO.format(f"end_{end}") for end in ("tool_arguments", "tool_request", "tool_requests")],
}
"""The closing marks of the families without tagged parameters, as their templates write them."""
ONE_MARK = [name for name, marks in ENDS.items() if len(marks) == 1]
SECTIONS = ["kimi_k2", "deepseek_v3", "deepseek_v31", "plamo3"]
EVERY_END = [(name, mark) for name, marks in ENDS.items() for mark in marks]
each_end = pytest.mark.parametrize(("name", "mark"), EVERY_END)


def write_calls(name, *calls):
    return get_parser(name).render({"role": "assistant", "content": None, "tool_calls": list(calls)})


def before_last(text, mark, added):
    """Put something before the last of a mark."""
    at = text.rindex(mark)
    return text[:at] + added + text[at:]


@each_end
@pytest.mark.parametrize("again", ["{0}", "{0}\n", "{0}{0}", " {0} \n{0}\t"])
@pytest.mark.parametrize("tools", [(), (function_tool("f", a={"type": "string"}),)])
def test_a_closing_mark_that_stands_there_twice_is_repaired_and_no_content(name, mark, again, tools):
    text = before_last(write_calls(name, CALL), mark, again.format(mark))
    result = read(name, text, *tools)
    assert (meaning(result), result.content, statuses(result)) == (MEANT, None, ["repaired"])
    assert f"the closing {mark} appears twice" in result.attempts[0].reason


@each_end
def test_a_doubled_mark_costs_neither_the_next_call_nor_the_text_behind_it(name, mark):
    both = write_calls(name, CALL, OTHER)
    if both.count(mark) > 1:
        first = both.replace(mark, mark * 2, 1)
        assert (meaning(read(name, first)), read(name, first).content) == (BOTH, None)
        assert statuses(read(name, first)) == ["repaired", "ok"]
    text = before_last(both, mark, mark) + "Done."
    result = read(name, text)
    assert (meaning(result), result.content) == (BOTH, "Done.")
    assert statuses(result)[-1] == "repaired"


@pytest.mark.parametrize("name", [name for name in ONE_MARK if name not in {"gpt-oss", "inkling"}])
def test_both_marks_twice_are_one_call(name):
    parser = scanning_parser(name)
    opener = next(mark for mark in parser.openers if write_calls(name, CALL).startswith(mark))
    text = before_last(write_calls(name, CALL), ENDS[name][0], ENDS[name][0])
    result = read(name, opener + text)
    assert (meaning(result), result.content, statuses(result)) == (MEANT, None, ["repaired"])


def test_a_doubled_mark_keeps_what_else_is_said_of_a_call():
    doubled = write_calls("hermes", CALL) + "</tool_call>"
    unknown = read("hermes", doubled, function_tool("g")).attempts[0]
    assert unknown.status == "unknown_tool"
    assert unknown.reason == "there is no tool 'f'; the closing </tool_call> appears twice"
    bad = read("hermes", "<tool_call>{]</tool_call></tool_call>")
    assert (statuses(bad), bad.content) == (["invalid_json"], None)
    assert "twice" not in bad.attempts[0].reason


@pytest.mark.parametrize(("name", "mark"), [end for end in EVERY_END if "end_tool_request:" not in end[1]])
@pytest.mark.parametrize("rest", [" and more", "\nI did it.\n", ", and", '"', "5", "</b>"])
def test_what_stands_between_a_call_and_its_closing_mark_is_an_attempt(name, mark, rest):
    text = before_last(write_calls(name, CALL), mark, rest)
    for tail in ("", " Done."):
        result = read(name, text + tail)
        assert (result.content or "").strip() == tail.strip()
        assert statuses(result)[-1] == "invalid_json"
        assert meaning(result) in (MEANT, [])


@pytest.mark.parametrize("name", SECTIONS)
@pytest.mark.parametrize("rest", ["words", "\nwords ", "<b>"])
def test_what_stands_between_the_calls_of_a_section_is_an_attempt_and_costs_no_call(name, rest):
    call_end, section_end = ENDS[name][-2:]
    text = write_calls(name, CALL, OTHER).replace(call_end, call_end + rest)
    result = read(name, text + "Done.")
    assert (meaning(result), result.content) == (BOTH, "Done.")
    assert statuses(result) == ["ok", "invalid_json", "ok", "invalid_json"]
    assert [rest.strip() in attempt.reason for attempt in result.attempts] == [False, True, False, True]
    assert section_end in result.attempts[-1].reason


@pytest.mark.parametrize("name", SECTIONS)
def test_text_behind_a_section_whose_end_is_missing_is_text(name):
    text = write_calls(name, CALL).removesuffix(ENDS[name][-1])
    assert read(name, f"{text}\nDone.").content.strip() == "Done."
    twice = read(name, f"{text}\nAnd.\n{write_calls(name, OTHER)}")
    assert (meaning(twice), twice.content.strip()) == (BOTH, "And.")


def test_text_behind_a_closed_call_is_text_whatever_mark_it_names():
    for text in ("\nI closed it with </tool_call>, as I should.", "\nDone.", "\n<b>", "\n</tool_cal"):
        result = read("hermes", write_calls("hermes", CALL) + text)
        assert (result.content, statuses(result)) == (text, ["ok"])


def test_text_behind_a_call_without_a_closing_mark_is_text_where_none_follows():
    open_call = write_calls("hermes", CALL).removesuffix("\n</tool_call>")
    result = read("hermes", f"{open_call}\nDone.")
    assert (meaning(result), result.content, statuses(result)) == (MEANT, "\nDone.", ["unclosed"])
    result = read("hermes", f"{open_call}\nAnd:\n{write_calls('hermes', OTHER)}")
    assert (meaning(result), result.content, statuses(result)) == (BOTH, "\nAnd:", ["unclosed", "ok"])


@each_end
def test_a_stream_tells_the_call_before_it_knows_whether_the_mark_is_doubled(name, mark):
    text = write_calls(name, CALL)
    text = text[: text.rindex(mark) + len(mark)]
    stream = get_parser(name).stream()
    told = [event.kind for delta in pieces(text, 3) for event in stream.feed(delta)]
    if mark == ENDS[name][0]:
        assert told == ["call"]
        assert not [event for event in stream.feed(mark) if event.kind == "call"]


@each_end
@pytest.mark.parametrize("size", [1, 2, 7])
def test_a_stream_reads_block_ends_as_a_parse_does(name, mark, size):
    for added in (mark, f"{mark} {mark}", " junk ", f"junk{mark}junk"):
        text = f"Hi {before_last(write_calls(name, CALL, OTHER), mark, added)}\nDone {mark}."
        parser = get_parser(name)
        assert read_stream(parser, pieces(text, size))[1] == parser.parse(text)
        assert parser.render(parser.parse(text)) == text
