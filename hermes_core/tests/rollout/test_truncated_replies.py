"""Replies that the token limit cuts off in the middle of a tool call: the model is told so, and not forever."""

from __future__ import annotations

import json

import pytest
from rollout_script import Script, call, calls, says, spec_for

from hermes_core.contracts.model import ModelReply, Usage
from hermes_core.contracts.parsing import AttemptStatus, BufferedParser, ParseAttempt, ParsedCall, ParseResult
from hermes_core.contracts.rollout import StopReason
from hermes_core.rollout import RolloutLimits, Runtime, run_rollout
from hermes_core.rollout.interpretation import parse_reply

USAGE = Usage(prompt_tokens=10, completion_tokens=512)
CUT = '{"path": "a.txt", "content": "once upon'


@pytest.fixture
async def run_script(registry):
    """Run a rollout with a script; its last reply can be repeated."""
    async with Runtime(registry) as runtime:

        async def _run_script(*replies, **fields):
            return await run_rollout(spec_for(registry, **fields), runtime, Script(*replies))

        yield _run_script


def cut(*items):
    return ModelReply(content=None, tool_calls=items, finish_reason="length", usage=USAGE)


def answers(outcome):
    return [json.loads(message["content"]) for message in outcome.messages if message["role"] == "tool"]


@pytest.mark.parametrize("arguments", [CUT, "", '"{\\"n\\": ', '{"n": 1'])
async def test_a_call_that_the_token_limit_cut_is_not_made_and_the_model_is_told_why(run_script, arguments):
    outcome = await run_script(cut(call("sync_square", arguments)), says("done"))
    (answer,) = answers(outcome)
    assert "cut off at the limit of 512 tokens" in answer["error"]
    assert "shorter call" in answer["error"]
    assert "JSON" not in answer["error"]
    assert (outcome.stop_reason, outcome.counters["truncated_replies"]) == (StopReason.FINAL_ANSWER, 1)
    assert (outcome.counters["invalid_arguments"], len(outcome.tool_errors)) == (1, 1)


async def test_a_server_that_counts_no_tokens_lets_the_limit_have_no_number(run_script):
    reply = ModelReply(content=None, tool_calls=(call("noop", CUT),), finish_reason="length")
    (answer,) = answers(await run_script(reply, says("done")))
    assert "cut off at the limit of tokens" in answer["error"]


async def test_whole_calls_before_the_one_that_was_cut_are_made(run_script):
    outcome = await run_script(cut(call("sync_square", '{"n": 3}'), call("sync_square", CUT, "c_2")), says("done"))
    whole, lost = answers(outcome)
    assert whole == 9
    assert "cut off" in lost["error"]
    assert [m["tool_call_id"] for m in outcome.messages if m["role"] == "tool"] == ["c_sync_square", "c_2"]
    assert outcome.counters["tool_calls_attempted"] == 2


async def test_a_call_that_is_whole_is_made_though_the_limit_was_reached(run_script):
    outcome = await run_script(cut(call("sync_square", '{"n": 3}')), says("done"))
    assert answers(outcome) == [9]
    assert outcome.counters["truncated_replies"] == 0


async def test_a_call_that_the_model_itself_wrote_badly_is_answered_as_before(run_script):
    outcome = await run_script(calls(call("sync_square", CUT)), says("done"))
    assert "Invalid JSON" in answers(outcome)[0]["error"]
    assert outcome.counters["truncated_replies"] == 0


@pytest.mark.parametrize(("most", "turns"), [(1, 1), (3, 3), (5, 5), (None, 8)])
async def test_so_many_truncated_replies_in_a_row_end_the_rollout(run_script, most, turns):
    limits = RolloutLimits(max_agent_turns=8, max_truncated_replies=most)
    outcome = await run_script(*[cut(call("noop", CUT))] * 8, limits=limits, verifier="half")
    stop = StopReason.MAX_TURNS if most is None else StopReason.TOKEN_LIMIT
    assert (outcome.stop_reason, outcome.turns, outcome.reward) == (stop, turns, 0.5)


async def test_a_whole_reply_between_them_begins_the_count_anew(run_script):
    twice = [cut(call("noop", CUT))] * 2
    outcome = await run_script(*twice, calls(call("noop")), *twice, says("done"))
    assert (outcome.stop_reason, outcome.counters["truncated_replies"]) == (StopReason.FINAL_ANSWER, 4)


async def test_a_cut_call_that_the_server_hands_back_as_text_is_told_as_well(run_script):
    """vLLM does that with a call it cannot read."""
    text = '<tool_call>{"name": "sync_square", "arguments": {"n": 1'
    outcome = await run_script(says(text, finish_reason="length", usage=USAGE), says("done"))
    assert [message["role"] for message in outcome.messages] == ["user", "assistant", "user", "assistant"]
    assert "cut off at the limit of 512 tokens" in outcome.messages[2]["content"]
    counted = (outcome.counters["truncated_replies"], outcome.counters["unparsed_replies"])
    assert (outcome.stop_reason, counted) == (StopReason.FINAL_ANSWER, (1, 0))


class Lines(BufferedParser):
    """Reads one call for each line, `!` at the end of one that is whole."""

    def parse(self, text, tools=None, mode="strict"):
        whole = [line[:-1] for line in text.split() if line.endswith("!")]
        found = [ParsedCall(name=name, arguments="{}", id=f"c_{name}") for name in whole]
        if text.endswith("!"):
            return ParseResult(content=None, calls=tuple(found))
        bad = ParseAttempt(status=AttemptStatus.TRUNCATED, raw=text, start=0, end=len(text), reason="it ends")
        return ParseResult(content=None, calls=tuple(found), attempts=(bad,))


@pytest.mark.parametrize(("text", "made"), [("noo", 0), ("noop! noo", 1)])
def test_raw_text_that_the_token_limit_cut_is_told_from_a_call_written_badly(text, made):
    turn = parse_reply(ModelReply(content=text, finish_reason="length", usage=USAGE), Lines())
    assert (len(turn.calls), turn.truncation in turn.complaint) == (made, True)
    assert "cut off at the limit of 512 tokens" in turn.complaint
    badly = parse_reply(ModelReply(content=text, usage=USAGE), Lines())
    assert (badly.truncation, "cut off" in badly.complaint) == (None, False)


def test_a_text_that_was_cut_is_no_call_where_no_tool_was_offered():
    reply = ModelReply(content="the element <function> stands for", finish_reason="length", usage=USAGE)
    assert parse_reply(reply, None).truncation is None
    assert parse_reply(reply, None, offered=["noop"]).truncation is not None
