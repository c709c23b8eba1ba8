"""Runs with tools at token level in families of different kinds: what a real vLLM samples is what is trained."""

from __future__ import annotations

import pytest
from engine_runs import only_matching, run_cli, run_tasks
from families import FAMILIES


async def test_sixty_four_rollouts_in_flight_have_each_sampled_id_once(engine, tmp_path):
    """A random model writes any token there is, control tokens among them, and never ends by itself."""
    finished = await run_tasks(
        *(engine, FAMILIES["qwen3"], tmp_path, "--require-exact", "--group-size", 128, "--max-concurrent", 64),
        *("--max-tokens", 96, "--max-agent-turns", 1),
    )
    assert finished.code == 0, finished.output
    assert len(finished.outcomes) == 128
    finished.require_exact()
    assert len({line["request_id"] for line in finished.lines}) == len(finished.lines) >= 128
    code, output = await run_cli("exactness", finished.out, "--log", finished.log)
    assert code == 0, output
    assert engine.becomes_idle()


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
async def test_rollouts_of_several_turns_with_calls_are_exact_by_the_wire_log(engines, tmp_path, family):
    engine = engines.serve(family)
    either = f"({family.calls('echo [a-z]{1,8}')}|{family.final})"
    finished = await run_tasks(
        *(engine, family, tmp_path, *only_matching(either)),
        *("--group-size", 8, "--max-agent-turns", 4, "--max-tokens", 200, "--enabled-toolsets", "terminal"),
        *(() if family.may_branch else ("--require-exact", "--allow-constrained", "--no-allow-branches")),
    )
    assert finished.code == 0, finished.output
    finished.require_exact(but_for_stops=family.may_branch)
    assert sum(outcome["counters"]["tool_calls_executed_ok"] for outcome in finished.outcomes) >= 4
    for outcome in finished.outcomes:
        assert len(finished.lines_of(outcome)) == outcome["turns"]
        assert {line["finish_reason"] for line in finished.lines_of(outcome)} == {"stop"}
        assert all(sample["constrained"] for sample in outcome["samples"])
        assert family.may_branch or len(outcome["samples"]) == 1
        assert len(outcome["samples"]) == 1 + sum(outcome["exactness"]["break_reasons"].values())
        assert outcome["exactness"]["template_parity"] == 1.0
        assert outcome["exactness"]["foreign_control_tokens"] == 0
    code, output = await run_cli("exactness", finished.out, "--log", finished.log)
    assert code == int(any(outcome["exactness"]["break_reasons"] for outcome in finished.outcomes)), output
    assert "sampled_trained_share    1.000000" in output
