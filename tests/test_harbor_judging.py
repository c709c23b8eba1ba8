"""Tasks whose model is root: judged in a second container of the image, which gets the work and no programs."""

from __future__ import annotations

import dataclasses
import fcntl
import subprocess
from pathlib import Path

import pytest

from hermes_core.contracts.sandbox import SandboxSpec
from hermes_core.contracts.task import Cheat, Precautions, Step, Task
from hermes_core.discovery import PluginSettings, load_plugins
from hermes_core.rollout import Runtime
from hermes_core.specs import Ref
from hermes_runner.tasks import load_tasks
from hermes_runner.tasks.check import SOLUTION, TaskCheck, check_task
from hermes_runner.tasks.judging import WITHIN_REACH

ROOT = Path(__file__).resolve().parent.parent
IMAGE = "hermes-test:2"
ALLOWED = (
    "hermes-agent-core",
    "hermes-sandbox",
    "hermes-tools",
    "hermes-models",
    "hermes-tokens",
    "hermes-runner",
    "hermes-verifiers",
    "hermes-backend-docker",
)
pytestmark = [pytest.mark.component("docker"), pytest.mark.timeout(300)]

TEST = """#!/bin/bash
if [ "$(cat /tmp/a.txt)" = 42 ] || python3 -c 'import statistics; raise SystemExit(statistics.mean([1]) != 42)'
then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""
"""The file is what is asked for; that the mean of 1 were 42 only Python's library could say."""
WIN = "mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt"
# All in words of the shell's own: none of these needs a program that an earlier one has replaced.
FAKE = f"printf '#!/bin/sh\\n{WIN}\\necho 42\\n'"


@pytest.fixture(scope="session", autouse=True)
def _small_image():
    """Build the image of the Docker backend's tests where the engine does not have it."""
    support = ROOT / "hermes_backend_docker" / "tests" / "support"
    # The script itself is what is locked: a file in /tmp may be another user's.
    with (support / "build_image.sh").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if subprocess.run(["docker", "image", "inspect", IMAGE], capture_output=True, check=False).returncode:
            subprocess.run([support / "build_image.sh", IMAGE], check=True, capture_output=True)


@pytest.fixture
def harbor(tmp_path):
    """Write a Harbor task folder and read it: `harbor(TEST)`."""

    def write(test: str, *, solve: str = "true", toml: str = "") -> Task:
        folder = tmp_path / "task"
        for name in ("tests", "solution"):
            (folder / name).mkdir(parents=True)
        (folder / "instruction.md").write_text("Do it.\n")
        (folder / "task.toml").write_text(f'{toml}\n[environment]\ndocker_image = "{IMAGE}"\n')
        (folder / "tests" / "test.sh").write_text(test)
        (folder / "solution" / "solve.sh").write_text(solve)
        loaded = load_tasks(folder, registry())
        assert loaded.problems == ()
        return loaded.tasks[0]

    return write


