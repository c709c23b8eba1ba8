"""A caller that edits history: the prompt is the template's rendering of the edited history, and the report says so."""

from __future__ import annotations

import asyncio
import contextlib
import copy

import pytest
from chatml_folder import chatml_folder
from edited_rollout import EDITS, THINKING, EditedRollout, assert_true, new_call, result
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_core.contracts.errors import ModelRequestError, ModelServerError
from hermes_core.contracts.model import ToolSchemas
from hermes_tokens.append_rule.append import AppendRule
from hermes_tokens.tokenizer import ChatTokenizer

RESTORES = 13
"""An edit at this place takes all edits back."""


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> ChatTokenizer:
    return ChatTokenizer.load(chatml_folder(tmp_path_factory.mktemp("tokenizer"), template=THINKING))


@given(
    edits=st.lists(st.tuples(st.sampled_from(sorted(EDITS)), st.integers(0, RESTORES)), min_size=1, max_size=3),
    turns=st.integers(1, 4),
    tells=st.booleans(),
    in_place=st.booleans(),
    fails=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_any_edit_of_any_message_is_sent_as_the_template_writes_it(tokenizer, edits, turns, tells, in_place, fails):
    async def run_edits() -> None:
        rollout = EditedRollout(tokenizer, tells=tells)
        await rollout.turns(turns)
        earlier = [copy.deepcopy(rollout.messages)]
        for name, at in edits:
            before, original = rollout.written, copy.deepcopy(rollout.messages)
            rollout.messages = rollout.messages if in_place else copy.deepcopy(rollout.messages)
            if at == RESTORES:
                rollout.messages = copy.deepcopy(earlier[0])
            elif not EDITS[name](rollout.messages, at % len(rollout.messages)) or not rollout.messages:
                rollout.messages = original
            branches = len(rollout.reasons())
            await sample_answer(rollout, fails=fails)
            assert rollout.written[: len(before)] != before or len(rollout.reasons()) == branches
            branches = len(rollout.reasons())
            await sample_answer(rollout)
            assert len(rollout.reasons()) == branches
            earlier.append(copy.deepcopy(rollout.messages))

    asyncio.run(run_edits())


async def sample_answer(rollout: EditedRollout, *, fails: bool = False) -> None:
    """Sample one turn that nothing was edited in, and look at what was sent and reported."""
    answer = {"role": "assistant", "content": "I see."}
    if fails:
        rollout.sampler.fails = 1
        with pytest.raises(ModelServerError):
            await rollout.turn(answer)
    await rollout.turn(answer)
    assert rollout.sent == rollout.written
    assert_true(rollout)
    rollout.messages += [answer, {"role": "user", "content": "Go on."}]


@pytest.mark.parametrize("tells", [True, False])
async def test_a_conversation_that_was_edited_and_restored_is_sent_unchanged(tokenizer, tells):
    rollout = EditedRollout(tokenizer, tells=tells)
    await rollout.turns(3)
    original = copy.deepcopy(rollout.messages)
    rollout.messages[1]["content"] = "Something else."
    await rollout.turn({"role": "assistant", "content": "Else."})
    rollout.messages = original
    await rollout.turn({"role": "assistant", "content": "It says 42."})
    assert rollout.sent == rollout.written
    assert_true(rollout)


async def test_an_edit_that_is_reverted_after_a_failed_request_starts_no_branch(tokenizer):
    rollout = EditedRollout(tokenizer, tells=True)
    await rollout.turns(2)
    original = copy.deepcopy(rollout.messages)
    rollout.messages[1]["content"] = "Something else."
    rollout.sampler.fails = 1
    with pytest.raises(ModelServerError):
        await rollout.turn({"role": "assistant", "content": "Else."})
    rollout.messages = original
    await rollout.turn({"role": "assistant", "content": "Here."})
    assert rollout.reasons() == [""]
    assert_true(rollout)


@pytest.mark.parametrize(
    ("name", "at", "shown"),
    [
        ("shorten", 4, "turn 1, content of message 4 (assistant)"),
        ("remove a call", 6, "turn 2, tool_calls of message 6 (assistant)"),
        ("redact arguments", 6, "turn 2, tool_calls of message 6 (assistant)"),
        ("change reasoning", 2, "turn 0, reasoning_content of message 2 (assistant)"),
        ("redact", 3, "turn 1, content of message 3 (tool)"),
        ("drop", 3, "turn 1, absence of message 3 (tool)"),
        ("another role", 4, "turn 1, role of message 4 (assistant)"),
        ("insert a system", 0, "turn 0, content of message 0 (system)"),
    ],
)
@pytest.mark.parametrize("tells", [True, False])
async def test_a_branch_names_turn_and_field_of_the_edit_and_is_refused_where_branches_are_not_allowed(
    tokenizer, name, at, shown, tells
):
    answer = {"role": "assistant", "content": "I see."}
    rollout, strict = EditedRollout(tokenizer, tells=tells), EditedRollout(tokenizer, tells=tells, allow_branches=False)
    for each in (rollout, strict):
        await each.turns(3)
        EDITS[name](each.messages, at)
    await rollout.turn(answer)
    assert rollout.reasons() == ["", f"history_edited: {shown}"]
    original = copy.deepcopy(strict.messages)
    with pytest.raises(ModelRequestError, match="got an edited one: turn") as refused:
        await strict.turn(answer)
    assert shown in refused.value.message
    assert not refused.value.fatal
    # A refused edit leaves no trace: the unedited conversation continues.
    strict.messages = copy.deepcopy(original)
    fresh = EditedRollout(tokenizer, tells=tells)
    await fresh.turns(3)
    strict.messages = fresh.messages
    await strict.turn(answer)
    assert strict.reasons() == [""]
    assert_true(strict)


@pytest.mark.parametrize("tells", [True, False])
async def test_a_shortened_conversation_continues_from_the_turn_before(tokenizer, tells):
    rollout = EditedRollout(tokenizer, tells=tells)
    await rollout.turns(3)
    rollout.messages = [*rollout.messages[:3], result(1, "another.txt")]
    await rollout.turn({"role": "assistant", "content": "I see."})
    assert rollout.sent == rollout.written
    assert rollout.reasons() == ["", "history_edited: turn 1, content of message 3 (tool)"]
    del rollout.messages[2:]
    await rollout.turn({"role": "assistant", "content": "Nothing."})
    assert rollout.reasons()[2:] == ["history_edited: turn 0, absence of message 2 (assistant)"]
    assert rollout.sent == rollout.written
    assert_true(rollout)


async def test_later_changes_to_answered_messages_do_not_change_the_report(tokenizer):
    rollout = EditedRollout(tokenizer, tells=True)
    await rollout.turns(2)
    await rollout.turn({"role": "assistant", "content": "Here."})
    for message in rollout.messages:
        message["content"] = "gone"
    assert rollout.session.exactness().is_exact


@pytest.mark.parametrize("tells", [True, False])
async def test_other_tools_are_an_edit(tokenizer, tells):
    rollout = EditedRollout(tokenizer, tells=tells)
    await rollout.turns(2)
    await rollout.turn({"role": "assistant", "content": "Here."}, tools=ToolSchemas())
    rollout.rule = AppendRule(tokenizer)
    assert rollout.sent == rollout.written
    assert rollout.reasons() == ["", "history_edited: turn 0, tools of message 0 (system)"]
    assert_true(rollout)


@pytest.mark.parametrize(
    ("sampled", "name", "arguments"),
    [
        ('<tool_call>{"arguments":{"command":"ls"},"name":"terminal"}</tool_call>', "terminal", '{"command": "ls"}'),
        ('<tool_call>\n{"name": "terminal", "arguments": {"n": 1e3}}\n</tool_call>\n', "terminal", '{"n": 1000.0}'),
        ('<tool_call>{"name": "t\\u00e4", "arguments": {"a": "\\/x"}}</tool_call>', "tä", '{"a": "/x"}'),
    ],
    ids=["in another order", "with another number's form", "in escapes"],
)
async def test_differently_spelled_json_is_not_an_edit_where_the_parser_recorded_it(
    tokenizer, sampled, name, arguments
):
    rollout = EditedRollout(tokenizer, tells=True)
    function = {"name": name, "arguments": arguments}
    answer = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "a", "type": "function", "function": function}],
    }
    await rollout.sample(f"{sampled}<|im_end|>")
    rollout.session.record_message(copy.deepcopy(answer))
    rollout.messages += [answer, {"role": "tool", "tool_call_id": "a", "content": "x"}]
    await rollout.sample("Done.<|im_end|>")
    assert rollout.reasons() == [""]
    assert_true(rollout)


