"""Reading Harbor / Terminal-Bench task folders."""

import base64
import io
import tarfile
from pathlib import Path

import pytest

from hermes_core.contracts.errors import ConfigError
from hermes_core.contracts.task import Task
from hermes_core.discovery import Registry, load_tasks
from hermes_runner.tasks.harbor_config import megabytes

TOML = """
version = "1.0"

[metadata]
difficulty = "easy"
category = "programming"

[agent]
timeout_sec = 120.0

[verifier]
timeout_sec = 45.0
env = { MODE = "strict" }

[environment]
cpus = 2
memory = "4G"
storage_mb = 2048
allow_internet = false
build_timeout_sec = 600.0
brand_new_key = 1
"""


def write_task(folder: Path, *, toml: str = TOML, without: tuple[str, ...] = ()) -> Path:
    files = {
        "instruction.md": "Make /app/out.txt.\n",
        "task.toml": toml,
        "environment/Dockerfile": "FROM debian:12\nWORKDIR /build\nFROM debian:12\nWORKDIR /app\n",
        "tests/test.sh": "#!/bin/bash\necho 1 > /logs/verifier/reward.txt\n",
        "solution/solve.sh": "cp helper.txt /app/out.txt\n",
        "solution/helper.txt": "it's \u00fc\n",
    }
    for name, text in files.items():
        if name not in without:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
    return folder


def read_one(path: Path, registry: Registry) -> Task:
    loaded = load_tasks(path, registry)
    assert loaded.problems == ()
    (task,) = loaded.tasks
    return task


def refusal(path: Path, registry: Registry) -> str:
    with pytest.raises(ConfigError) as error:
        load_tasks(path, registry)
    return str(error.value)


def test_a_task_folder_becomes_a_task(registry: Registry, tmp_path: Path) -> None:
    folder = write_task(tmp_path / "make-out")
    task = read_one(folder, registry)
    assert (task.id, task.split) == ("make-out", "test")
    assert task.messages == ({"role": "user", "content": "Make /app/out.txt.\n"},)
    assert task.sandbox == {
        "image": f"dockerfile:{folder / 'environment' / 'Dockerfile'}",
        "cwd": "/app",
        "cpu": 2,
        "memory_mb": 4096,
        "disk_mb": 2048,
        "network": "none",
        "as_image": True,
        "wishes": ("disk_mb",),
    }
    assert task.limits == {"time_limit": 120.0}
    assert task.metadata["category"] == "programming"
    assert task.metadata["harbor_unread_keys"] == ["environment.brand_new_key"]


def test_the_tests_are_given_to_the_verifier_and_not_to_the_sandbox(registry: Registry, tmp_path: Path) -> None:
    folder = write_task(tmp_path / "t")
    task = read_one(folder, registry)
    assert task.files == ()
    assert task.setup == ()
    assert task.verifier is not None
    assert task.verifier.name == "script"
    assert task.verifier.options["upload"] == {"/tests": str(folder / "tests")}
    assert task.verifier.options["timeout"] == 45.0
    assert task.verifier.options["env"] == {"MODE": "strict"}


def test_the_solution_folder_is_packed_whole_and_the_same_every_time(registry: Registry, tmp_path: Path) -> None:
    folder = write_task(tmp_path / "t")
    task = read_one(folder, registry)
    assert task.solution is not None
    unpack, solve = (step.arguments["command"] for step in task.solution)
    assert solve.endswith("/solution/solve.sh")
    packed = base64.b64decode("".join(unpack.split("\n")[1:-1]))
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        helper = archive.extractfile("helper.txt")
        assert helper is not None
        assert helper.read().decode() == "it's \u00fc\n"
    (folder / "solution" / "solve.sh").touch()
    assert read_one(folder, registry).solution == task.solution


def test_a_named_image_needs_no_dockerfile(registry: Registry, tmp_path: Path) -> None:
    toml = '[environment]\ndocker_image = "org/image:1"\nworkdir = "/srv"\n'
    folder = write_task(tmp_path / "t", toml=toml, without=("environment/Dockerfile", "solution/solve.sh"))
    task = read_one(folder, registry)
    assert task.sandbox == {"image": "org/image:1", "cwd": "/srv", "as_image": True, "wishes": ()}
    assert task.solution is None
    assert task.limits == {"time_limit": 600.0}


