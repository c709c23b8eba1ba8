"""Whole runs on a pool, from the command line."""

from __future__ import annotations

import json

import pytest

from hermes_core.cli import main

JUDGE = """
from hermes_core.contracts.verifier import Score
from hermes_core.hookspecs import hookimpl
from hermes_core.specs import VerifierSpec


class Same:
    async def score(self, result, context):
        seen = await context.sandbox.exec("cat answer")
        return Score(value=float(seen.output == "42\\n"))


@hookimpl
def hermes_verifiers():
    spec = {"access": "fresh", "artifacts": ("answer",)}
    return [VerifierSpec(name="same", summary="Whether the answer is 42.", target="judge:Same", **spec)]
"""
TASK = {"id": "answer", "prompt": "Write 42.", "solution": ["echo 42 > answer"], "verifier": {"name": "same"}}


@pytest.mark.slow
@pytest.mark.parametrize("members", [1, 2])
def test_more_rollouts_than_slots_are_judged_in_separate_sandboxes(members, tmp_path, monkeypatch, capsys):
    """Each holds a slot while its verifier requests another, without the deadlock of hermes-agent."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "judge.py").write_text(JUDGE)
    (tmp_path / "tasks.jsonl").write_text(json.dumps(TASK) + "\n")
    backend = {"backend": "local", "options": {"slots_per_agent": 2, "root_dir": str(tmp_path)}}
    options = {"backends": [backend] * members, "max_hosts": 1, "slots_per_host": 2, "acquire_timeout": 100}
    run = {"terminal_backend": "pool", "backend_options": options, "max_concurrent": 16, "isolation": "none"}
    (tmp_path / "run.yaml").write_text(json.dumps(run))
    argv = ["-p", "./judge.py", "run", "tasks.jsonl", "--config", "run.yaml", "--model", "oracle"]
    assert main([*argv, "--group-size", "16", "--out", "out"]) == 0, capsys.readouterr()
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["rollouts"]["scored"] == 16
    assert summary["rollouts"]["retried"] == 0
    outcomes = [json.loads(line) for line in (tmp_path / "out" / "rollouts.jsonl").read_text().splitlines()]
    assert {outcome["reward_status"] for outcome in outcomes} == {"ok"}
    assert max(outcome["reward"] for outcome in outcomes) == 1.0  # the oracle fails some of them on purpose
    assert {outcome["provenance"]["sandbox"]["member"] for outcome in outcomes} == {
        f"local#{number + 1}" for number in range(members)
    }
    assert [path.name for path in tmp_path.glob("hermes-sandbox-*")] == []


def test_a_run_has_as_many_concurrent_rollouts_as_the_pool_has_slots_and_says_so(tmp_path, monkeypatch, capsys):
    """The others waited in the pool's queue, and were dropped after `acquire_timeout`."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    task = {"id": "t", "prompt": "Write 42.", "solution": ["echo 42 > answer"]}
    (tmp_path / "tasks.jsonl").write_text(json.dumps(task) + "\n")
    backend = {"backend": "local", "options": {"slots_per_agent": 2, "root_dir": str(tmp_path)}}
    options = {"backends": [backend] * 2, "max_hosts": 1, "slots_per_host": 16}
    run = {"terminal_backend": "pool", "backend_options": options, "max_concurrent": 16, "isolation": "none"}
    (tmp_path / "run.yaml").write_text(json.dumps(run))
    argv = ["run", "tasks.jsonl", "--config", "run.yaml", "--model", "oracle", "--group-size", "6", "--out", "out"]
    assert main(argv) == 0
    said = "4 rollouts at a time: engine 'local' with backend 'pool' has room for no more (max_concurrent is 16)"
    assert said in capsys.readouterr().err
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["rollouts"]["total"] == 6


LOST = """
if [ ! -e {mark} ]; then
  touch {mark}
  kill -9 $PPID
  sleep 60
fi
echo 42 > answer
"""
"""Kills the host's agent the first time, and with it every sandbox there."""


@pytest.mark.slow
def test_rollouts_of_a_lost_host_are_reported_as_failures_of_the_backend_and_repeated(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "judge.py").write_text(JUDGE)
    task = {**TASK, "solution": [LOST.format(mark=tmp_path / "mark")]}
    (tmp_path / "tasks.jsonl").write_text(json.dumps(task) + "\n")
    backend = {"backend": "local", "options": {"slots_per_agent": 4, "root_dir": str(tmp_path)}}
    options = {"backends": [backend], "max_hosts": 1, "slots_per_host": 4}
    run = {"terminal_backend": "pool", "backend_options": options, "isolation": "none", "mistake_rate": 0}
    (tmp_path / "run.yaml").write_text(json.dumps(run))
    argv = ["-p", "./judge.py", "run", "tasks.jsonl", "--config", "run.yaml", "--model", "oracle"]
    assert main([*argv, "--out", "out"]) == 0, capsys.readouterr()
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert (summary["rollouts"]["scored"], summary["rollouts"]["retried"]) == (1, 1)
    attempts = [json.loads(line) for line in (tmp_path / "out" / "attempts.jsonl").read_text().splitlines()]
    assert [(one["stop_reason"], one["failure"]["type"]) for one in attempts] == [
        ("tool_backend_error", "SandboxLostError")
    ]
    (outcome,) = [json.loads(line) for line in (tmp_path / "out" / "rollouts.jsonl").read_text().splitlines()]
    assert (outcome["reward"], outcome["reward_status"]) == (1.0, "ok")
    assert [path.name for path in tmp_path.glob("hermes-sandbox-*")] == []