HOSTILE = (
    "",
    "{" * 2000,
    '{"a":' * 3000,
    "<" * 4000,
    '[{"a": "' * 2000,
    '{"\\"' * 50_000,
    '{"a":[' * 400 + "0," * 50_000,
)


@pytest.mark.parametrize("content", HOSTILE, ids=range(len(HOSTILE)))
async def test_a_turn_of_hostile_text_is_held_against_its_message(tokenizer, content):
    rollout = EditedRollout(tokenizer, tells=False)
    await rollout.sample(f"{content}x<|im_end|>")
    rollout.messages += [
        {"role": "assistant", "content": content, "tool_calls": [new_call(1, "ls")]},
        {"role": "tool", "tool_call_id": "call_1", "content": "x"},
    ]
    await rollout.sample("Done.<|im_end|>")
    assert len(rollout.reasons()) == 2
    assert rollout.sent == rollout.written


async def test_text_after_a_call_that_the_template_writes_before_it_is_not_an_edit(tokenizer):
    rollout = EditedRollout(tokenizer, tells=False)
    answer = {"role": "assistant", "content": "I listed them.", "tool_calls": [new_call(1, "ls")]}
    calls = rollout.text({**answer, "content": None}).removesuffix("<|im_end|>")
    await rollout.sample(f"{calls}\nI listed them.<|im_end|>")
    rollout.messages += [answer, result(1, "x")]
    await rollout.sample("Done.<|im_end|>")
    assert rollout.reasons() == [""]
    assert_true(rollout)


