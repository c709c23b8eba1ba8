"""Files that tasks name must be equal on the workers; a different file stops only its task."""

from __future__ import annotations

import json

import pytest
from ray_runs import Runs, registry

from hermes_backend_ray.rollout_workers.task_files import difference, files_of
from hermes_backend_ray.rollout_workers.worker import Outbox, WorkerRollouts
from hermes_core.contracts.task import Task
from hermes_core.specs import Ref
from hermes_runner import RunConfig

MESSAGES = ({"role": "user", "content": "do it"},)


@pytest.fixture(scope="module")
def known_plugins():
    return registry(
        allow=(
            "hermes-sandbox",
            "hermes-tools",
            "hermes-models",
            "hermes-tokens",
            "hermes-runner",
            "hermes-verifiers",
        )
    )


@pytest.fixture
def tests_folder(tmp_path):
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "test.sh").write_text("exit 0\n")
    return folder


def task(name, *, upload=None, **sandbox):
    options = {"command": "bash /tests/test.sh", "upload": {"/tests": str(upload)}}
    return Task(
        id=name,
        messages=MESSAGES,
        sandbox=sandbox,
        verifier=None if upload is None else Ref(kind="verifier", name="script", options=options),
    )


@pytest.fixture
async def worker_rollouts(known_plugins):
    """A worker's `WorkerRollouts` in this process, open for a run with the local backend."""
    room = WorkerRollouts(Outbox())
    config = RunConfig.parse({"tasks": "none", "model": "nop"}, source="the test").model_dump(mode="json")
    await room.open(known_plugins, {"run_id": "r", "config": config, "hooks": []}, _no_tasks(), None)
    yield room
    await room.close()


def _no_tasks():
    from hermes_backend_ray.rollout_workers.messages import pack

    return pack(())


async def test_files_of_verifiers_and_dockerfiles_are_found_and_other_tasks_are_left_out(
    known_plugins, tests_folder, tmp_path
):
    (tmp_path / "env").mkdir()
    dockerfile = tmp_path / "env" / "Dockerfile"
    dockerfile.write_text("FROM scratch\n")
    image = tmp_path / "image.sif"
    image.write_bytes(b"12345")
    tasks = [
        task("plain"),
        task("named", image="debian:12"),
        task("judged", upload=tests_folder),
        task("built", image=f"dockerfile:{dockerfile}"),
        task("archive", image=str(image)),
    ]
    found = await files_of(tasks, known_plugins)
    assert sorted(found) == ["archive", "built", "judged"]
    assert str(tests_folder / "test.sh") in found["judged"]
    assert str(dockerfile) in found["built"]
    assert found["archive"] == {str(image): "5 bytes"}


async def test_only_a_task_whose_files_differ_on_the_worker_is_refused(
    known_plugins, tests_folder, tmp_path, worker_rollouts
):
    tasks = [task("same", upload=tests_folder), task("gone", upload=tmp_path / "gone"), task("odd", isolation="gvisor")]
    files = await files_of(tasks, known_plugins)
    (tmp_path / "gone").mkdir()
    asked = {item.id: (item, files.get(item.id, {})) for item in tasks}
    refused = await worker_rollouts.examine(known_plugins, asked)
    assert sorted(refused) == ["gone", "odd"]
    assert (refused["gone"]["type"], str(tmp_path / "gone") in refused["gone"]["message"]) == ("TaskError", True)
    (tests_folder / "test.sh").write_text("exit 1\n")
    assert "same" in await worker_rollouts.examine(known_plugins, asked)


def test_equal_files_have_no_difference():
    assert difference({"a": "1"}, {"a": "1"}) is None
    assert "b differs from the run's machine: missing" in str(difference({"b": "1"}, {}))


async def test_relative_paths_mean_the_same_on_the_workers(ray_cluster, tests_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runs = Runs(tmp_path, ray_cluster.address)
    # Without isolation this is a path on this machine, and its content is deleted first.
    there = tmp_path / "there"
    options = {"command": f"bash {there}/test.sh", "upload": {str(there): "tests"}}
    item = {"id": "t", "prompt": "x", "solution": ["true"], "verifier": {"name": "script", "options": options}}
    (tmp_path / "tasks.jsonl").write_text(json.dumps(item) + "\n")
    result = await runs.run(tmp_path / "tasks.jsonl", options={"workers": 1})
    assert [line["reward"] for line in runs.lines()] == [1.0]
    assert result.clean
