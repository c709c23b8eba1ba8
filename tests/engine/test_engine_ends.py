"""How turns and rollouts end on a real vLLM: overflows, stop strings and truncation."""

from __future__ import annotations

import json

import pytest
from engine_runs import only_matching, run_tasks, task
from families import FAMILIES
from vllm_engine import MAX_MODEL_LEN

QWEN = FAMILIES["qwen3"]
ALLOWED = ("--require-exact", "--allow-constrained", "--no-allow-branches", "--enabled-toolsets", "terminal")
LONG = " ".join(f"word{number}" for number in range(MAX_MODEL_LEN))


async def test_a_prompt_longer_than_the_context_ends_the_rollout_at_once(engine, tmp_path):
    finished = await run_tasks(engine, QWEN, tmp_path, "--enabled-toolsets", "terminal", tasks=[task(prompt=LONG)])
    (outcome,) = finished.outcomes
    assert outcome["stop_reason"] == "context_limit", finished.output
    assert outcome["samples"] == []
    assert [(line["status"], line["ids"]) for line in finished.lines] == [(400, [])]
    assert engine.becomes_idle()


async def test_a_tool_result_longer_than_the_context_ends_the_rollout_with_all_that_was_sampled(engine, tmp_path):
    finished = await run_tasks(
        *(engine, QWEN, tmp_path, *only_matching(QWEN.calls("cat words")), *ALLOWED),
        *("--max-tokens", 200, "--max-agent-turns", 9, "--group-size", 4),
        tasks=[task(files={"words": LONG})],
    )
    assert finished.code == 0, finished.output
    finished.require_exact()
    for outcome in finished.outcomes:
        assert outcome["stop_reason"] == "context_limit"
        assert outcome["reward"] == 0.0
        *sampled, refused = finished.lines_of(outcome)
        assert sampled
        assert {line["status"] for line in sampled} == {200}
        assert (refused["status"], refused["ids"]) == (400, [])
        assert len(outcome["samples"]) == 1


async def test_a_turn_has_what_room_the_context_leaves_it(engine, tmp_path):
    """Prompt and `max_tokens` together are more than the context, the prompt alone is not. The model never ends."""
    finished = await run_tasks(
        *(engine, QWEN, tmp_path, "--require-exact", "--max-tokens", MAX_MODEL_LEN - 100, "--max-agent-turns", 1),
        *("--enabled-toolsets", "terminal", "--extra-body", '{"ignore_eos": true}'),
    )
    assert finished.code == 0, finished.output
    finished.require_exact()
    (line,) = finished.lines
    assert len(line["prompt_ids"]) + len(line["ids"]) == MAX_MODEL_LEN
    assert line["finish_reason"] == "length"


@pytest.mark.parametrize("stop", ["</tool_call>", 'b"}}'])
async def test_a_turn_that_a_stop_string_ends_goes_on_exactly(engine, tmp_path, stop):
    finished = await run_tasks(
        *(engine, QWEN, tmp_path, *ALLOWED, "--group-size", 4, "--max-tokens", 200, "--max-agent-turns", 3),
        *("--extra-body", json.dumps({"stop": [stop], "structured_outputs": {"regex": QWEN.calls("echo [ab]{1,8}b")}})),
    )
    assert finished.code == 0, finished.output
    finished.require_exact()
    for outcome in finished.outcomes:
        assert (outcome["turns"], len(outcome["samples"])) == (3, 1)
        assert (
            outcome["counters"]["tool_calls_executed_ok"] == 3
        )  # each call is whole, whether its mark is closed or not
        assert outcome["exactness"]["template_parity"] == 1.0


async def test_a_call_that_is_cut_at_max_tokens_is_not_executed(engine, tmp_path):
    finished = await run_tasks(
        *(engine, QWEN, tmp_path, *only_matching(QWEN.calls("echo [a-z]{300}")), *ALLOWED),
        *("--group-size", 4, "--max-tokens", 60, "--max-agent-turns", 3),
    )
    assert finished.code == 0, finished.output
    finished.require_exact()
    for outcome in finished.outcomes:
        assert {line["finish_reason"] for line in finished.lines_of(outcome)} == {"length"}
        assert outcome["counters"]["tool_calls_executed_ok"] == 0
        assert outcome["exactness"]["template_parity"] == 1.0
        assert {len(line["ids"]) for line in finished.lines_of(outcome)} == {60}