@pytest.mark.parametrize("tells", [True, False])
async def test_going_back_and_forth_between_versions_is_a_branch_for_each_and_no_more(tokenizer, tells):
    rollout = EditedRollout(tokenizer, tells=tells)
    await rollout.turns(2)
    original, edited = copy.deepcopy(rollout.messages), copy.deepcopy(rollout.messages)
    edited[2]["content"] = "I do not look."
    for messages in (edited, original, edited, original):
        rollout.messages = messages
        answer = {"role": "assistant", "content": "I see."}
        await rollout.turn(answer)
        assert rollout.sent == rollout.written
        assert_true(rollout)
        messages += [answer, {"role": "user", "content": "Go on."}]
    assert rollout.reasons() == ["", "history_edited: turn 0, content of message 2 (assistant)"]


@pytest.mark.parametrize("key", ["timestamp", "refusal", "model"])
async def test_a_field_that_the_template_does_not_read_is_never_an_edit(tokenizer, key):
    rollout = EditedRollout(tokenizer, tells=True)
    rollout.spells = True
    await rollout.turns(2)
    for message in rollout.messages:
        message[key] = "3"
    await rollout.turn({"role": "assistant", "content": "Here."})
    assert rollout.reasons() == [""]
    assert_true(rollout)


async def test_an_oddly_sampled_turn_is_rendered_again_only_where_it_was_edited(tokenizer):
    rollout = EditedRollout(tokenizer, tells=True)
    rollout.spells = True
    await rollout.turns(2)
    rollout.messages[4]["content"] = "There is nothing."
    await rollout.turn({"role": "assistant", "content": "Here."})
    assert tokenizer.decode(rollout.sent) == tokenizer.decode(rollout.written)
    assert rollout.reasons() == ["", "history_edited: turn 1, content of message 4 (assistant)"]
    assert rollout.session.exactness().is_exact
    assert rollout.check().is_exact


async def test_an_agent_that_keeps_the_text_of_a_turn_has_not_edited_what_was_recorded(tokenizer):
    rollout = EditedRollout(tokenizer, tells=True)
    answer = {"role": "assistant", "content": "I look.", "tool_calls": [new_call(1, "ls")]}
    text = rollout.text(answer)
    await rollout.turn(answer)
    rollout.messages += [{"role": "assistant", "content": text.removesuffix("<|im_end|>")}, result(1, "x")]
    await rollout.sample("Done.<|im_end|>")
    assert rollout.reasons() == [""]
    assert_true(rollout)


