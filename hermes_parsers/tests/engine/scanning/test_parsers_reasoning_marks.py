"""`<think>` is reasoning in every family without channels, besides the family's marks; each test also streams."""

from __future__ import annotations

import pytest
from parser_reading import read, statuses

from hermes_core.contracts.parsing import AttemptStatus
from hermes_parsers import get_parser

CALLS = {
    "longcat": '<longcat_tool_call>{"name": "f", "arguments": {"a": "x"}}</longcat_tool_call>',
    "mistral": '[TOOL_CALLS]f[ARGS]{"a": "x"}',
    "gemma4": '<|tool_call>call:f{a:<|"|>x<|"|>}<tool_call|>',
    "seed_oss": "<seed:tool_call>\n<function=f>\n<parameter=a>\nx\n</parameter>\n</function>\n</seed:tool_call>",
    "kimi_k3": '<|open|>tools<|sep|><|open|>call tool="f" index="1"<|sep|><|open|>argument key="a" type="string"'
    "<|sep|>x<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>",
}
EVERY_CALL = pytest.mark.parametrize(("name", "call"), CALLS.items(), ids=list(CALLS))
"""The families whose templates use other marks of reasoning."""


@EVERY_CALL
def test_think_is_reasoning_beside_a_family_s_own_marks(name, call):
    result = read(name, f"<think>\nPlan.\n</think>\n\n{call}")
    assert (result.reasoning, result.content, statuses(result)) == ("Plan.", None, ["ok"])


@EVERY_CALL
def test_a_draft_in_think_is_not_run(name, call):
    result = read(name, f"<think>Maybe {call}?</think>No.")
    assert (result.calls, result.content, statuses(result)) == ((), "No.", ["in_reasoning"])
    promoted = read(name, f"<think>Maybe {call}?</think>No.", promote_drafts=True)
    assert [call.name for call in promoted.calls] == ["f"]


@EVERY_CALL
def test_a_lone_think_end_makes_reasoning_of_what_the_prompt_opened(name, call):
    result = read(name, f"Plan.</think>\n\n{call}")
    assert (result.reasoning, result.content, statuses(result)) == ("Plan.", None, ["ok"])


BLOCKS = {
    "hermes": ("<tool_call>", "</tool_call>"),
    "qwen3_coder": ("<tool_call>", "</tool_call>"),
    "glm47": ("<tool_call>", "</tool_call>"),
    "minimax_m2": ("<minimax:tool_call>", "</minimax:tool_call>"),
    "kimi_k2": ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
}


@pytest.mark.parametrize(("name", "marks"), BLOCKS.items(), ids=list(BLOCKS))
def test_reasoning_that_the_prompt_opened_may_name_the_marks_of_calls(name, marks):
    result = read(name, f"I write {marks[0]} and then {marks[1]}.</think>Done.")
    assert (result.reasoning, result.content) == (f"I write {marks[0]} and then {marks[1]}.", "Done.")
    assert statuses(result) == ["in_reasoning"]
    # The text after it is read as usual.
    again = read(name, f"I write {marks[0]} and then {marks[1]}.</think>{marks[0]} no {marks[1]}")
    assert (again.content, statuses(again)) == (None, ["in_reasoning", "invalid_json"])


@EVERY_CALL
def test_think_in_the_middle_of_an_answer_is_text(name, call):
    result = read(name, f"Use <think> and </think>. {call}")
    assert (result.reasoning, statuses(result)) == (None, ["ok"])
    assert (result.content or "").startswith("Use <think> and </think>.")


def test_a_family_writes_its_own_marks_and_keeps_those_it_has_read():
    parser = get_parser("mistral")
    message = {"role": "assistant", "reasoning_content": "Hm.", "content": "Hi"}
    assert parser.render(message) == "[THINK]Hm.[/THINK]Hi"
    assert parser.render(parser.parse("<think>Hm.</think>Hi")) == "<think>Hm.</think>Hi"
    with pytest.raises(ValueError, match="cannot be written"):
        parser.render({"role": "assistant", "content": "<think>Hm.</think>Hi"})


def test_each_reasoning_ends_at_the_mark_of_its_kind():
    result = read("mistral", "[THINK]a </think> b[/THINK]<think>c [/THINK] d</think>Done.")
    assert (result.reasoning, result.content) == ("a </think> b\nc [/THINK] d", "Done.")
    assert AttemptStatus.OK not in [attempt.status for attempt in result.attempts]
