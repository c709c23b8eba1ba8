"""One rollout from sandbox to outcome, through the public entry `run_rollout`."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest
from rollout_components import BEGUN, WRITER, WRITTEN
from rollout_script import Script, call, calls, says, spec_for

from hermes_core.contracts.errors import (
    ContextOverflowError,
    ContextUnusableError,
    ModelAuthError,
    ModelServerError,
    SandboxRefusedError,
    UnknownComponentError,
)
from hermes_core.contracts.model import ModelRequest, ToolSchemas
from hermes_core.contracts.rollout import RewardStatus, StopReason
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_core.contracts.task import TaskFile
from hermes_core.rollout import RolloutLimits, Runtime, run_rollout
from hermes_testing.watching import TooSoon, with_more_time


@pytest.fixture
async def runtime(registry):
    async with Runtime(registry) as runtime:
        yield runtime


async def run_script(runtime, model, **fields):
    return await run_rollout(spec_for(runtime.registry, **fields), runtime, model)


async def test_a_final_answer_ends_the_rollout_and_is_scored(runtime):
    outcome = await run_script(runtime, Script(calls(call("noop")), says("done")), verifier="half")
    assert (outcome.stop_reason, outcome.reward_status) == (StopReason.FINAL_ANSWER, RewardStatus.OK)
    assert (outcome.reward, outcome.reward_parts, outcome.turns) == (0.5, {"a": 1.0, "b": 0.0}, 2)
    assert [message["role"] for message in outcome.messages] == ["user", "assistant", "tool", "assistant"]
    json.dumps(outcome.to_json())


async def test_the_record_keeps_usage_and_splits_the_time(runtime):
    outcome = await run_script(runtime, Script(calls(call("noop"), tokens=7), says("done")), verifier="half")
    assert outcome.counters["completion_tokens"] == 7
    timings = outcome.timings
    parts = timings.model + timings.tool + timings.sandbox_start + timings.verifier + timings.framework
    assert parts == pytest.approx(timings.total)


async def test_every_reply_of_the_model_is_reported_once_and_no_error_is(runtime):
    model, turns = Script(calls(call("noop")), ModelServerError("502")), []
    outcome = await run_rollout(spec_for(runtime.registry, rollout_id="r7"), runtime, model, on_turn=turns.append)
    assert (outcome.stop_reason, turns) == (StopReason.MODEL_ERROR, ["r7"])


async def test_further_turns_check_no_object_against_a_protocol(runtime):
    """isinstance() of a protocol with several methods is the slowest thing that a turn could do by itself."""
    checked = []

    def note_check(frame, event, _):
        if event == "call" and frame.f_code.co_name == "__instancecheck__" and "typing" in frame.f_code.co_filename:
            checked.append(frame.f_locals["cls"].__name__)

    async def checks_in(turns):
        checked.clear()
        sys.setprofile(note_check)
        try:
            await run_script(runtime, Script(*[calls(call("noop"))] * turns, says("done")))
        finally:
            sys.setprofile(None)
        return list(checked)

    assert await checks_in(1)
    assert await checks_in(5) == await checks_in(1)


async def test_an_agent_that_asks_the_model_by_itself_reports_turns_by_counting_replies(runtime):
    async def ask_twice(_runtime, model, _context, record):
        for _ in range(2):
            request = ModelRequest(conversation=record.conversation, tools=ToolSchemas())
            record.count_reply(await model.chat(request))
        return StopReason.FINAL_ANSWER

    turns = []
    spec = spec_for(runtime.registry, rollout_id="r7")
    model = Script(says("a"), says("b"))
    outcome = await run_rollout(spec, runtime, model, agent=ask_twice, on_turn=turns.append)
    assert (outcome.turns, turns) == (2, ["r7", "r7"])


async def test_a_tool_that_raises_runs_once_and_is_answered_to_the_model(runtime):
    """hermes-agent's defect: a tool that raised RuntimeError was executed twice."""
    outcome = await run_script(runtime, Script(calls(call("boom")), says("done")))
    assert outcome.messages[2]["content"] == '{"error":"Tool execution failed: RuntimeError: boom number 1"}'
    assert [(e.tool_name, e.error) for e in outcome.tool_errors] == [("boom", "RuntimeError: boom number 1")]