async def test_a_fault_of_the_server_is_not_hidden_behind_an_edit(tokenizer):
    rollout = EditedRollout(tokenizer, tells=True)
    await rollout.turns(1)
    rollout.messages[1]["content"] = "Something else."
    rollout.sampler.aborts = 4
    for _ in range(2):
        if rollout.sampler.aborts:
            with pytest.raises(ModelServerError, match="aborts by the server"):
                await rollout.sample("I")
        else:
            await rollout.sample("I see.<|im_end|>")
    report = rollout.session.exactness()
    assert report.break_reasons == {"history_edited": 1, "engine": 1}
    assert not report.is_exact


async def test_a_turn_that_the_server_left_unfinished_is_refused_where_branches_are_not_allowed(tokenizer):
    rollout = EditedRollout(tokenizer, tells=True, allow_branches=False)
    rollout.sampler.aborts = 4
    with pytest.raises(ModelServerError, match="aborts by the server"):
        await rollout.sample("I")
    with pytest.raises(ModelRequestError, match="a turn that the server left unfinished"):
        await rollout.sample("I see.<|im_end|>")


@pytest.mark.parametrize(
    ("before", "after"),
    [("a\ud800", "a?"), (None, ""), ("a\u0301", "\u00e1")],
    ids=["a lone surrogate", "no content", "another form of a letter"],
)
async def test_a_small_edit_of_a_tools_result_is_sent(tokenizer, before, after):
    rollout = EditedRollout(tokenizer, tells=True)
    await rollout.turns(1)
    rollout.messages[3]["content"] = before
    await rollout.turn({"role": "assistant", "content": "I see."})
    first = rollout.sent
    rollout.messages[3]["content"] = after
    await rollout.turn({"role": "assistant", "content": "I see."})
    assert rollout.sent == rollout.written
    assert rollout.sent != first


async def test_an_edit_of_a_call_without_a_function_object_is_sent(tokenizer):
    rollout = EditedRollout(tokenizer, tells=True)
    flat = {"id": "a", "name": "terminal", "arguments": {"command": "secret"}}
    rollout.messages[1:1] = [{"role": "assistant", "content": "", "tool_calls": [flat]}, result(1, "x")]
    await rollout.turns(1)
    flat["arguments"] = {"command": "***"}
    await rollout.turn({"role": "assistant", "content": "I see."})
    assert rollout.sent == rollout.written
    assert "secret" not in tokenizer.decode(rollout.sent)


@pytest.mark.parametrize("calls", [["s"], "str", [{"function": "f"}], [{"function": {"arguments": "{" * 9}}]])
@pytest.mark.parametrize("tells", [True, False])
async def test_invalid_calls_are_refused_or_sent_and_never_a_crash(tokenizer, calls, tells):
    rollout = EditedRollout(tokenizer, tells=tells)
    await rollout.turns(1)
    rollout.messages[2]["tool_calls"] = calls
    with contextlib.suppress(ModelRequestError):
        await rollout.sample("I see.<|im_end|>")
        assert len(rollout.reasons()) == 2


async def test_an_id_of_the_wire_that_a_client_drops_is_written_all_the_same(tmp_path):
    template = THINKING.replace("<tool_response>\n", "<tool_response>{{ message.tool_call_id }}\n")
    tokenizer = ChatTokenizer.load(chatml_folder(tmp_path / "tokenizer", template=template))
    sent = []
    for drops in (False, True):
        rollout = EditedRollout(tokenizer, tells=True)
        call = {**new_call(1, "ls"), "wire_id": "wired:0"}
        answer = {"role": "assistant", "content": None, "tool_calls": [call]}
        await rollout.turn(answer)
        kept = {key: value for key, value in call.items() if key != "wire_id" or not drops}
        rollout.messages += [{**answer, "tool_calls": [kept]}, result(1, "x")]
        await rollout.sample("Done.<|im_end|>")
        assert rollout.reasons() == [""]
        sent.append(tokenizer.decode(rollout.sent))
    assert sent[0] == sent[1]
    assert "<tool_response>wired:0\n" in sent[0]
