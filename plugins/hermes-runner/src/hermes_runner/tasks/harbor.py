"""Harbor / Terminal-Bench task folders: `instruction.md`, `task.toml`, `environment/`, `tests/`, `solution/`.

A task requires the image that `task.toml` names, or one built from its Dockerfile (`dockerfile:PATH`), so a backend
that runs no images refuses it before anything starts. Commands run as the image's user and in its working directory,
if the backend knows these; the test runs as root, unless `task.toml` says otherwise. The tests are not in the sandbox
during the rollout: the verifier `script` copies them to `/tests` afterwards, runs `/tests/test.sh`, and reads what that
wrote below `/logs/verifier`, which is emptied beforehand. If the model or the test is root, this happens in a second
container of the image, which gets what the rollout changed outside the folders of programs, and what `task.toml` lists
under `artifacts`.
"""

from __future__ import annotations

import base64
import gzip
import io
import posixpath
import re
import shlex
import tarfile
import tomllib
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from hermes_core.contracts.task import LoadedTasks, Precautions, Step, Task, TaskProblem
from hermes_core.contracts.tool import FOREGROUND_MAX_TIMEOUT
from hermes_core.specs import Ref
from hermes_runner.tasks.explain import explain
from hermes_runner.tasks.harbor_config import TaskToml

DEFAULT_TIMEOUT: Final = 600.0
REWARD_FILES: Final = ("/logs/verifier/reward.json", "/logs/verifier/reward.txt")

_READ_ABOVE_TESTS: Final = (
    *("/__init__.py", "/conftest.py", "/setup.py", "/pytest.ini", "/.pytest.ini", "/pytest.toml", "/.pytest.toml"),
    *("/pyproject.toml", "/tox.ini", "/setup.cfg", "/uv.toml", "/.venv", "/.python-version", "/pyvenv.cfg"),
    *("/node_modules", "/package.json", "/.cargo", "/go.mod", "/go.work", "/Gemfile"),
)
"""Files above /tests that pytest 9, uv, Node, Cargo, Go and Bundler read, and that no rollout has to create."""
_MAX_SOLUTION_BYTES: Final = 2**20
_OTHER_PLACE: Final = "/tmp/solution"  # noqa: S108 - a path in the sandbox
_WORKDIR: Final = re.compile(r"^\s*WORKDIR\s+(\S+)\s*$", re.IGNORECASE | re.MULTILINE)
_PATHS: Final = ("instruction.md", "task.toml", "tests/test.sh")


class HarborSource:
    """Reads one task folder, or a folder of task folders (also in groups, one level deeper)."""

    def read(self, path: Path) -> LoadedTasks:
        """Read every task below the path."""
        tasks: list[Task] = []
        problems: list[TaskProblem] = []
        for folder in _task_folders(path):
            try:
                tasks.append(read_folder(folder))
            except ValidationError as error:
                message = f"task.toml: {explain(error, {'': tuple(TaskToml.model_fields)})}"
                problems.append(TaskProblem(source=str(folder), task_id=folder.name, message=message))
            except (ValueError, OSError) as error:
                problems.append(TaskProblem(source=str(folder), task_id=folder.name, message=str(error)))
        return LoadedTasks(tasks=tuple(tasks), problems=tuple(problems))


def _task_folders(path: Path) -> list[Path]:
    """Return the path if it is a task, else its folders; one that is no task is replaced by the tasks in it, if any."""
    if _looks_like_task(path):
        return [path]
    folders: list[Path] = []
    for child in _folders_in(path):
        grandchildren = [] if _looks_like_task(child) else [g for g in _folders_in(child) if _looks_like_task(g)]
        folders += grandchildren or [child]
    return folders


def _folders_in(path: Path) -> list[Path]:
    return sorted(child for child in path.iterdir() if child.is_dir() and not child.name.startswith("."))


def _looks_like_task(path: Path) -> bool:
    return any((path / name).is_file() for name in ("task.toml", "instruction.md", "task.yaml"))


def read_folder(folder: Path) -> Task:
    """Read one task; raises ValueError or OSError if it cannot be used."""
    folder = folder.resolve()
    _check_layout(folder)
    config = _read_toml(folder / "task.toml")
    if demands := config.unmet_demands():
        raise ValueError(f"task.toml demands what is not supported: {', '.join(demands)}")
    timeout = config.agent.timeout_sec or DEFAULT_TIMEOUT
    return Task(
        id=folder.name,
        messages=({"role": "user", "content": (folder / "instruction.md").read_text(encoding="utf-8")},),
        verifier=Ref(kind="verifier", name="script", options=_verifier_options(folder, config)),
        precautions=Precautions(artifacts=_artifacts(folder, config), as_root=True),
        solution=_solution(folder, config, timeout),
        sandbox={**_working_directory(folder), **config.sandbox_fields(), "image": _image(folder, config)},
        limits={"time_limit": timeout},
        split=str(config.metadata.get("split", "test")),
        metadata={**config.metadata, **_notes(config)},
        source=str(folder),
    )


def _check_layout(folder: Path) -> None:
    if missing := [name for name in _PATHS if not (folder / name).is_file()]:
        older = (folder / "task.yaml").is_file()
        hint = "; task.yaml is the older Terminal-Bench layout, which must be converted first" if older else ""
        raise ValueError(f"not a Harbor task folder: {', '.join(missing)} missing{hint}")
    if not (folder / "instruction.md").read_text(encoding="utf-8").strip():
        raise ValueError("instruction.md is empty")
    for name in ("docker-compose.yaml", "docker-compose.yml"):
        if (folder / "environment" / name).exists():
            raise ValueError(f"environment/{name}: tasks with several containers are not supported")


