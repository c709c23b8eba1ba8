"""`hermes-core run` on Slurm, with the config of a run on one machine and another backend's name."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys

import pytest
from slurm_cluster import environment_of

from hermes_backend_slurm.ownership import own_mark
from hermes_testing.watching import eventually

pytestmark = pytest.mark.component("slurm")


def task(name):
    return {
        "id": name,
        "prompt": f"Write the word {name} into answer.txt",
        "verifier": {"name": "file_content", "options": {"checks": [{"path": "answer.txt", "equals": f"{name}\n"}]}},
        "solution": [f"echo {name} > answer.txt", "cat answer.txt"],
    }


def hermes(folder, *arguments, env):
    return subprocess.run(
        [sys.executable, "-m", "hermes_core.cli", *arguments],
        cwd=folder,
        env={**os.environ, **env, "XDG_STATE_HOME": str(folder / "state")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def collecting(slurm, folder, *arguments):
    """Restrict gc to this cluster and this folder, because other sandboxes on this machine are not the test's."""
    (folder / "tmp").mkdir()
    ours = {"HERMES_PLUGINS": "sandbox,slurm", "TMPDIR": str(folder / "tmp")}
    return hermes(folder, "sandboxes", "gc", "--all", *arguments, env=environment_of(slurm, **ours))


def test_a_config_moves_to_slurm_by_changing_the_backend_s_name(slurm, tmp_path):
    (tmp_path / "tasks.jsonl").write_text("".join(f"{json.dumps(task(name))}\n" for name in ("one", "two", "three")))
    config = "tasks: tasks.jsonl\nmodel: oracle\nmistake_rate: 0\ngroup_size: 2\nterminal_backend: {}\nout: {}\n"
    # As in a terminal inside an allocation: the environment names the cluster and the job.
    with slurm.allocation(2) as job:
        for name in ("local", "slurm"):
            (tmp_path / f"{name}.yaml").write_text(config.format(name, name))
            result = hermes(tmp_path, "run", "--config", f"{name}.yaml", env=environment_of(slurm, SLURM_JOB_ID=job))
            assert result.returncode == 0, result.stderr
            rows = [json.loads(line) for line in (tmp_path / name / "rollouts.jsonl").read_text().splitlines()]
            assert [row["reward"] for row in rows] == [1.0] * 6
            assert {row["provenance"]["sandbox"]["backend"] for row in rows} == {name}
        assert {row["provenance"]["sandbox"]["job_id"] for row in rows} == {job}
        assert slurm.jobs() == [job]
    gone = collecting(slurm, tmp_path)
    assert "slurm" not in gone.stderr
    assert slurm.steps() == []


@pytest.mark.slow
async def test_a_run_whose_node_dies_is_complete_and_says_what_may_be_left(own_slurm, tmp_path):
    """The run exited with 1, without its summary."""
    waiting = {
        **task("one"),
        "solution": [f"while ! test -e {tmp_path}/go; do sleep 0.2; done", "echo one > answer.txt"],
    }
    (tmp_path / "tasks.jsonl").write_text(f"{json.dumps(waiting)}\n")
    options = {"nodes": 2, "slots_per_agent": 2, "patience": 10, "root_dir": str(tmp_path)}
    backend = ("--terminal-backend", "slurm", "--backend-options", json.dumps(options))
    model = ("--model", "oracle", "--mistake-rate", "0", "--group-size", "4", "--out", "out")
    arguments = (tmp_path, "run", "tasks.jsonl", *model, *backend)
    running = asyncio.create_task(asyncio.to_thread(hermes, *arguments, env=environment_of(own_slurm)))
    try:
        assert await eventually(lambda: running.done() or len(list(tmp_path.glob("hermes-sandbox-*.home"))) == 4)
        own_slurm.kill_node("n2")
        own_slurm.await_state("down*", 1)
    finally:
        (tmp_path / "go").touch()
        result = await running
    assert (result.returncode, "reward" in result.stdout) == (0, True), result.stderr
    warning = result.stderr.partition("warning: ")[2]
    assert warning.startswith("engine 'local' could not be closed: backend 'slurm': ")
    assert "2 of its sandboxes may be left\n  → " in warning
    assert "hermes-core sandboxes gc" in warning


def test_gc_all_ends_the_jobs_of_the_dead_and_not_those_of_a_namesake(slurm, tmp_path):
    """Login nodes and containers with the same name took each other's jobs for those of their own previous boot."""
    words = f"{own_mark()}:0".split(":")
    dead = ":".join([*words[:5], "1", *words[6:]])
    namesake = ":".join([*words[:2], "00000000-boot-of-another-machine", *words[3:]])
    for name in (dead, namesake):
        made = slurm.call("salloc", "--no-shell", "--nodes=1", f"--job-name={name}")
        assert made.returncode == 0, made.stderr
    assert len(slurm.jobs()) == 2
    done = collecting(slurm, tmp_path, "--json")
    assert [found for found in json.loads(done.stdout)["removed"] if found.startswith("slurm:")] != []
    left = slurm.call("squeue", "-h", "-t", "PD,R,CF,S", "-o", "%j").stdout.split()
    slurm.call("scancel", f"--name={namesake}")
    assert left == [namesake]


def test_a_run_without_slurm_s_commands_says_what_is_missing(tmp_path):
    (tmp_path / "tasks.jsonl").write_text(json.dumps(task("one")))
    result = hermes(
        tmp_path, "run", "tasks.jsonl", "--model", "oracle", "--terminal-backend", "slurm", env={"PATH": ""}
    )
    assert result.returncode == 2, result.stdout
    assert "srun" in result.stderr