async def test_an_unknown_tool_is_answered_with_what_there_is(runtime):
    outcome = await run_script(runtime, Script(calls(call("nop")), says("done")))
    assert "noop" in outcome.messages[2]["content"]
    assert outcome.counters["unknown_tools"] == 1
    assert outcome.stop_reason is StopReason.FINAL_ANSWER


async def test_arguments_that_are_not_json_are_answered_and_counted(runtime):
    outcome = await run_script(runtime, Script(calls(call("sync_square", '{"n": ')), says("done")))
    assert "Invalid JSON" in outcome.messages[2]["content"]
    assert outcome.counters["invalid_arguments"] == 1


async def test_arguments_are_coerced_by_the_schema(runtime):
    outcome = await run_script(runtime, Script(calls(call("sync_square", '{"n": "12"}')), says("done")))
    assert outcome.messages[2]["content"] == "144"


async def test_a_tool_that_returns_something_else_is_an_error_for_the_model(runtime):
    outcome = await run_script(runtime, Script(calls(call("not_a_result")), says("done")))
    assert "expected ToolResult" in outcome.messages[2]["content"]


async def test_parallel_safe_calls_of_one_turn_run_at_the_same_time(runtime):
    """hermes-agent's defect: calls of a turn ran one after the other."""
    pair = calls(call("rendezvous", call_id="a"), call("rendezvous", call_id="b"))
    outcome = await run_script(runtime, Script(pair, says("done")))
    assert [m["content"] for m in outcome.messages if m["role"] == "tool"] == ["met", "met"]


async def test_other_calls_run_in_order_and_answers_keep_the_order_of_the_calls(runtime):
    turn = calls(call("count", call_id="1"), call("noop", call_id="2"), call("count", call_id="3"))
    outcome = await run_script(runtime, Script(turn, says("done")))
    answers = [(m["tool_call_id"], m["content"]) for m in outcome.messages if m["role"] == "tool"]
    assert answers == [("1", "1"), ("2", "{}"), ("3", "2")]


async def test_a_lost_sandbox_ends_the_rollout_and_stops_the_other_calls(runtime):
    turn = calls(call("hang"), call("lost"))
    outcome = await run_script(runtime, Script(turn), verifier="half")
    assert outcome.stop_reason is StopReason.TOOL_BACKEND_ERROR
    assert outcome.failure.blame == "backend"
    assert (outcome.reward, outcome.reward_status) == (None, RewardStatus.SKIPPED)


async def test_an_infrastructure_failure_is_never_a_reward_of_zero(runtime):
    """hermes-agent's defect: API failures ended as reward 0.0."""
    outcome = await run_script(runtime, Script(calls(call("noop")), ModelServerError("502")), verifier="half")
    assert outcome.stop_reason is StopReason.MODEL_ERROR
    assert (outcome.reward, outcome.reward_status) == (None, RewardStatus.SKIPPED)


@pytest.mark.parametrize("turns", [0, 1])
async def test_a_context_overflow_is_judged_at_the_first_model_call_too(runtime, turns):
    replies = [*[calls(call("noop"))] * turns, ContextOverflowError("too long")]
    outcome = await run_script(runtime, Script(*replies), verifier="half")
    assert (outcome.stop_reason, outcome.turns, outcome.reward) == (StopReason.CONTEXT_LIMIT, turns, 0.5)
    assert outcome.failure.type == "ContextOverflowError"


async def test_an_error_that_would_hit_every_rollout_is_raised(runtime):
    with pytest.raises(ModelAuthError):
        await run_script(runtime, Script(ModelAuthError("401")))


