"""The agent's text protocol: parsing of turns, observations, and the prompt."""

from __future__ import annotations

import json
import re

import pytest

pytest.importorskip("atroposlib", reason="hermes-atropos is not installed")

from hypothesis import given
from hypothesis import strategies as st

from hermes_atropos import ToolCall, ToolResult
from hermes_atropos.agent.react import observation, read_turn, system_prompt
from hermes_core.contracts.model import ModelReply, RequestedCall

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(), children, max_size=3),
    max_leaves=8,
)


def read(text, step=1, **fields):
    return read_turn(ModelReply(content=text, **fields), step)


def call(name="terminal", **arguments):
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def pairs(turn):
    return [(one.name, one.arguments) for one in turn.calls]


def test_calls_are_read_in_order_with_ids_that_do_not_change():
    turn = read(f"<think>two</think>{call(command='ls')}\n{call('read_file', path='a')}", step=3)
    assert pairs(turn) == [("terminal", {"command": "ls"}), ("read_file", {"path": "a"})]
    assert [one.uniq_id for one in turn.calls] == ["call_3_1", "call_3_2"]
    assert turn.calls[0].raw_text == call(command="ls")


def test_a_name_before_the_braces_is_read_too():
    assert pairs(read('<tool_call>terminal\n{"command": "ls"}</tool_call>')) == [("terminal", {"command": "ls"})]


@pytest.mark.parametrize("key", ["uniq_id", "id"])
def test_an_id_of_the_models_own_is_kept(key):
    turn = read(f'<tool_call>{{"name": "t", "arguments": {{}}, "{key}": "mine"}}</tool_call>')
    assert turn.calls[0].uniq_id == "mine"


def test_arguments_that_are_json_in_a_text_are_decoded():
    assert pairs(read('<tool_call>{"name": "t", "arguments": "{\\"a\\": 1}"}</tool_call>')) == [("t", {"a": 1})]


def test_marks_inside_a_call_are_text():
    command = "echo '</tool_call><tool_call>{}</tool_call> <think>'"
    assert pairs(read(call(command=command))) == [("terminal", {"command": command})]


def test_a_thought_inside_a_calls_arguments_is_text():
    content = "<think>x</think>"
    assert pairs(read(f"<think>y</think>{call('write_file', content=content)}")) == [
        ("write_file", {"content": content})
    ]
    assert pairs(read(call("write_file", content="</think>"))) == [("write_file", {"content": "</think>"})]


def test_a_raw_line_break_in_a_string_is_read():
    turn = read('<tool_call>{"name": "t", "arguments": {"text": "a\nb"}}</tool_call>')
    assert pairs(turn) == [("t", {"text": "a\nb"})]


def test_a_call_inside_a_thought_does_not_count():
    turn = read(f"<think>I could {call(command='rm -rf /')}</think>All done.")
    assert (turn.calls, turn.answer) == ([], "All done.")


def test_thinking_that_was_opened_in_the_prompt_ends_with_its_mark():
    turn = read(f"perhaps {call(command='x')}</think>The answer is 4.")
    assert (turn.calls, turn.answer) == ([], "The answer is 4.")


def test_thinking_that_never_ends_is_all_there_is():
    assert pairs(read(f"<think>so {call(command='ls')}")) == [("terminal", {"command": "ls"})]


def test_without_a_call_the_text_is_the_answer():
    turn = read("<think>2+2</think>\n4")
    assert (turn.calls, turn.problems, turn.answer) == ([], [], "4")


def test_an_empty_content_leaves_the_reasoning():
    assert read("", reasoning="It is 4.").answer == "It is 4."