@pytest.mark.parametrize(("stated", "user"), [('"agent"', "agent"), ("1000", "1000"), ('"root"', "root"), ("0", "0")])
def test_the_user_of_the_model_s_commands_is_the_user_of_the_sandbox(
    registry: Registry, tmp_path: Path, stated: str, user: str
) -> None:
    task = read_one(write_task(tmp_path / "t", toml=f"[agent]\nuser = {stated}\n"), registry)
    assert task.sandbox["user"] == user


@pytest.mark.parametrize("toml", ["", '[verifier]\nuser = "root"\n', "[verifier]\nuser = 0\n"])
def test_the_test_runs_as_root_in_a_separate_sandbox(registry: Registry, tmp_path: Path, toml: str) -> None:
    task = read_one(write_task(tmp_path / "t", toml=toml), registry)
    assert task.verifier is not None
    assert (task.precautions.as_root, task.verifier.options["command"]) == (True, "bash /tests/test.sh")


def test_the_user_of_a_test_is_quoted_for_the_shell(registry: Registry, tmp_path: Path) -> None:
    task = read_one(write_task(tmp_path / "t", toml='[verifier]\nuser = "$(id)"\n'), registry)
    assert task.verifier is not None
    assert "--reuid='$(id)'" in task.verifier.options["command"]


def test_a_folder_of_folders_is_many_tasks_and_a_broken_one_stops_no_other(registry: Registry, tmp_path: Path) -> None:
    write_task(tmp_path / "b")
    write_task(tmp_path / "group" / "a")
    write_task(tmp_path / "c", without=("tests/test.sh",))
    (tmp_path / "notes").mkdir()
    (tmp_path / ".git").mkdir()
    loaded = load_tasks(tmp_path, registry)
    assert [task.id for task in loaded.tasks] == ["b", "a"]
    assert {problem.task_id: problem.message for problem in loaded.problems} == {
        "c": "not a Harbor task folder: tests/test.sh missing",
        "notes": "not a Harbor task folder: instruction.md, task.toml, tests/test.sh missing",
    }


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ("[agent\n", "task.toml is not valid TOML"),
        ("[agent]\ntimeout_sec = -5\n", "'agent.timeout_sec': expected greater than 0, got -5"),
        ('[environment]\nmemory = "much"\n', "environment.memory: expected a size like '4G', got 'much'"),
        ("[environment]\ngpus = 2\n", "2 GPUs"),
        ('[environment]\nos = "windows"\n', "operating system 'windows'"),
        ('[[steps]]\nname = "one"\n', "several [[steps]]"),
        ('[verifier.env]\nKEY = "${KEY}"\n', "the host's environment for KEY in [verifier]"),
        ('[verifier]\nenvironment_mode = "separate"\n', "a separate verifier environment"),
    ],
)
def test_unsupported_demands_are_refused_and_named(registry: Registry, tmp_path: Path, toml: str, said: str) -> None:
    assert said in refusal(write_task(tmp_path / "t", toml=toml), registry)


def test_missing_parts_are_named(registry: Registry, tmp_path: Path) -> None:
    no_image = write_task(tmp_path / "a", toml="", without=("environment/Dockerfile",))
    assert "environment/Dockerfile or environment.docker_image" in refusal(no_image, registry)
    older = write_task(tmp_path / "b", without=("task.toml",))
    (older / "task.yaml").touch()
    assert "older Terminal-Bench layout" in refusal(older, registry)
    several = write_task(tmp_path / "c")
    (several / "environment" / "docker-compose.yaml").touch()
    assert "several containers" in refusal(several, registry)


@pytest.mark.parametrize(
    ("size", "wanted"), [("4G", 4096), ("512M", 512), ("1.5GB", 1536), ("2048k", 2), ("1T", 2**20)]
)
def test_sizes_are_read_in_any_unit(size: str, wanted: int) -> None:
    assert megabytes(size, "memory") == wanted