@pytest.mark.parametrize("verifier", ["nan", "outside", "raising"])
async def test_a_verifier_that_fails_gives_no_reward(runtime, verifier):
    """hermes-agent's defect: a reward exception became 0.0."""
    outcome = await run_script(runtime, Script(says("done")), verifier=verifier)
    assert (outcome.reward, outcome.reward_status) == (None, RewardStatus.ERROR)
    assert outcome.reward_failure.blame == "verifier"


@pytest.mark.parametrize(("verifier", "said"), [("Raising", "KeyError: 'surprise'"), ("Exiting", "SystemExit: 0")])
async def test_the_record_says_where_a_verifier_has_raised(runtime, verifier, said):
    """Its author had the error's text, and no way to the place."""
    outcome = await run_script(runtime, Script(says("done")), verifier=verifier.lower())
    source = Path(sys.modules["rollout_components"].__file__)
    raising = source.read_text().splitlines().index(f"class {verifier}:") + 3
    told = f"verifier {verifier.lower()!r} raised {said} ({source}, line {raising})"
    assert outcome.reward_failure.message == told


@pytest.mark.parametrize("tool", ["exits", "sync_exits", "cancels"])
async def test_a_tool_that_raises_what_would_end_the_run_ends_only_its_call(runtime, tool):
    outcome = await run_script(runtime, Script(calls(call(tool)), says("done")))
    assert outcome.stop_reason is StopReason.FINAL_ANSWER
    assert outcome.tool_errors[0].error.startswith(("SystemExit", "CancelledError"))


@pytest.mark.parametrize("verifier", ["exiting", "cancelling", "odd_detail", "odd_parts", "huge", "asks_in_vain"])
async def test_a_verifier_that_misbehaves_costs_its_own_reward_and_nothing_else(runtime, verifier):
    outcome = await run_script(runtime, Script(says("done")), verifier=verifier)
    assert (outcome.reward, outcome.reward_status) == (None, RewardStatus.ERROR)
    assert outcome.reward_failure.blame == "verifier"
    json.dumps(outcome.to_json())


async def test_rollouts_of_one_task_do_not_share_its_metadata(runtime):
    metadata = {}
    rewards = [
        (await run_script(runtime, Script(says("done")), verifier="counts_in_metadata", metadata=metadata)).reward
        for _ in range(3)
    ]
    assert rewards == [1.0, 1.0, 1.0]


async def test_a_tool_call_that_was_abandoned_cannot_reach_the_judged_sandbox(runtime):
    async def attempt(seconds):
        for event in (BEGUN, WRITER, WRITTEN):
            event.clear()
        outcome = await run_script(
            runtime,
            Script(calls(call("late_writer"))),
            tools=("testing_shell",),
            limits=RolloutLimits(time_limit=seconds),
            verifier="waits_for_the_writer",
        )
        TooSoon.unless(BEGUN.is_set(), "the call had not begun")
        return outcome

    outcome = await with_more_time(attempt)
    assert (outcome.stop_reason, outcome.reward) == (StopReason.TIME_LIMIT, 0.0)


async def test_a_verifier_that_hangs_is_stopped_at_its_limit(registry):
    async with Runtime(registry, verifier_timeout=0.05) as runtime:
        outcome = await run_script(runtime, Script(says("done")), verifier="hanging")
    assert outcome.reward_status is RewardStatus.ERROR
    assert "verifier_timeout" in outcome.reward_failure.message


async def test_a_synchronous_verifier_runs_in_a_worker_thread(runtime):
    outcome = await run_script(runtime, Script(says("done")), verifier="sync_says_done")
    assert outcome.reward == 1.0


async def test_a_verifier_cannot_change_the_record(runtime):
    outcome = await run_script(runtime, Script(says("done")), verifier="mutating")
    assert outcome.messages[-1]["content"] == "done"