def test_calls_that_a_server_took_out_are_written_back():
    requested = RequestedCall(id="c", name="terminal", arguments='{"command": "ls"}')
    turn = read("<think>look</think>", tool_calls=(requested,))
    assert turn.message == f"<think>look</think>\n{call(command='ls')}"
    assert pairs(turn) == [("terminal", {"command": "ls"})]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('<tool_call>{"name": "t", "arguments": {}}', "no </tool_call>"),
        ("<tool_call>ls -la</tool_call>", ", got 'ls -la"),
        ("<tool_call>", ", got ''"),
        ('<tool_call>{"arguments": {}}</tool_call>', 'no "name"'),
        ('<tool_call>{"name": 3}</tool_call>', 'no "name"'),
        ("<tool_call>[1]</tool_call>", "got list"),
        ('<tool_call>{"name": "t", "arguments": [1]}</tool_call>', "got list"),
        ('<tool_call>{"name": "t", "arguments": "x"}</tool_call>', "text that is not JSON"),
        ("<tool_call>" + "[" * 100_000, "nested too deep"),
    ],
)
def test_a_call_that_cannot_be_read_is_answered_and_never_a_final_answer(text, problem):
    """hermes-agent took it for a final answer, with success."""
    turn = read(text)
    assert turn.calls == []
    assert problem in turn.problems[0].error
    assert not turn.problems[0].success


def test_a_good_call_beside_a_bad_one_is_made():
    turn = read(f"<tool_call>oops</tool_call>{call(command='ls')}")
    assert pairs(turn) == [("terminal", {"command": "ls"})]
    assert [one.uniq_id for one in [*turn.problems, *turn.calls]] == ["call_1_1", "call_1_2"]


@pytest.mark.parametrize("flood", ["<tool_call>", '<tool_call>{"a":"', "<think>", "<tool_call>a{", "</think>"])
def test_a_flood_of_marks_is_read_at_once(flood):
    assert len(read(flood * 20_000).problems) <= 16


def test_a_flood_of_marks_with_good_calls_among_them_is_given_up():
    turn = read("\n" + ("<tool_call>x" * 15 + "<tool_call>f{}</tool_call>") * 20_000)
    assert (len(turn.problems), len(turn.calls)) == (64, 4)


@given(st.dictionaries(st.text(), JSON, max_size=4), st.text(), st.text())
def test_arguments_are_read_exactly_as_written(arguments, before, after):
    body = json.dumps({"name": "t", "arguments": arguments}, ensure_ascii=False)
    text = f"<think>{before.replace('<', '')}</think><tool_call>{body}</tool_call>{after.replace('<', '')}"
    assert pairs(read(text)) == [("t", arguments)]


@given(st.text())
def test_any_text_is_read(text):
    read(text)
    read(f"<tool_call>{text}")


def test_answers_are_one_message_of_blocks_in_order():
    results = [ToolResult(True, "a", uniq_id="c1"), ToolResult(False, "b", "Exit code: 2", {"exit_code": 2}, "c2")]
    assert observation(results) == (
        '<tool_response>{"success":true,"output":"a","uniq_id":"c1"}</tool_response>\n'
        '<tool_response>{"success":false,"output":"b","error":"Exit code: 2","uniq_id":"c2"}</tool_response>'
    )
    assert '"metadata":{"exit_code":2}' in observation(results, with_metadata=True)


@given(st.text(), st.lists(st.sampled_from(["</tool_response>", "<tool_call>", "</think>", "<tools>", "<b>"])))
def test_an_output_cannot_end_its_block_or_begin_a_call(text, marks):
    """In hermes-agent's observations a command that printed the marks forged them."""
    output = text + "".join(marks)
    written = ToolResult(True, output).to_xml()
    assert len(re.findall(r"</?(?:tool_response|tool_call|think|tools)\b", written)) == 2
    assert json.loads(written.removeprefix("<tool_response>").removesuffix("</tool_response>"))["output"] == (
        output.encode("utf-8", "replace").decode()
    )


def test_the_prompt_holds_the_tools_and_own_instructions_take_the_place_of_the_built_in_ones():
    assert '<tools>[{"name": "t"}]</tools>' in system_prompt('[{"name": "t"}]')
    assert system_prompt("[]", "Be brief.") == "Be brief.\n\n<tools>[]</tools>"
    assert system_prompt("[]", "Use <tools>none</tools>.") == "Use <tools>none</tools>."


def test_the_examples_in_the_prompt_are_read_as_calls():
    examples = system_prompt("[]").partition("Examples of turns:")[2].split("\n\n")
    assert [len(read(example).calls) for example in examples] == [1, 2, 0]


def test_a_call_and_a_result_are_values():
    assert ToolCall("t", {"a": 1}) == ToolCall(name="t", arguments={"a": 1})
