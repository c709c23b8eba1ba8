"""The attack tasks in examples/: every attack scores 0, the honest solution scores full, and the host is as it was."""

from __future__ import annotations

import dataclasses
import fcntl
import os
import pwd
import re
import secrets
import shutil
import subprocess
import tempfile
from contextlib import AsyncExitStack, aclosing
from pathlib import Path

import pytest

from hermes_core.contracts.sandbox import SandboxSpec
from hermes_core.contracts.task import Cheat, Step
from hermes_core.discovery import PluginSettings, load_plugins, load_tasks
from hermes_core.rollout import Runtime
from hermes_core.specs import Ref
from hermes_runner import SOLUTION, check_task
from hermes_sandbox.local import LocalBackend, LocalOptions
from hermes_testing.watching import eventually
from hermes_verifiers.commands.private_directory import open_room

ROOT = Path(__file__).resolve().parent.parent
TASKS = ROOT / "examples" / "attack_tasks.jsonl"
ALLOWED = (
    "hermes-sandbox",
    "hermes-tools",
    "hermes-models",
    "hermes-tokens",
    "hermes-runner",
    "hermes-verifiers",
)
REGISTRY = load_plugins(PluginSettings(allow=ALLOWED, strict=True), environ={})
LOADED = load_tasks(TASKS, REGISTRY)
LEVELS = ["none", pytest.param("bwrap", marks=pytest.mark.component("bwrap"))]


def test_there_are_attacks_of_every_kind_that_is_known():
    assert LOADED.problems == ()
    assert sum(len(task.cheats) for task in LOADED.tasks) >= 40
    names = " ".join(cheat.name for task in LOADED.tasks for cheat in task.cheats)
    for word in (
        "reward written beforehand",
        "settings of pytest",
        "rewrites the result",
        "programs of its own",
        "every Python starts with",
        "library in front",
        "interpreter",
        "hooks",
        "a link to",
        "from the future",
        "equal to everything",
        "with success at import",
        "report at exit",
        "replaced from within",
        "the agent",
        "as much as it can write",
        "hidden tests",
        "process of the rollout answers",
        "edits the check",
    ):
        assert word in names


def traces(root: Path, token: str) -> list[str]:
    """Return what a run has left: its processes, its directories, the rooms of its verifiers."""
    found = [str(path) for path in root.iterdir()]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            texts = (process / "environ").read_bytes() + (process / "cmdline").read_bytes()
            place = str((process / "cwd").readlink())
        except OSError:
            continue
        if token.encode() in texts or str(root).encode() in texts or place.startswith(str(root)):
            found.append(texts[:200].decode(errors="replace"))
    return found


FILE_NAME = re.compile(
    r"(?<![\w.-])(?:[\w-]+/)*(?:[\w-]+\.(?:txt|json|xml|py|sh|ini|toml|cfg|pth|so|bin|log)|\.\w+)(?![\w.(])"
)
"""A file, or a dot file, as it is written in a command; not a module's function."""
SHARED = (Path("/"), ROOT, Path(pwd.getpwuid(os.getuid()).pw_dir))
"""Where an attack that got out of its sandbox would write, and where everything on this machine may."""


def names_of_attacks() -> set[str]:
    """Return the files that the attacks write, as they are called in their commands; what the repository has is not."""
    steps = [step for task in LOADED.tasks for cheat in task.cheats for step in cheat.steps]
    commands = "\n".join(text for step in steps for text in step.arguments.values() if isinstance(text, str))
    names = set(FILE_NAME.findall(re.sub(r"\\n|\$PWD/|\$HOME/|~/", " ", commands)))
    return {"reward", *names} - {path.name for path in ROOT.iterdir()}


def outside(*folders: Path) -> set[str]:
    """Return what an attack could leave in the folders that everything on this machine shares, or in the given ones."""
    shared = [place / name for place in SHARED for name in names_of_attacks()]
    paths = [path for path in shared if path.is_file()] + [path for folder in folders for path in folder.rglob("*")]
    return {f"{path} {path.lstat().st_mtime_ns}" for path in paths}