def _read_toml(path: Path) -> TaskToml:
    try:
        return TaskToml.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"task.toml is not valid TOML: {error}") from error


def _image(folder: Path, config: TaskToml) -> str:
    if config.environment.docker_image:
        return config.environment.docker_image
    if not (folder / "environment" / "Dockerfile").is_file():
        raise ValueError("expected environment/Dockerfile or environment.docker_image in task.toml, got neither")
    return f"dockerfile:{folder / 'environment' / 'Dockerfile'}"


def _working_directory(folder: Path) -> dict[str, Any]:
    """Return the working directory of the image if its Dockerfile has it as an absolute path without variables."""
    dockerfile = folder / "environment" / "Dockerfile"
    found = _WORKDIR.findall(dockerfile.read_text(encoding="utf-8")) if dockerfile.is_file() else []
    plain = [path.strip("\"'") for path in found]
    return {"cwd": plain[-1]} if plain and plain[-1].startswith("/") and "$" not in plain[-1] else {}


def _verifier_options(folder: Path, config: TaskToml) -> dict[str, Any]:
    options: dict[str, Any] = {
        "command": _test_command(config),
        "upload": {"/tests": str(folder / "tests")},
        "reward": "file",
        "reward_files": list(REWARD_FILES),
        "timeout": config.verifier.timeout_sec or DEFAULT_TIMEOUT,
        "env": config.verifier.env,
        "inherit_env": True,
    }
    cwd = _cwd(folder, config)
    if cwd != "/":
        options["protected"] = list(_READ_ABOVE_TESTS)
    return options if cwd is None else {**options, "cwd": cwd}


def _test_command(config: TaskToml) -> str:
    """Return the test's command: as root, or as the task's user with a new HOME, as a model may own the old one."""
    if config.verifier.user in {None, "root", 0, "0"}:
        return "bash /tests/test.sh"
    user = shlex.quote(str(config.verifier.user))
    home = f'd=$(mktemp -d) && chown {user} "$d" /logs/verifier && chmod -R a+rX /tests && export HOME="$d"'
    # A numeric user without an account has no groups to initialise.
    groups = f"if id {user} >/dev/null 2>&1; then g=$(id -g {user}) i=--init-groups; else g={user} i=--clear-groups; fi"
    return f'{home} && {{ {groups}; }} && exec setpriv --reuid={user} --regid="$g" $i bash /tests/test.sh'


def _cwd(folder: Path, config: TaskToml) -> str | None:
    cwd: str | None = {**_working_directory(folder), **config.sandbox_fields()}.get("cwd")
    return cwd if cwd is None else posixpath.normpath(cwd)


def _artifacts(folder: Path, config: TaskToml) -> tuple[str, ...]:
    """Return the paths to judge: the task's artifacts, the working directory wherever it is, and "/" for the rest."""
    cwd = _cwd(folder, config)
    inside = [cwd] if cwd is not None and cwd.startswith("/") else []
    return tuple(dict.fromkeys([*config.artifact_paths(), *inside, "/"]))


def _solution(folder: Path, config: TaskToml, timeout: float) -> tuple[Step, ...] | None:
    """Return the steps that copy the solution folder into the sandbox and run its `solve.sh`."""
    if not (folder / "solution" / "solve.sh").is_file():
        return None
    packed = _pack(folder / "solution")
    if len(packed) > _MAX_SOLUTION_BYTES:
        raise ValueError(f"solution/: expected at most {_MAX_SOLUTION_BYTES} bytes when packed, got {len(packed)}")
    text = base64.encodebytes(packed).decode()
    # A user that cannot create /solution, such as one that the image names, gets the folder below /tmp.
    place = f"d=/solution; mkdir -p $d 2>/dev/null && [ -w $d ] || d={_OTHER_PLACE}; mkdir -p $d"
    unpack = f"{place} && base64 -d <<'END' | tar -xz -C $d\n{text}END"
    found = f"$([ -r /solution/solve.sh ] || echo {posixpath.dirname(_OTHER_PLACE)})/solution/solve.sh"
    env = "".join(f"{name}={shlex.quote(value)} " for name, value in config.solution.env.items())
    solve = {"command": f"{env}bash {found}", "timeout": min(int(timeout), FOREGROUND_MAX_TIMEOUT)}
    return Step(tool="terminal", arguments={"command": unpack}), Step(tool="terminal", arguments=solve)


def _pack(folder: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in sorted(folder.rglob("*")):
            archive.add(path, arcname=str(path.relative_to(folder)), recursive=False, filter=_anonymous)
    return gzip.compress(buffer.getvalue(), mtime=0)


def _anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """Remove owner and time, so that the same task gives the same bytes everywhere."""
    info.uid = info.gid = info.mtime = 0
    info.uname = info.gname = ""
    return info


def _notes(config: TaskToml) -> dict[str, Any]:
    notes: dict[str, Any] = {"harbor_task": config.task} if config.task else {}
    if unread := config.unread_keys():
        notes["harbor_unread_keys"] = unread
    return notes