async def test_a_verifier_can_ask_another_by_name(runtime):
    outcome = await run_script(runtime, Script(says("done")), verifier="twice")
    assert (outcome.reward, outcome.reward_parts) == (1.0, {"half": 0.5})


async def test_a_verifier_that_wants_a_sandbox_nobody_offers_is_an_error_not_a_zero(runtime):
    outcome = await run_script(runtime, Script(says("done")), verifier="frozen")
    assert outcome.reward_status is RewardStatus.ERROR
    assert "cannot make its workspace read-only" in outcome.reward_failure.message


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (RolloutLimits(max_agent_turns=2), StopReason.MAX_TURNS),
        (RolloutLimits(max_total_tokens=9), StopReason.TOKEN_LIMIT),
        (RolloutLimits(max_tool_calls=2), StopReason.TOOL_CALL_LIMIT),
    ],
)
async def test_each_limit_ends_the_rollout_with_its_own_reason(runtime, limits, reason):
    outcome = await run_script(runtime, Script(*[calls(call("noop"))] * 5), limits=limits, verifier="half")
    assert (outcome.stop_reason, outcome.reward, outcome.turns <= 3) == (reason, 0.5, True)


async def test_an_answer_cut_at_the_token_limit_is_no_final_answer(runtime):
    outcome = await run_script(runtime, Script(says("I thin", finish_reason="length")))
    assert outcome.stop_reason is StopReason.TOKEN_LIMIT


async def test_the_time_limit_stops_a_hanging_tool_and_the_rollout_is_judged(runtime):
    """hermes-agent's defect: the limit did not limit."""
    limits = RolloutLimits(time_limit=0.1)
    outcome = await run_script(runtime, Script(calls(call("hang"))), limits=limits, verifier="half")
    assert (outcome.stop_reason, outcome.reward) == (StopReason.TIME_LIMIT, 0.5)


async def test_a_model_that_gave_no_reply_in_the_time_limit_is_not_judged(runtime):
    limits = RolloutLimits(time_limit=0.1)
    outcome = await run_script(runtime, Script(asyncio.Event().wait), limits=limits, verifier="half")
    assert (outcome.stop_reason, outcome.reward) == (StopReason.TIME_LIMIT, None)


async def test_the_time_limit_stops_waiting_for_a_synchronous_tool(runtime):
    limits = RolloutLimits(time_limit=0.1)
    outcome = await run_script(runtime, Script(calls(call("sync_hang"))), limits=limits)
    assert outcome.stop_reason is StopReason.TIME_LIMIT
    assert runtime.workers.abandoned == 1


async def test_a_cancelled_rollout_passes_the_cancellation_on(runtime):
    hanging = asyncio.Event()

    async def never():
        hanging.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(run_script(runtime, Script(never)))
    await hanging.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_concurrent_groups_keep_their_own_tools(runtime):
    """hermes-agent's defect: all groups used the tools of the last one."""
    specs = [
        spec_for(runtime.registry, tools=tools, rollout_id=name)
        for name, tools in (("a", ("testing",)), ("b", ("todo",)))
    ]
    models = [Script(calls(call("noop")), says("done")) for _ in specs]
    first, second = await asyncio.gather(*[run_rollout(s, runtime, m) for s, m in zip(specs, models, strict=True)])
    assert (first.counters["unknown_tools"], second.counters["unknown_tools"]) == (0, 1)


async def test_files_are_placed_and_setup_runs_before_the_model(runtime):
    task = {"files": (TaskFile(path="in/a.txt", data=b"\x00\xff"),), "setup": ("wc -c < in/a.txt > size.txt",)}
    turn = calls(call("terminal", '{"command": "cat size.txt"}'))
    outcome = await run_script(runtime, Script(turn, says("done")), tools=("terminal",), **task)
    assert json.loads(outcome.messages[2]["content"])["output"] == "2"


