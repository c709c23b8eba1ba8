"""Runs that are interrupted or killed with requests in flight: the engine stops, the same command continues."""

from __future__ import annotations

import contextlib
import signal

import pytest
from families import FAMILIES
from live_runs import LiveRun, audit, begun_requests, end_of, recorder, unfinished_requests
from vllm_engine import wait_until

TOOLS = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")
ROLLOUTS = 24
IN_FLIGHT = 12


@pytest.fixture
def engine(engines):
    """An idle engine that also parses calls at its chat protocol."""
    found = engines.serve(FAMILIES["qwen3"], *TOOLS)
    assert found.becomes_idle(), "a test before this one has left requests in the engine"
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "kill -9"])
@pytest.mark.parametrize("way", ["vllm", "vllm by the recorder", "chat"])
def test_an_ended_run_leaves_no_request_and_the_same_command_continues_it(engine, tmp_path, way, number):
    with recorder(engine, tmp_path) if "recorder" in way else contextlib.nullcontext((engine.url, None)) as (url, log):
        flags = ("--group-size", ROLLOUTS, "--max-concurrent", IN_FLIGHT, "--max-tokens", 300, "--max-agent-turns", 1)
        run = LiveRun(engine, tmp_path, way.split()[0], *flags, address=url)
        unfinished, begun = unfinished_requests(engine), begun_requests(engine)
        process = run.start()
        assert run.has_recorded(), engine.log_tail()
        # The first ones are about to end by themselves by now; those of the second wave have far to go.
        assert wait_until(lambda: begun_requests(engine) - begun >= IN_FLIGHT + 6, 300)
        process.send_signal(number)
        code, output = end_of(process)
        assert code == (-signal.SIGKILL if number is signal.SIGKILL else 130), output
        assert engine.becomes_idle()
        assert unfinished_requests(engine) > unfinished, "each request went on to its end"
        recorded = run.outcomes()
        assert 0 < len(recorded) < ROLLOUTS
        code, output = run.finish()
        assert code == 0, output
        outcomes = run.outcomes()
        assert outcomes[: len(recorded)] == recorded
        assert sorted(outcome["index"] for outcome in outcomes) == list(range(ROLLOUTS))
        assert engine.becomes_idle()
        if log is not None:
            code, output = audit(run, log)
            assert code == 0, output
