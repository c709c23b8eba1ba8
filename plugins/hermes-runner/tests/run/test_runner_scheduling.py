"""Running many rollouts: retries, dispositions, sinks that fail or hang, outcomes that are not JSON."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from functools import partial

import pytest
from rollout_script import Script, call, calls, says, spec_for

from hermes_core.contracts.errors import ModelServerError, UserError
from hermes_core.contracts.rollout import RewardStatus, StopReason
from hermes_core.rollout import Runtime, run_rollout
from hermes_runner.output import OutputFolder
from hermes_runner.policy import Policy
from hermes_runner.run import scheduling
from hermes_runner.run.scheduling import Recorder, Scheduler
from hermes_testing.watching import TooSoon, with_more_time


class Watcher:
    def __init__(self):
        self.outcomes = []

    def note_start(self, rollout_id):
        pass

    def turn(self, rollout_id):
        pass

    def note_retry(self, rollout_id):
        pass

    def note_outcome(self, outcome):
        self.outcomes.append(outcome)


class Fed:
    """A sink that keeps what it gets, and fails or hangs as `action` says."""

    def __init__(self, action=None):
        self.got = []
        self.closed = False
        self._action = action

    def open(self, folder):
        pass

    def write(self, outcome):
        self.got.append(outcome["rollout_id"])
        if self._action is not None:
            self._action()

    def close(self):
        self.closed = True


@pytest.fixture
async def run_models(registry, tmp_path):
    """Run rollouts, each with its own model; returns the recorded lines, the attempts and the errors of sinks."""

    number = itertools.count()

    async def run_models(models, *, sinks=None, policy=None, attempts=3, **fields):
        out = tmp_path / f"out{next(number)}"
        folder = OutputFolder.open(out, {}, facts={})
        recorder = Recorder(folder, sinks or {})
        try:
            async with Runtime(registry) as runtime:
                await recorder.start()
                for index, model in enumerate(models):
                    scheduler = Scheduler(
                        partial(run_rollout, runtime=runtime, model=model),
                        recorder,
                        Policy(policy or {}, max_attempts=attempts),
                        Watcher(),
                    )
                    spec = spec_for(registry, rollout_id=f"r{index}", **fields)
                    await scheduler.run(iter([spec]), max_concurrent=1)
        finally:
            await recorder.close()
            folder.close()
        read = [
            [json.loads(line) for line in (out / name).read_bytes().splitlines()]
            for name in ("rollouts.jsonl", "attempts.jsonl")
        ]
        return *read, recorder.sink_errors

    return run_models


async def test_a_failure_that_may_pass_is_repeated_and_every_attempt_is_kept(run_models):
    lines, attempts, _ = await run_models([Script(ModelServerError("502"), says("done"))])
    assert [(line["stop_reason"], line["attempt"], line["disposition"]) for line in lines] == [
        ("final_answer", 2, "score")
    ]
    assert [line["stop_reason"] for line in attempts] == ["model_error"]


async def test_when_the_attempts_are_used_up_the_rollout_is_dropped_not_zero(run_models):
    lines, attempts, _ = await run_models([Script(*[ModelServerError("502")] * 3)], verifier="half")
    assert [(line["reward"], line["disposition"], line["attempt"]) for line in lines] == [(None, "drop", 3)]
    assert len(attempts) == 2


async def test_a_limit_can_be_retried(run_models):
    model = Script(says("cut", finish_reason="length"), says("done"))
    lines, attempts, _ = await run_models([model], policy={"token_limit": "retry"})
    assert [(line["stop_reason"], line["attempt"]) for line in lines] == [("final_answer", 2)]
    assert [line["stop_reason"] for line in attempts] == ["token_limit"]


async def test_a_policy_can_mask_a_cause(run_models):
    lines, _, _ = await run_models([Script(says("cut", finish_reason="length"))], policy={"token_limit": "mask"})
    assert lines[0]["disposition"] == "mask"


async def test_a_sandbox_lost_under_the_verifier_is_the_backends_and_repeated(run_models):
    lines, attempts, _ = await run_models([Script(*[says("done")] * 3)], verifier="loses_sandbox")
    assert (lines[0]["attempt"], len(attempts), lines[0]["reward_failure"]["blame"]) == (3, 2, "backend")


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyError("nothing"), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError()]
)
async def test_a_sink_that_raises_costs_no_rollout(run_models, error):
    def fail():
        raise error

    sinks = {"bad": Fed(fail), "good": Fed()}
    lines, _, errors = await run_models([Script(says("done"))] * 2, sinks=sinks)
    assert len(lines) == 2
    assert all(type(error).__name__ in said for said in errors)
    assert sinks["good"].got == ["r0", "r1"]
    assert sinks["bad"].closed
    assert sum(errors.values()) == 2


async def test_a_sink_that_hangs_holds_up_neither_the_run_nor_the_others(run_models, monkeypatch):
    feed = scheduling.SinkFeed

    async def attempt(seconds):
        never = threading.Event()
        sinks = {"hung": Fed(never.wait), "good": Fed()}

        def feed_with_limit(name, *arguments, limit):  # the other one has the usual time
            return feed(name, *arguments, limit=seconds if name == "hung" else limit)

        monkeypatch.setattr(scheduling, "SinkFeed", feed_with_limit)
        try:
            lines, _, errors = await run_models([Script(says("done"))] * 3, sinks=sinks)
        except UserError as error:
            raise TooSoon("the sink that hangs had not been opened") from error
        finally:
            never.set()
        TooSoon.unless(sinks["hung"].got, "the write that hangs had not begun")
        assert len(lines) == 3
        assert sinks["good"].got == ["r0", "r1", "r2"]
        assert sinks["hung"].got == ["r0"]
        assert any("fed no more" in error for error in errors)

    await with_more_time(attempt)


async def test_a_sink_that_cannot_begin_stops_the_run_before_it_starts(run_models):
    class Refusing(Fed):
        def open(self, folder):
            raise PermissionError("no")

    with pytest.raises(UserError, match="sink 'bad' cannot begin"):
        await run_models([Script(says("done"))], sinks={"bad": Refusing()})


async def test_an_outcome_that_is_no_json_is_recorded_as_what_it_is(run_models):
    class Odd(Script):
        provenance = {"object": object()}  # noqa: RUF012 - never changed

    lines, _, _ = await run_models([Odd(calls(call("noop")), says("done"))])
    assert [(line["stop_reason"], line["reward_status"]) for line in lines] == [
        (StopReason.FRAMEWORK_ERROR, RewardStatus.SKIPPED)
    ]
    assert "JSON" in lines[0]["failure"]["message"]


def shell(command):
    return calls(call("terminal", json.dumps({"command": command})))


FILE = {"tools": ["terminal"], "verifier": "file_is_ok"}


@pytest.mark.parametrize("policy", [{}, {"tool_backend_error": "drop"}])
async def test_a_model_that_ends_its_sandbox_twice_has_the_lowest_score_whatever_the_policy(run_models, policy):
    model = Script(*[shell("kill -9 $PPID")] * 2)
    lines, attempts, _ = await run_models([model], attempts=1, policy=policy, **FILE)
    assert [(line["reward"], line["disposition"], line["stop_reason"], line["attempt"]) for line in lines] == [
        (0.0, "score", "sandbox_destroyed", 2)
    ]
    assert [(line["suspect"], line["reward"], line["stop_reason"]) for line in attempts] == [
        (True, None, "tool_backend_error")
    ]


async def test_a_sandbox_that_was_lost_once_costs_nothing_but_an_attempt(run_models):
    model = Script(shell("kill -9 $PPID"), shell("echo ok > answer.txt"), says("done"))
    lines, attempts, _ = await run_models([model], **FILE)
    assert [(line["reward"], line["attempt"], len(attempts)) for line in lines] == [(1.0, 2, 1)]
