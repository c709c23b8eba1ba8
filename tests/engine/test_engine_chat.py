"""Rollouts at the chat protocol, where the engine itself reads the calls in what its model wrote."""

from __future__ import annotations

import json

import pytest
from families import FAMILIES
from live_runs import LiveRun

TOOLS = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")


@pytest.fixture
def engine(engines):
    """An idle engine that parses calls at its chat protocol."""
    found = engines.serve(FAMILIES["qwen3"], *TOOLS)
    assert found.becomes_idle(), "a test before this one has left requests in the engine"
    return found


def test_rollouts_of_several_turns_execute_the_calls_that_the_engine_read(engine, tmp_path):
    family = FAMILIES["qwen3"]
    either = f"({family.calls('echo [a-z]{1,8}')}|{family.final})"
    body = json.dumps({"structured_outputs": {"regex": either}})
    flags = ("--max-tokens", 200, "--max-agent-turns", 4, "--enabled-toolsets", "terminal", "--extra-body", body)
    run = LiveRun(engine, tmp_path, "chat", "--group-size", 12, *flags)
    code, output = run.finish()
    assert code == 0, output
    outcomes = run.outcomes()
    assert sorted(outcome["index"] for outcome in outcomes) == list(range(12))
    assert {outcome["stop_reason"] for outcome in outcomes} <= {"final_answer", "max_turns"}
    assert max(outcome["turns"] for outcome in outcomes) > 1
    for outcome in outcomes:
        calls = [call for message in outcome["messages"] for call in message.get("tool_calls") or ()]
        results = {m["tool_call_id"]: m["content"] for m in outcome["messages"] if m["role"] == "tool"}
        assert len({call["id"] for call in calls}) == len(calls)
        for call in calls:
            word = json.loads(call["function"]["arguments"])["command"].removeprefix("echo ")
            if call["id"] in results:
                assert word in results[call["id"]]
        assert outcome["counters"]["tool_calls_executed_ok"] == len(results)
    assert engine.becomes_idle()