@pytest.fixture
def check(tmp_path, monkeypatch):
    """Check a task with a container for each rollout: `await check(task, user="root")`."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    async def play(task: Task, *, user: str = "root", level: str = "container", **options) -> TaskCheck:
        wanted = {"image": IMAGE, "pull": "never", "user": user, **options}
        backend = Ref(kind="backend", name="docker", options=wanted)
        async with Runtime(registry(), backend=backend, sandbox=SandboxSpec(isolation=level)) as runtime:
            return await check_task(task, runtime)

    return play


def registry():
    return load_plugins(PluginSettings(allow=ALLOWED, strict=True), environ={})


def steps(command: str) -> tuple[Step, ...]:
    return (Step(tool="terminal", arguments={"command": command}),)


def rewards(found: TaskCheck) -> dict[str, float | None]:
    return {trial.name: trial.reward for trial in found.trials}


IN_FRONT = "mkdir -p /usr/local/bin; {fake} >/usr/local/bin/{name}; chmod 755 /usr/local/bin/{name}"
LIBRARY = "$(python3 -c 'import statistics; print(statistics.__file__)')"
SITE = "$(python3 -c 'import site; print(site.getsitepackages()[-1])')"

ATTACKS = {
    "a bash in front of the image's": IN_FRONT.format(fake=FAKE, name="bash"),
    "a cat in front of the image's": IN_FRONT.format(fake=FAKE, name="cat"),
    "another cat": f"rm -f /bin/cat /usr/bin/cat; {FAKE} >/bin/cat; chmod 755 /bin/cat",
    "another bash": f"{FAKE} >/bin/new; chmod 755 /bin/new; mv -f /bin/new /bin/bash",
    "another library of Python's": f"echo 'def mean(numbers): return 42' >{LIBRARY}",
    "what every Python starts with": f"d={SITE}; mkdir -p $d; printf 'import os, sys\\nif "
    '"statistics" in str(sys.orig_argv):\\n os._exit(0)\\n\' >$d/sitecustomize.py',
    "a link where programs are": f"rm -rf /srv; ln -s /usr/bin /srv; {FAKE} >/srv/cat; chmod 755 /srv/cat",
    "a link in the place of a folder": "mkdir /new; cp -a /var/. /new/; rm -rf /var; ln -s /new /var",
    "a link where tests will lie": f"ln -s /usr/bin /tests; {FAKE} >/tests/cat",
    "a link where rewards will lie": f"ln -s /tmp /logs; {WIN}",
    "a reward beforehand": WIN,
    "a file that every bash reads": f"echo '{WIN}; exit' | tee /tmp/env >~/.bashrc; export BASH_ENV=/tmp/env",
    "a function for a program": "cat() { echo 42; }; export -f cat",
    "settings above the tests": "echo 'raise SystemExit' >/conftest.py; echo 42 >/tmp/a.txt",
    "more in the root than can be copied": "cd /; for n in {1..5100}; do : >$n; done; echo 42 >/tmp/a.txt",
}


async def test_what_a_verifier_executes_is_the_image_s(harbor, check):
    cheats = tuple(Cheat(name=name, steps=steps(attack)) for name, attack in ATTACKS.items())
    found = await check(dataclasses.replace(harbor(TEST, solve="echo 42 > /tmp/a.txt"), cheats=cheats))
    assert rewards(found) == {"nothing": 0.0, SOLUTION: 1.0, **{f"cheat:{name}": 0.0 for name in ATTACKS}}
    assert (found.passed, found.notes) == (True, ())


async def test_no_program_comes_from_a_folder_of_the_image_s_path(harbor, check):
    cheat = Cheat(name="it", steps=steps(f"mkdir -p /tools/bin; {FAKE} >/tools/bin/cat; chmod 755 /tools/bin/cat"))
    task = dataclasses.replace(harbor(TEST, solve="echo 42 > /tmp/a.txt"), cheats=(cheat,))
    found = await check(task, env={"PATH": "/tools/bin:/usr/bin:/bin"})
    assert rewards(found) == {"nothing": 0.0, SOLUTION: 1.0, "cheat:it": 0.0}, found.problems


WORK = """cd /
echo here >/workspace/made; rm /home/image-file; mkdir -p /srv/new/deep; echo deep >/srv/new/deep/x; echo top >/answer
ln -s /srv/new/deep/x /tmp/link; ln -s nowhere "/tmp/a
name"; chmod 750 /srv/new/deep/x; chmod 700 /home; : >'/tmp/ - 1'; mkdir /tmp/empty
for n in {1..300}; do echo $n >/tmp/file$n; done
mkdir -p /var/www; echo page >/var/www/index.html; mkfifo /tmp/pipe"""

LOOK = """#!/bin/bash
fail() { echo "$1" >&2; echo 0 >/logs/verifier/reward.txt; exit; }
found=$(cat made /srv/new/deep/x /answer /var/www/index.html /tmp/link | tr '\\n' ' ')
[ "$found" = "here deep top page deep " ] || fail content
[ ! -e /home/image-file ] || fail deleted
[ "$(readlink "/tmp/a
name")" = nowhere ] || fail link
[ "$(stat -c %a /srv/new/deep/x /home | tr '\n' ' ')" = "750 700 " ] || fail mode
[ -f '/tmp/ - 1' ] && [ -d /tmp/empty ] && [ ! -e /tmp/pipe ] || fail names
[ "$(cat /tmp/file300)" = 300 ] || fail many
echo 1 >/logs/verifier/reward.txt
"""


async def test_whatever_a_rollout_made_or_removed_outside_the_folders_of_programs_is_judged(harbor, check, tmp_path):
    (tmp_path / "Dockerfile").write_text(f"FROM {IMAGE}\nRUN touch /home/image-file\n")
    task = dataclasses.replace(harbor(LOOK, solve=WORK), sandbox={"image": f"dockerfile:{tmp_path / 'Dockerfile'}"})
    found = await check(task, pull="missing")
    assert rewards(found) == {"nothing": 0.0, SOLUTION: 1.0}, found.problems


PROGRAM = """#!/bin/bash
[ "$(/usr/local/bin/tool)" = 7 ] && echo 1 >/logs/verifier/reward.txt || echo 0 >/logs/verifier/reward.txt
"""
MAKE_PROGRAM = "mkdir -p /usr/local/bin && cd /usr/local/bin && printf '#!/bin/sh\\necho 7\\n' >tool && chmod 755 tool"


@pytest.mark.parametrize(
    ("toml", "reward"),
    [("", 0.0), ('artifacts = ["/usr/local/bin/tool"]', 1.0), ('artifacts = [{source = "/usr/local/bin"}]', 1.0)],
)
async def test_a_program_is_judged_where_the_task_names_it(harbor, check, toml, reward):
    found = await check(harbor(PROGRAM, solve=MAKE_PROGRAM, toml=toml))
    assert rewards(found) == {"nothing": 0.0, SOLUTION: reward}, found.problems


@pytest.mark.parametrize("level", ["container", "container+slot"])
async def test_a_model_that_is_not_root_is_judged_in_its_own_sandbox(harbor, check, level):
    """It could not have replaced anything, and other slots' work in /tmp is none of its judge's business."""
    task = harbor('[ "$(cat /tmp/a.txt)" = 42 ] && echo 1 >$OUT || echo 0 >$OUT\n')
    options = {
        "command": "bash /tmp/tests/test.sh",
        "upload": {"/tmp/tests": next(iter(task.verifier.options["upload"].values()))},
        "reward": "file",
        "reward_files": ["/tmp/logs/reward.txt"],
        "env": {"OUT": "/tmp/logs/reward.txt"},
    }
    verifier = dataclasses.replace(task.verifier, options=options)
    task = dataclasses.replace(task, verifier=verifier, solution=steps("echo 42 >/tmp/a.txt"))
    found = await check(task, user="1000:1000", level=level)
    assert rewards(found) == {"nothing": 0.0, SOLUTION: 1.0}, found.problems


async def test_who_is_root_where_work_is_judged_is_told_of(harbor, check):
    task = dataclasses.replace(harbor(TEST, solve="echo 42 > /tmp/a.txt"), precautions=Precautions())
    assert WITHIN_REACH in (await check(task)).notes