def test_what_the_attacks_write_is_looked_for_outside():
    assert {
        "reward.txt",
        "logs/verifier/reward.txt",
        "count.txt",
        "evil.sh",
        "calc.py",
        ".bashrc",
        ".profile",
        "wait.sh",
    } <= (names_of_attacks())


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A home and a current folder of this process that the test alone uses: what gets out of a sandbox comes there."""
    for name in ("home", "here"):
        (tmp_path / name).mkdir()
    (tmp_path / "home" / ".bashrc").write_text("# as it was\n")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))  # the backend's own notes are no attack's
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "home", tmp_path / "here"


@pytest.fixture
def root():
    # Not tmp_path: its parents are closed to the unprivileged user that bubblewrap runs as.
    made = Path(tempfile.mkdtemp(prefix="attacked-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.mark.parametrize("name", ["a process that rewrites the result", "a process that hides from its session"])
async def test_an_attack_on_the_judge_reaches_the_room_of_its_own_run_and_no_other(name, root):
    steps = next(cheat.steps for task in LOADED.tasks for cheat in task.cheats if cheat.name == name)
    spec = SandboxSpec(isolation="none")
    async with aclosing(LocalBackend(LocalOptions(root_dir=root))) as backend, AsyncExitStack() as stack:
        backend.lease_dir = root / "leases"
        sandboxes = [await stack.enter_async_context(await backend.open(spec)) for _ in range(2)]
        own, others = [await stack.enter_async_context(open_room(sandbox)) for sandbox in sandboxes]
        result, strangers = [await room.put("result", "0") for room in (own, others)]
        for step in steps:
            await own.sandbox.exec(step.arguments["command"])

        async def is_spoilt() -> bool:
            return (await own.sandbox.read_file(result)).strip() == b"1"

        # Nothing has ended the attack's processes, as a verifier would. One that goes from room to room has been at the
        # stranger's when it comes to its own again; there are two of them at most, so one has by the third time.
        assert await eventually(is_spoilt)
        for _ in range(2):
            await own.sandbox.write_file(result, b"0")
            assert await eventually(is_spoilt)
        assert await others.sandbox.read_file(strangers) == b"0"


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("task", LOADED.tasks, ids=lambda task: task.id)
async def test_every_attack_scores_nothing_and_leaves_nothing_on_the_host(task, level, root, elsewhere):
    if missing := [name for name in task.metadata.get("needs", ()) if shutil.which(name) is None]:
        pytest.skip(f"{missing[0]} is not installed")
    token, before = secrets.token_hex(8), outside(*elsewhere)
    backend = Ref(kind="backend", name="local", options={"root_dir": str(root)})
    spec = SandboxSpec(isolation=level, env={"ATTACKED": token})
    async with Runtime(REGISTRY, backend=backend, sandbox=spec) as runtime:
        await runtime.backend.check(spec)
        check = await check_task(task, runtime)
    assert check.passed, "\n".join(check.problems)
    rewards = {trial.name: trial.reward for trial in check.trials}
    assert rewards.pop(SOLUTION) == 1.0
    assert set(rewards.values()) == {0.0}
    assert traces(root, token) == []
    assert outside(*elsewhere) == before
    assert not list(Path(os.environ.get("TMPDIR", "/tmp")).glob(f"*{token}*"))


@pytest.fixture(scope="session")
def small_image():
    """Name the image of the Docker backend's tests, built where the engine does not have it."""
    name, support = "hermes-test:2", ROOT / "hermes_backend_docker" / "tests" / "support"
    # The script itself is what is locked: a file in /tmp may be another user's.
    with (support / "build_image.sh").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if subprocess.run(["docker", "image", "inspect", name], capture_output=True, check=False).returncode:
            subprocess.run([support / "build_image.sh", name], check=True, capture_output=True)
    return name


@pytest.mark.slow
@pytest.mark.component("docker")
@pytest.mark.timeout(400)
@pytest.mark.parametrize("level", ["container", "container+slot"])
@pytest.mark.parametrize(
    "task", [task for task in LOADED.tasks if not task.metadata.get("needs")], ids=lambda task: task.id
)
async def test_every_attack_scores_nothing_in_a_container(task, level, small_image, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    registry = load_plugins(PluginSettings(allow=(*ALLOWED, "hermes-backend-docker"), strict=True), environ={})
    mark, before = f"attacked={secrets.token_hex(8)}", outside()
    options = {"image": small_image, "pull": "never", "labels": dict([mark.split("=")])}
    spec = SandboxSpec(isolation=level)
    async with Runtime(registry, backend=Ref(kind="backend", name="docker", options=options), sandbox=spec) as runtime:
        await runtime.backend.check(spec)
        check = await check_task(task, runtime)
    assert check.passed, "\n".join(check.problems)
    rewards = {trial.name: trial.reward for trial in check.trials}
    assert rewards.pop(SOLUTION) == 1.0
    assert set(rewards.values()) == {0.0}
    listed = subprocess.run(["docker", "ps", "-aq", "--filter", f"label={mark}"], capture_output=True, check=True)
    assert listed.stdout == b""
    assert outside() == before


ON_THE_IMAGE = {
    "no place for temporary files": "chmod 000 /tmp",
    "a read-only place for temporary files": "chmod 555 /tmp",
    "programs that are gone": "rm -f /bin/env /bin/mktemp /bin/readlink /usr/bin/env /usr/bin/mktemp /usr/bin/readlink",
    "no Python": "rm -f $(command -v python3) /usr/bin/python3*",
    "no bash": "rm -f /bin/bash /usr/bin/bash",
    "programs that fail": """for name in env mktemp mkdir chmod rm readlink python3; do
        file=$(readlink -f "$(command -v $name)"); printf '#!/bin/sh\\nexit 1\\n' > "$file.new"; mv "$file.new" "$file"
    done""",
}
"""What a model that is root in a container can do to its image. Never without one: these would be the machine's own."""


@pytest.mark.slow
@pytest.mark.component("docker")
@pytest.mark.timeout(400)
@pytest.mark.parametrize("attack", ON_THE_IMAGE.values(), ids=ON_THE_IMAGE)
@pytest.mark.parametrize("task", [t for t in LOADED.tasks if t.id.startswith("opt-out")], ids=lambda task: task.id)
async def test_who_breaks_the_image_has_the_lowest_score(task, attack, small_image, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    registry = load_plugins(PluginSettings(allow=(*ALLOWED, "hermes-backend-docker"), strict=True), environ={})
    options = {"image": small_image, "pull": "never", "user": "root"}
    backend = Ref(kind="backend", name="docker", options=options)
    steps = (Step(tool="terminal", arguments={"command": attack}),)
    cheat = Cheat(name="breaks the image", kind="tampering", steps=steps)
    async with Runtime(registry, backend=backend, sandbox=SandboxSpec(isolation="container")) as runtime:
        check = await check_task(dataclasses.replace(task, cheats=(cheat,)), runtime)
    assert check.passed, "\n".join(check.problems)
    assert {trial.reward for trial in check.trials if trial.name != SOLUTION} == {0.0}
