"""After `kill -9` at any moment, the same command continues: no rollout is lost or recorded twice, no line is torn."""

from __future__ import annotations

import json
import re

import pytest

MOMENTS = [f"{hook}:{count}" for hook in ("started", "tool", "scored", "finished") for count in (1, 3, 7)]


@pytest.fixture
def command(tasks, small_task):
    path = tasks(*[small_task(f"t{i}") for i in range(5)])
    return ("-p", "killer", "run", path, "--out", "out", "--group-size", "2", "--mistake-rate", "0.4")


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_run_continues_where_it_was(hermes, command, rollouts, moment):
    assert hermes(*command, env={"HERMES_TEST_KILL": moment}).returncode == -9
    result = hermes(*command)
    assert result.returncode == 0, result.stderr
    done = sorted((line["task_id"], line["index"]) for line in rollouts())
    assert done == [(f"t{i}", index) for i in range(5) for index in range(2)]


def test_the_mean_that_is_shown_after_a_resume_is_that_of_the_whole_run(hermes, command, tmp_path):
    assert hermes(*command, env={"HERMES_TEST_KILL": "finished:7"}).returncode == -9
    shown = re.findall(r"mean reward ([0-9.]+)", hermes(*command).stderr)[-1]
    reward = json.loads((tmp_path / "out" / "summary.json").read_bytes())["reward"]
    assert shown == f"{reward['mean_over_rollouts']:.3f}"


def test_killing_it_again_and_again_ends_with_every_rollout_once(hermes, command, rollouts):
    for _ in range(6):
        hermes(*command, env={"HERMES_TEST_KILL": "finished:3"})
    assert hermes(*command).returncode == 0
    assert len({line["rollout_id"] for line in rollouts()}) == len(rollouts()) == 10


def test_a_finished_run_repeats_nothing(hermes, command, rollouts):
    assert hermes(*command).returncode == 0
    before = rollouts()
    assert hermes(*command).returncode == 0
    assert rollouts() == before


def test_dropped_rollouts_are_repeated_only_when_asked_for(hermes, tasks, small_task, rollouts, tmp_path):
    path = tasks(small_task("t", setup=["test -e /nowhere-at-all"]))
    command = ("run", path, "--out", "out")
    assert hermes(*command).returncode == 1
    assert hermes(*command).returncode == 1
    assert [line["disposition"] for line in rollouts()] == ["drop"]
    result = hermes(*command, "--retry-failed")
    assert result.returncode == 1
    assert "--retry-failed" in result.stderr
    assert len(rollouts()) == 1
    attempts = (tmp_path / "out" / "attempts.jsonl").read_bytes().splitlines()
    assert [json.loads(line)["stop_reason"] for line in attempts] == ["task_error"]


def test_a_run_of_nothing_but_failures_stops_says_why_and_is_continued(hermes, tasks, small_task, rollouts, tmp_path):
    path = tasks(*[small_task(f"t{i}", setup=["test -e /nowhere-at-all"]) for i in range(40)])
    command = ("run", path, "--out", "out", "--max-concurrent", "2", "--mistake-rate", "0")
    result = hermes(*command, "--max-failures", "4")
    assert result.returncode == 1
    assert "TaskError (to blame: task)" in result.stderr
    assert "fix the cause, then run the same command again with --retry-failed to continue" in result.stderr
    assert 4 <= len(rollouts()) <= 6
    assert json.loads((tmp_path / "out" / "summary.json").read_bytes())["rollouts"]["total"] == len(rollouts())
    result = hermes(*command, "--max-failures", "0")
    assert (result.returncode, len(rollouts())) == (1, 40)
