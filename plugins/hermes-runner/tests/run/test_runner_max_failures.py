"""A run is stopped early if its first rollouts fail with one cause and none succeeds."""

from __future__ import annotations

import dataclasses
import io
import itertools
import json
import types
from functools import partial

import pytest
from rollout_script import Script, says, spec_for

from hermes_core.contracts.errors import Blame, ModelServerError
from hermes_core.contracts.rollout import Failure
from hermes_core.rollout import Runtime, run_rollout
from hermes_runner.output import OutputFolder
from hermes_runner.policy import Policy
from hermes_runner.run.failure_watch import FailureWatch, TooManyFailuresError
from hermes_runner.run.progress import open_progress
from hermes_runner.run.scheduling import Recorder, Scheduler

VERIFIERS = {"good": "half", "bad": "raising", "none": None}


def of_task(spec, task_id):
    """Return the same rollout of another task."""
    task = dataclasses.replace(spec.group.task, id=task_id)
    return dataclasses.replace(spec, group=dataclasses.replace(spec.group, task=task))


@pytest.fixture
async def run_kinds(registry, tmp_path):
    """Run rollouts one after another until the run is stopped; returns the recorded ids, and what stopped it."""

    number = itertools.count()

    async def _run_kinds(*kinds, max_failures, replies=None, tasks=("t1", "t2")):
        out = tmp_path / f"out{next(number)}"
        folder = OutputFolder.open(out, {}, facts={})
        recorder = Recorder(folder, {})
        model = Script(*(replies or [says("done")] * len(kinds)))
        specs = [spec_for(registry, rollout_id=f"r{at}", verifier=VERIFIERS[kind]) for at, kind in enumerate(kinds)]
        specs = [of_task(spec, tasks[at % len(tasks)]) for at, spec in enumerate(specs)]
        progress = open_progress(len(specs), stream=io.StringIO())
        stopped = None
        async with Runtime(registry) as runtime:
            policy = Policy({}, max_attempts=1)
            scheduler = Scheduler(
                partial(run_rollout, runtime=runtime, model=model),
                recorder,
                policy,
                progress,
                max_failures=max_failures,
            )
            try:
                await scheduler.run(iter(specs), max_concurrent=1)
            except TooManyFailuresError as error:
                stopped = error
        await recorder.close()
        folder.close()
        lines = (out / "rollouts.jsonl").read_bytes().splitlines()
        return [json.loads(line)["rollout_id"] for line in lines], stopped

    return _run_kinds


async def test_so_many_failures_of_one_kind_end_the_run_and_are_recorded(run_kinds):
    recorded, stopped = await run_kinds(*["bad"] * 9, max_failures=3)
    assert recorded == ["r0", "r1", "r2"]
    assert "got none in the first 3 rollouts" in stopped.message
    assert "NoVerdictError" in stopped.message
    assert "to blame: verifier" in stopped.message
    assert "--retry-failed" in stopped.hint
    assert "--max-failures" in stopped.hint


@pytest.mark.parametrize("kind", ["good", "none"])
async def test_one_good_rollout_lets_the_run_go_on(run_kinds, kind):
    recorded, stopped = await run_kinds("bad", "bad", kind, *["bad"] * 6, max_failures=3)
    assert (len(recorded), stopped) == (9, None)


async def test_failures_of_other_kinds_count_apart(run_kinds):
    replies = [says("done"), ModelServerError("502")] * 2 + [says("done")] * 4
    recorded, stopped = await run_kinds(*["bad"] * 8, max_failures=3, replies=replies, tasks=["t1", "t1", "t2"])
    assert len(recorded) == 5
    assert "3 of them" in stopped.message


async def test_one_task_whose_verifier_fails_does_not_stop_the_others(run_kinds):
    recorded, stopped = await run_kinds(*["bad"] * 6, "good", "bad", max_failures=3, tasks=["t1"])
    assert (len(recorded), stopped) == (8, None)
    recorded, stopped = await run_kinds(*["bad"] * 9, max_failures=3, tasks=["t1"] * 5 + ["t2"] * 4)
    assert len(recorded) == 6


async def test_one_task_is_enough_where_the_model_server_fails(run_kinds):
    recorded, stopped = await run_kinds(
        *["bad"] * 9, max_failures=3, tasks=["t1"], replies=[ModelServerError("502")] * 9
    )
    assert len(recorded) == 3
    assert "ModelServerError (to blame: model)" in stopped.message


async def test_a_run_that_is_at_its_end_is_not_stopped_any_more(run_kinds):
    recorded, stopped = await run_kinds(*["bad"] * 3, max_failures=3)
    assert (len(recorded), stopped) == (3, None)


async def test_a_limit_of_zero_never_stops_a_run(run_kinds):
    recorded, stopped = await run_kinds(*["bad"] * 30, max_failures=0)
    assert (len(recorded), stopped) == (30, None)


@pytest.mark.parametrize("blame", ["backend", "framework", "task", "verifier"])
def test_failures_of_one_task_alone_stop_no_run_unless_the_model_is_to_blame(blame):
    watch = FailureWatch(3)
    failed = types.SimpleNamespace(
        reward=None, reward_failure=None, failure=Failure(blame=Blame(blame), type="X", message="m")
    )
    for _ in range(9):
        watch.note(types.SimpleNamespace(**vars(failed), task_id="t1"))
    watch.check()
    watch.note(types.SimpleNamespace(**vars(failed), task_id="t2"))
    with pytest.raises(TooManyFailuresError):
        watch.check()


def test_what_was_good_before_a_resume_counts(tmp_path):
    watch = FailureWatch(3)
    watch.recall({"reward": None, "failure": {"type": "X"}})
    watch.recall({"reward": 0.0, "failure": None})
    for number in range(9):
        failure = Failure(blame=Blame.MODEL, type="X", message="m")
        watch.note(types.SimpleNamespace(reward=None, reward_failure=None, failure=failure, task_id=f"t{number}"))
    watch.check()


def test_the_only_task_of_a_run_may_stop_it():
    watch = FailureWatch(3, tasks=1)
    failure = Failure(blame=Blame.BACKEND, type="X", message="m")
    for _ in range(3):
        watch.note(types.SimpleNamespace(reward=None, reward_failure=None, failure=failure, task_id="t1"))
    with pytest.raises(TooManyFailuresError):
        watch.check()