async def test_what_setup_exports_is_not_the_models_session(runtime):
    turn = calls(call("terminal", '{"command": "echo [$SECRET]; pwd"}'))
    model = Script(turn, says("done"))
    outcome = await run_script(runtime, model, tools=("terminal",), setup=("export SECRET=1; mkdir sub; cd sub",))
    output = json.loads(outcome.messages[2]["content"])["output"]
    assert output.startswith("[]")
    assert not output.endswith("/sub")


async def test_a_failing_setup_command_is_the_tasks_fault(runtime):
    outcome = await run_script(
        runtime, Script(), tools=("terminal",), setup=("echo why; exit 3",), verifier="file_is_ok"
    )
    assert (outcome.stop_reason, outcome.failure.blame) == (StopReason.TASK_ERROR, "task")
    assert "why" in outcome.failure.message
    assert outcome.reward is None


async def test_the_verifier_works_in_the_rollouts_sandbox(runtime):
    turn = calls(call("terminal", '{"command": "echo ok > answer.txt"}'))
    outcome = await run_script(runtime, Script(turn, says("done")), tools=("terminal",), verifier="file_is_ok")
    assert outcome.reward == 1.0


async def test_every_process_of_the_rollout_is_dead_when_the_verifier_looks(runtime):
    """hermes-agent's defect: background processes were still alive while the tests ran."""
    script = "setsid sh -c 'while :; do date +%N > beat.txt; sleep 0.05; done' >/dev/null 2>&1 &"
    turn = calls(call("terminal", json.dumps({"command": script})))
    outcome = await run_script(runtime, Script(turn, says("done")), tools=("terminal",), verifier="no_processes")
    assert outcome.reward == 1.0


async def test_two_rollouts_cannot_see_each_others_files(runtime):
    """hermes-agent's defect: all rollouts shared one sandbox."""
    turn = calls(call("terminal", '{"command": "ls; touch mine; pwd"}'))
    outcomes = await asyncio.gather(
        *[run_script(runtime, Script(turn, says("done")), tools=("terminal",), rollout_id=f"r{i}") for i in range(4)]
    )
    outputs = [json.loads(o.messages[2]["content"])["output"] for o in outcomes]
    assert len(set(outputs)) == 4
    assert not any("mine" in output for output in outputs)


async def test_a_synchronous_tool_uses_the_sandbox_without_blocking_the_loop(runtime):
    """hermes-agent's defect: one slow call stalled all rollouts."""
    outcome = await run_script(runtime, Script(calls(call("sync_shell")), says("done")), tools=("testing_shell",))
    assert outcome.messages[2]["content"] == "from the sandbox\n"


async def test_a_sandbox_that_cannot_be_had_stops_the_run_not_one_rollout(registry):
    async with Runtime(registry, sandbox=SandboxSpec(network="none")) as runtime:
        with pytest.raises(SandboxRefusedError):
            await runtime.backend.check(runtime.sandbox_spec)


async def test_a_method_whose_tool_is_not_installed_says_so(runtime):
    from hermes_core.rollout.plugin_calls.context import RolloutContext

    context = RolloutContext(runtime, rollout_id="r1", sandbox=None)
    with pytest.raises(UnknownComponentError, match="no loaded plugin declares tool 'web_search'"):
        await context.web_search("anything")


async def test_call_tool_checks_and_coerces_arguments_as_a_models_call_is(runtime):
    from hermes_core.rollout.plugin_calls.context import RolloutContext

    context = RolloutContext(runtime, rollout_id="r1", sandbox=None)
    assert await context.call_tool("sync_square", {"n": "3"}) == "9"
    with pytest.raises(ValueError, match="n: expected integer, got string"):
        await context.call_tool("sync_square", {"n": "three"})
    context.close()
    with pytest.raises(ContextUnusableError, match="has ended"):
        await context.call_tool("sync_square", {"n": 3})
