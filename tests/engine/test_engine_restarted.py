"""The engine is killed in the middle of a run and comes back: nothing is lost, nothing recorded twice."""

from __future__ import annotations

import pytest
from families import FAMILIES
from live_runs import LiveRun, audit, end_of, recorder

TOOLS = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")
ROLLOUTS = 16
IN_FLIGHT = ("--max-concurrent", 8)
FLAGS = ("--group-size", ROLLOUTS, *IN_FLIGHT, "--max-tokens", 200, "--max-agent-turns", 1)


@pytest.fixture
def engine(engines):
    """An idle engine that also parses calls at its chat protocol."""
    found = engines.serve(FAMILIES["qwen3"], *TOOLS)
    assert found.becomes_idle(), "a test before this one has left requests in the engine"
    return found


def indexes(run):
    return sorted(outcome["index"] for outcome in run.outcomes())


def test_a_run_with_patience_outlives_the_engines_restart_and_is_exact(engine, tmp_path):
    with recorder(engine, tmp_path) as (url, log):
        run = LiveRun(engine, tmp_path, "vllm", *FLAGS, "--model-retries", 40, address=url)
        process = run.start()
        assert run.has_recorded(), engine.log_tail()
        assert engine.becomes_busy(2)
        engine.restart()
        code, output = end_of(process)
        assert code == 0, output
        assert indexes(run) == list(range(ROLLOUTS))
        assert {outcome["disposition"] for outcome in run.outcomes()} == {"score"}
        code, output = audit(run, log)
        assert code == 0, output
    assert engine.becomes_idle()


@pytest.mark.parametrize("protocol", ["vllm", "chat"])
def test_a_run_whose_engine_stays_away_ends_by_itself_and_is_completed_later(engine, tmp_path, protocol):
    run = LiveRun(engine, tmp_path, protocol, *FLAGS)
    process = run.start()
    assert run.has_recorded(), engine.log_tail()
    assert engine.becomes_busy(2)
    engine.kill()
    code, output = end_of(process)
    assert code != 0
    assert "--retry-failed" in output
    assert "Traceback" not in output
    scored = [outcome for outcome in run.outcomes() if outcome["disposition"] == "score"]
    assert scored
    assert not [outcome for outcome in run.outcomes() if outcome["reward"] == 0.0 and outcome not in scored]
    engine.start()
    code, output = run.finish("--retry-failed")
    assert code == 0, output
    assert indexes(run) == list(range(ROLLOUTS))
    assert [outcome for outcome in run.outcomes() if outcome in scored] == scored
    assert {outcome["disposition"] for outcome in run.outcomes()} == {"score"}
