"""The sink `wandb` with the real library: what it writes offline, and how its process ends."""

from __future__ import annotations

import io
import json
import os
import resource
import signal
import traceback
from pathlib import Path

import pytest
from wandb_files import read_run

from hermes_core.contracts.errors import UserError
from hermes_runner.config import RunConfig
from hermes_runner.run.run import Run
from hermes_runner.sinks import wandb_sink
from hermes_runner.sinks.wandb_sink import WandbOptions, WandbSink

KEY = "5ec4e7" * 6 + "5ec4"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Hide the W&B login of the user who runs the tests, and make every server unreachable."""
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")


@pytest.fixture
def config(tmp_path):
    task = {"id": "a", "prompt": "Write a.", "verifier": {"name": "half"}, "solution": ["echo a > answer.txt"]}
    (tmp_path / "tasks.jsonl").write_text(json.dumps(task) + "\n")

    def new_config(options, **values):
        given = {"tasks": str(tmp_path / "tasks.jsonl"), "out": str(tmp_path / "out"), "enabled_toolsets": ["terminal"]}
        return RunConfig.parse({**given, "sinks": [{"name": "wandb", "options": options}], **values}, source="the test")

    return new_config


def offline_runs(folder):
    return [read_run(path) for path in sorted(folder.glob("wandb/offline-run-*"))]


def children():
    return {
        int(child) for task in Path("/proc/self/task").iterdir() for child in (task / "children").read_text().split()
    }


async def test_a_run_and_its_resume_are_one_wandb_run_with_means_over_both(registry, config, tmp_path):
    options = {"mode": "offline", "project": "p", "name": "n", "group": "g", "every": 2, "api_key": KEY}
    before, environment = children(), dict(os.environ)
    first = await Run(config(options, group_size=3), registry, stream=io.StringIO()).execute()
    second = await Run(config(options, group_size=4), registry, stream=io.StringIO()).execute()
    assert first.clean
    assert second.clean
    assert children() == before
    assert dict(os.environ) == environment

    runs = offline_runs(tmp_path / "out")
    run_id = json.loads((tmp_path / "out" / "run.json").read_text())["run_id"]
    assert [(run["id"], run["project"], run["name"], run["group"]) for run in runs] == [(run_id, "p", "n", "g")] * 2
    assert [run["exit_code"] for run in runs] == [0, 0]
    assert [[point["rollouts"] for point in run["history"]] for run in runs] == [[2, 3], [4]]

    last = runs[1]["history"][-1]
    outcomes = [json.loads(line) for line in (tmp_path / "out" / "rollouts.jsonl").read_text().splitlines()]
    assert last["mean/reward"] == 0.5
    assert last["mean/turns"] == sum(outcome["turns"] for outcome in outcomes) / 4
    assert last["stop_reason/final_answer"] == 1.0
    assert runs[1]["summary"]["reward"]["mean_over_rollouts"] == 0.5
    assert runs[1]["summary"]["rollouts"]["total"] == 4
    assert (runs[0]["config"]["group_size"], runs[1]["config"]["group_size"]) == (3, 4)

    held = [path for path in (tmp_path / "out").rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]
    assert held == []


def sink_of(mode):
    return WandbSink(WandbOptions.model_validate({"mode": mode, "project": "p"}))


def begin_folder(folder):
    folder.mkdir()
    (folder / "rollouts.jsonl").touch()
    (folder / "run.json").write_text(json.dumps({"run_id": "abc", "fingerprint": {"seed": 1}, "tasks": "t.jsonl"}))
    return str(folder)


def test_a_run_that_is_killed_ends_its_wandb_run_as_failed(tmp_path):
    sink = sink_of("offline")
    before = children()
    sink.open(begin_folder(tmp_path / "out"))
    sink.write({"stop_reason": "final_answer", "reward_status": "ok", "reward": 1.0, "turns": 2})
    (child,) = children() - before
    process = sink._process._process
    process.stdin.close()  # as the end of this process would
    assert process.wait(60) == 0
    process.stdout.close()
    sink._process._errors.close()
    (run,) = offline_runs(tmp_path / "out")
    assert (run["exit_code"], [point["mean/reward"] for point in run["history"]]) == (1, [1.0])
    assert child == process.pid


def test_without_a_key_the_run_does_not_begin_and_no_process_is_left(tmp_path):
    sink = sink_of("online")
    before = children()
    with pytest.raises(RuntimeError, match=r"(?i)api.key"):
        sink.open(begin_folder(tmp_path / "out"))
    assert children() == before


async def test_an_invalid_key_is_refused_without_being_quoted(registry, config, tmp_path):
    key = "no-key-at-all"
    with pytest.raises(UserError, match="sink 'wandb' cannot begin: RuntimeError") as caught:
        await Run(config({"mode": "online", "api_key": key}), registry, stream=io.StringIO()).execute()
    assert key not in "".join(traceback.format_exception(caught.value))


def test_a_process_that_dies_is_reported_with_its_status(tmp_path):
    sink = sink_of("offline")
    sink.open(begin_folder(tmp_path / "out"))
    sink._process._process.kill()
    sink._process._process.wait(60)
    with pytest.raises(RuntimeError, match="the process of wandb ended with status -9"):
        sink.write({"stop_reason": "final_answer"})
    with pytest.raises(RuntimeError, match="ended with status -9"):
        sink.close()


SUMMARY = {"rollouts": {"total": 1}, "run": {"planned": 1}}
OUTCOME = {"stop_reason": "final_answer", "reward_status": "ok", "reward": 1.0, "turns": 2}


@pytest.fixture
def stuck_sink(tmp_path, monkeypatch):
    """A sink whose process hangs from the second request on."""
    sink, before = sink_of("offline"), children()
    sink.open(begin_folder(tmp_path / "out"))
    os.kill(sink._process._process.pid, signal.SIGSTOP)
    monkeypatch.setattr(wandb_sink, "_SECONDS", 0.1)
    yield sink
    assert children() == before


def test_a_process_that_hangs_is_ended_and_every_later_call_has_the_same_reason_at_once(stuck_sink, monkeypatch):
    reason = r"^wandb took more than 0\.1 s to log$"
    with pytest.raises(TimeoutError, match=reason):
        stuck_sink.write(OUTCOME)
    assert stuck_sink._process._process.wait(60) == -signal.SIGKILL
    monkeypatch.setattr(wandb_sink.WandbProcess, "_exchange", None)  # nothing more is sent
    for call in (lambda: stuck_sink.write(OUTCOME), lambda: stuck_sink.write_summary(SUMMARY), stuck_sink.close):
        with pytest.raises(TimeoutError, match=reason):
            call()


def test_a_process_that_does_not_read_a_long_request_is_ended(stuck_sink):
    with pytest.raises(TimeoutError, match="to log"):
        stuck_sink._process.ask("log", {"text": "x" * 1_000_000})
    with pytest.raises(TimeoutError, match="to log"):
        stuck_sink.close()


def test_a_run_with_more_than_a_thousand_open_files_is_logged(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2000:
        pytest.skip("a process may not have 2,000 open files here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2000), hard))
    null = os.open(os.devnull, os.O_RDONLY)
    opened = [null, *(os.dup(null) for _ in range(1100))]
    try:
        sink = sink_of("offline")
        sink.open(begin_folder(tmp_path / "out"))
        assert sink._process._process.stdout.fileno() > 1024
        sink.write(OUTCOME)
        sink.close()
    finally:
        for number in opened:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    (run,) = offline_runs(tmp_path / "out")
    assert len(run["history"]) == 1


async def test_rollouts_before_a_resume_that_take_long_to_read_are_read_over_many_calls(
    registry, config, tmp_path, monkeypatch
):
    options = {"mode": "offline", "project": "p"}
    await Run(config(options, group_size=4), registry, stream=io.StringIO()).execute()
    read = []

    def note(line):
        read.append(line)
        return line

    monkeypatch.setattr(wandb_sink, "without_samples", note)
    monkeypatch.setattr(wandb_sink, "_READING", 0.0)
    sink = sink_of("offline")
    sink.open(str(tmp_path / "out"))
    assert read == []
    with (tmp_path / "out" / "rollouts.jsonl").open("ab") as file:
        file.write(b"{}\n")  # those of the resumed run come by `write`
    sink.write(OUTCOME)
    sink.write(OUTCOME)
    assert len(read) == 2
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    sink.write_summary(summary)
    sink.close()
    assert len(read) == 4
    (points,) = [run["history"] for run in offline_runs(tmp_path / "out")[1:]]
    assert [(point["rollouts"], point["mean/reward"]) for point in points] == [(6, pytest.approx((4 * 0.5 + 2) / 6))]
