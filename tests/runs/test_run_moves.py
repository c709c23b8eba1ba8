"""One config, many engines: a run moves from one to another by the name of its backend and nothing else."""

from __future__ import annotations

import json
import os

import pytest
import run_engines
import yaml


@pytest.fixture
def engine(request, tmp_path):
    yield from request.param(tmp_path)


def every(*names):
    return [pytest.param(name, getattr(run_engines, name), id=name, marks=run_engines.marks(name)) for name in names]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "engine"), every("local", "pool", "docker", "ssh", "slurm", "ray"), indirect=["engine"]
)
def test_a_run_moves_by_the_name_of_its_backend(name, engine, hermes, tmp_path):
    """The options of every engine stand in the same file, each under its backend's name."""
    options, environment = engine
    tasks = "".join(f"{json.dumps(run_engines.task(word))}\n" for word in ("one", "two", "three"))
    (tmp_path / "tasks.jsonl").write_text(tasks)
    config = {"tasks": "tasks.jsonl", "model": "oracle", "mistake_rate": 0, "group_size": 2, "out": "out"}
    config["backends"] = {"local": {}, name: options}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(config))
    environment = {**environment, "PATH": os.environ["PATH"], "XDG_STATE_HOME": str(tmp_path)}
    result = hermes("run", "--config", "run.yaml", "--terminal-backend", name, env=environment)
    assert result.returncode == 0, result.stderr
    rows = [json.loads(line) for line in (tmp_path / "out" / "rollouts.jsonl").read_text().splitlines()]
    assert [row["reward"] for row in rows] == [1.0] * 6
    gone = hermes("sandboxes", "ps", "--json", env=environment)
    assert json.loads(gone.stdout)["sandboxes"] == []
