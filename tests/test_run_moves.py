"""One config, many engines: a run moves from one to another by the name of its backend and nothing else."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
IMAGE = "hermes-test:2"


def support(package, module):
    """Import what a backend's own tests start their engine with."""
    sys.path.append(str(ROOT / package / "tests" / "support"))
    return importlib.import_module(module)


def docker(_folder):
    build = ROOT / "hermes_backend_docker" / "tests" / "support" / "build_image.sh"
    known = subprocess.run(["docker", "image", "inspect", IMAGE], capture_output=True, check=False)
    if known.returncode:
        subprocess.run([build, IMAGE], check=True, capture_output=True)
    yield {"image": IMAGE, "pull": "never"}, {}


def ssh(folder):
    server = support("plugins/hermes-backend-ssh", "sshd_server").SshServer(folder / "sshd").start()
    try:
        yield {**server.options, "root_dir": "/tmp"}, {}
    finally:
        server.stop()


def slurm(_folder):
    module = support("plugins/hermes-backend-slurm", "slurm_cluster")
    cluster = module.SlurmCluster().start()
    try:
        with cluster.allocation(2) as job:
            yield {"job_id": job}, module.environment_of(cluster)
    finally:
        cluster.stop()


def ray(folder):
    cluster = support("plugins/hermes-backend-ray", "ray_cluster").RayCluster.shared(folder)
    try:
        yield {"address": cluster.address}, {}
    finally:
        cluster.close()


def local(_folder):
    yield {}, {}


def pool(_folder):
    yield {"backend": "local", "options": {"slots_per_agent": 2}, "max_hosts": 2, "slots_per_host": 2}, {}


@pytest.fixture
def engine(request, tmp_path):
    yield from request.param(tmp_path)


def task(name):
    return {
        "id": name,
        "prompt": f"Write the word {name} into answer.txt",
        "verifier": {"name": "file_content", "options": {"checks": [{"path": "answer.txt", "equals": f"{name}\n"}]}},
        "solution": [f"echo {name} > answer.txt", "cat answer.txt"],
    }


def every(*names):
    marks = {"docker": ["docker"], "ssh": ["sshd"], "slurm": ["slurm"]}
    return [
        pytest.param(
            name, globals()[name], id=name, marks=[pytest.mark.component(mark) for mark in marks.get(name, ())]
        )
        for name in names
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "engine"), every("local", "pool", "docker", "ssh", "slurm", "ray"), indirect=["engine"]
)
def test_a_run_moves_by_the_name_of_its_backend(name, engine, hermes, tmp_path):
    """The options of every engine stand in the same file, each under its backend's name."""
    options, environment = engine
    (tmp_path / "tasks.jsonl").write_text("".join(f"{json.dumps(task(word))}\n" for word in ("one", "two", "three")))
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
