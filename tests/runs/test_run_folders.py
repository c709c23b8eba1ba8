"""Where runs without `--out` write, what the same command continues, and runs that grow."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest


@pytest.fixture
def path(tasks, small_task):
    return tasks(*[small_task(f"t{i}") for i in range(3)])


def folders(tmp_path):
    return sorted(entry.name for entry in (tmp_path / "runs").iterdir() if not entry.is_symlink())


def latest(tmp_path):
    return str((tmp_path / "runs" / "latest").readlink())


def test_each_run_gets_a_folder_of_its_own_and_latest_leads_to_the_last(hermes, path, tmp_path, rollouts):
    first = hermes("run", path)
    assert first.returncode == 0, first.stderr
    (one,) = folders(tmp_path)
    assert one.endswith("-tasks")
    assert f"writes to runs/{one}" in first.stderr
    assert hermes("run", path).returncode == 0
    assert hermes("run", path, "--seed", "4").returncode == 0
    assert len(folders(tmp_path)) == 3
    assert latest(tmp_path) == folders(tmp_path)[-1]
    assert len(rollouts("runs/latest")) == 3


def test_the_same_command_continues_its_run_that_was_cut_off_and_no_other(hermes, path, tmp_path, rollouts):
    command = ("-p", "killer", "run", path, "--group-size", "2")
    assert hermes(*command, env={"HERMES_TEST_KILL": "finished:5"}).returncode == -9
    (cut,) = folders(tmp_path)
    # What it recorded before the kill depends on how fast this machine writes.
    had = (tmp_path / "runs" / cut / "rollouts.jsonl").read_bytes().count(b"\n")
    other = hermes(*command, "--seed", "1")
    assert other.returncode == 0, other.stderr
    again = hermes(*command)
    assert again.returncode == 0, again.stderr
    assert f"{'continues' if had else 'writes to'} runs/{cut}" in again.stderr
    assert len(folders(tmp_path)) == 2
    assert latest(tmp_path) == cut
    assert len(rollouts(f"runs/{cut}")) == 6


def test_a_run_that_is_going_on_is_left_to_its_process(hermes, path, tmp_path):
    assert hermes("-p", "killer", "run", path, env={"HERMES_TEST_KILL": "finished:1"}).returncode == -9
    (cut,) = folders(tmp_path)
    with subprocess.Popen(["flock", tmp_path / "runs" / cut / ".lock", "sh", "-c", "echo; read x"], **PIPES) as held:
        held.stdout.readline()
        assert hermes("-p", "killer", "run", path).returncode == 0
        held.communicate(b"\n")
    assert len(folders(tmp_path)) == 2


PIPES = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}


def test_a_run_that_cannot_start_leaves_no_folder_and_no_link(hermes, path, tmp_path):
    assert hermes("run", path).returncode == 0
    good = latest(tmp_path)
    refused = hermes("run", path, "--model", "http://127.0.0.1:9/v1", "--model-name", "m", "--model-retries", "0")
    assert refused.returncode == 1
    assert (folders(tmp_path), latest(tmp_path)) == ([good], good)


def test_a_run_that_cannot_start_leaves_a_folder_of_its_user_alone_and_none_of_its_own(hermes, path, tmp_path):
    """It left a folder with the files of a run, and no rollout in it."""
    (tmp_path / "old").mkdir()
    broken = ("--model", "http://127.0.0.1:9/v1", "--model-name", "m", "--model-retries", "0")
    assert [hermes("run", path, *broken, "--out", name).returncode for name in ("new", "old")] == [1, 1]
    assert [(tmp_path / name).exists() for name in ("new", "old")] == [False, True]
    assert hermes("run", path, "--out", "old").returncode == 0


def test_dropped_rollouts_of_the_last_run_are_repeated_in_its_folder(hermes, tasks, small_task, tmp_path):
    path = tasks(small_task("t", setup=["test -e /nowhere-at-all"]))
    assert hermes("run", path).returncode == 1
    assert hermes("run", path, "--retry-failed").returncode == 1
    (one,) = folders(tmp_path)
    assert (tmp_path / "runs" / one / "attempts.jsonl").read_bytes().count(b"\n") == 1


def test_a_folder_called_latest_is_left_alone_and_said(hermes, path, tmp_path):
    (tmp_path / "runs" / "latest").mkdir(parents=True)
    (tmp_path / "runs" / "latest" / "mine").write_text("mine")
    told = hermes("run", path)
    assert told.returncode == 0
    assert "runs/latest does not point to runs/" in told.stderr
    assert (tmp_path / "runs" / "latest" / "mine").read_text() == "mine"


def test_a_folder_that_cannot_be_made_says_so(hermes, path, tmp_path):
    (tmp_path / "runs").write_text("")
    refused = hermes("run", path)
    assert refused.returncode == 2
    assert "cannot write runs" in refused.stderr
    assert "--out" in refused.stderr


def test_a_run_grows_by_a_larger_group_and_never_shrinks(hermes, path, tmp_path, rollouts):
    command = ("run", path, "--out", "out", "--mistake-rate", "0.4")
    assert hermes(*command, "--group-size", "2").returncode == 0
    before = {line["rollout_id"]: line["reward"] for line in rollouts()}
    grown = hermes(*command, "--group-size", "4")
    assert grown.returncode == 0, grown.stderr
    after = {line["rollout_id"]: line["reward"] for line in rollouts()}
    assert (len(before), len(after)) == (6, 12)
    assert after.items() >= before.items()
    assert json.loads((tmp_path / "out" / "run.json").read_text())["fingerprint"]["group_size"] == 4
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["run"]["planned"] == 12
    refused = hermes(*command, "--group-size", "3")
    assert refused.returncode == 2
    assert "group_size may grow" in refused.stderr
    assert hermes(*command, "--group-size", "8", "--seed", "9").returncode == 2


def test_a_stream_of_errors_that_takes_nothing_ends_no_run(hermes, path, tmp_path):
    with Path("/dev/full").open("w") as full, hermes.start("run", path, "--model", "nop", stderr=full) as process:
        out, _ = process.communicate(timeout=100)
    assert process.returncode == 0
    assert "mean reward" in out
    assert len(folders(tmp_path)) == 1
