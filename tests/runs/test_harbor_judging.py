"""Tasks whose model is root: judged in a second container of the image, which gets the work and no programs."""

from __future__ import annotations

import dataclasses
import fcntl
import subprocess
from pathlib import Path

import pytest

from hermes_core.contracts.sandbox import SandboxSpec
from hermes_core.contracts.task import Cheat, Precautions, Step, Task
from hermes_core.discovery import PluginSettings, load_plugins, load_tasks
from hermes_core.rollout import Runtime
from hermes_core.specs import Ref
from hermes_runner import SOLUTION, TaskCheck, check_task
from hermes_runner.tasks.judging import WITHIN_REACH

ROOT = Path(__file__).resolve().parents[2]
IMAGE = "hermes-test:2"
ALLOWED = (
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
        has_table = "[environment]" in toml
        toml = toml if has_table else f"{toml}\n[environment]"
        (folder / "task.toml").write_text(f'{toml}\ndocker_image = "{IMAGE}"\n')
        (folder / "tests" / "test.sh").write_text(test)
        (folder / "solution" / "solve.sh").write_text(solve)
        loaded = load_tasks(folder, registry())
        assert loaded.problems == ()
        return loaded.tasks[0]

    return write


@pytest.fixture
def check(tmp_path, monkeypatch):
    """Check a task with a container for each rollout, as its image's user or another: `await check(task)`."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    async def run_check(task: Task, *, user: str | None = None, level: str = "container", **options) -> TaskCheck:
        wanted = {"image": IMAGE, "pull": "never", "user": user, **options}
        backend = Ref(kind="backend", name="docker", options=wanted)
        async with Runtime(registry(), backend=backend, sandbox=SandboxSpec(isolation=level)) as runtime:
            return await check_task(task, runtime)

    return run_check


@pytest.fixture
def image_of(tmp_path):
    """Describe an image in which a command was run, for it to be built."""

    def write(command: str) -> str:
        (tmp_path / "Dockerfile").write_text(f"FROM {IMAGE}\nRUN {command}\n")
        return f"dockerfile:{tmp_path / 'Dockerfile'}"

    return write


def registry():
    return load_plugins(PluginSettings(allow=ALLOWED, strict=True), environ={})


def steps(command: str) -> tuple[Step, ...]:
    return (Step(tool="terminal", arguments={"command": command}),)


def rewards(found: TaskCheck) -> dict[str, float | None]:
    return {trial.name: trial.reward for trial in found.trials}


IN_FRONT = "mkdir -p /usr/local/bin; {fake} >/usr/local/bin/{name}; chmod 755 /usr/local/bin/{name}"
OF_THE_AGENT = "$(python3 -c 'import __future__; print(__future__.__file__)')"
"""A file of the image's Python that each agent imports."""
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


LAYOUTS = {
    "a folder that is not there": ("", {"PATH": "/tools/bin:/usr/bin:/bin"}, f"{FAKE} >/tools/bin/cat"),
    "a folder behind a link": (
        "mkdir -p /mnt/data/bin && ln -s /mnt/data /data",
        {"PATH": "/data/bin:/usr/bin:/bin"},
        f"{FAKE} >/mnt/data/bin/cat",
    ),
    "a program behind a link": (
        "mkdir -p /root/t/bin /front/bin && cp /bin/cat /root/t/bin/ && ln -s /root/t/bin/cat /front/bin/cat",
        {"PATH": "/front/bin:/usr/bin:/bin"},
        f"{FAKE} >/root/t/bin/cat",
    ),
    "a file behind a link": (
        "mkdir -p /root/tools /front/bin && cp /bin/cat /root/tools/ && ln -s /root/tools/cat /front/bin/cat",
        {"PATH": "/front/bin:/usr/bin:/bin"},
        f"{FAKE} >/root/tools/cat",
    ),
    "a library that a variable names": (
        "mkdir /srv",
        {"PYTHONPATH": "/srv"},
        "echo 'def mean(numbers): return 42' >/srv/statistics.py",
    ),
    "a Python whose settings are not there": (
        "mkdir -p /root/py/bin /root/py/lib/python3 && cp /bin/cat /root/py/bin/",
        {"PATH": "/root/py/bin:/usr/bin:/bin", "BASH_ENV": "/root/py/pyvenv.cfg"},
        f"echo '{WIN}; exit' >/root/py/pyvenv.cfg",
    ),
    "shims of another place": (
        (
            "mkdir -p /srv/.env-of/shims /srv/.env-of/real && cp /bin/cat /srv/.env-of/real/"
            " && printf '#!/bin/sh\\nexec /srv/.env-of/real/cat \"$@\"\\n' >/srv/.env-of/shims/cat"
            " && chmod 755 /srv/.env-of/shims/cat"
        ),
        {"PATH": "/srv/.env-of/shims:/usr/bin:/bin"},
        f"{FAKE} >/srv/.env-of/real/cat",
    ),
    "a virtual environment in the work folder": (
        "mkdir -p /app/.venv/bin /app/.venv/lib/python3 && cp /bin/cat /app/.venv/bin/",
        {"PATH": "/app/.venv/bin:/usr/bin:/bin"},
        f"{FAKE} >/app/.venv/bin/cat",
    ),
    "a link in the place of the work folder": (
        "mkdir -p /srv /app/.venv/bin && cp /bin/cat /app/.venv/bin/",
        {"PATH": "/app/.venv/bin:/usr/bin:/bin"},
        f"cp -a /app/. /srv/; cd /; rm -rf /app; ln -s /srv /app; {FAKE} >/srv/.venv/bin/cat",
    ),
}
"""What an image is made like, the variables it has, and an attack on it."""


@pytest.mark.parametrize(("built", "env", "attack"), LAYOUTS.values(), ids=LAYOUTS)
async def test_programs_are_the_image_s_wherever_it_has_them(harbor, check, image_of, built, env, attack):
    name = attack.rpartition(">")[2]
    attack = f"mkdir -p {name.rpartition('/')[0]}; rm -f {name}; {attack}; chmod 755 {name}"
    task = harbor(TEST, solve="echo 42 > /tmp/a.txt", toml='[environment]\nworkdir = "/app"')
    cheat = Cheat(name="it", steps=steps(attack))
    task = dataclasses.replace(
        task, cheats=(cheat,), sandbox={**task.sandbox, "image": image_of(f"{built or ':'}; mkdir -p /app")}
    )
    found = await check(task, env=env, pull="missing")
    assert rewards(found) == {"nothing": 0.0, SOLUTION: 1.0, "cheat:it": 0.0}, found.problems


OF_ANOTHER_USER = {
    "a cat in its own folder of PATH": f"{FAKE} >~/bin/cat; chmod 755 ~/bin/cat",
    "a bash in its own folder of PATH": f"{FAKE} >~/bin/bash; chmod 755 ~/bin/bash",
    "another folder in its place": f"mv ~/bin ~/old; mkdir ~/bin; {FAKE} >~/bin/cat; chmod 755 ~/bin/cat",
    "a link in its place": f"mv ~/bin ~/old; mkdir ~/new; ln -s ~/new ~/bin; {FAKE} >~/new/cat; chmod 755 ~/new/cat",
    "a module for every Python of its own": "d=$(python3 -m site --user-site); mkdir -p $d; "
    "echo 'def mean(numbers): return 42' >$d/statistics.py; echo 'import os; os._exit(0)' >$d/usercustomize.py",
    "a file that its bash reads": f"echo '{WIN}; exit' | tee ~/.bashrc ~/.profile >/tmp/env; export BASH_ENV=/tmp/env",
    "a reward beforehand": WIN,
    "a folder that it has shut": "mkdir -m 0 /tmp/shut; rm -f /tmp/a.txt; mkdir -m 0 /tmp/a.txt",
    "tests beforehand": f"mkdir -p /tests /tmp/tests; {FAKE} | tee /tests/test.sh >/tmp/tests/test.sh",
}


async def test_a_model_that_is_another_user_does_not_reach_the_judge_that_is_root(harbor, check, image_of):
    home = "/home/agent"
    lines = [f"mkdir -p {home}/bin && chown agent {home}/bin", f"ENV PATH={home}/bin:/usr/bin:/bin"]
    image = image_of("\n".join([*lines, f"WORKDIR {home}", "USER agent"]))
    cheats = tuple(Cheat(name=name, steps=steps(attack)) for name, attack in OF_ANOTHER_USER.items())
    task = harbor(TEST, solve="echo 42 > /tmp/a.txt")
    found = await check(
        dataclasses.replace(task, cheats=cheats, sandbox={**task.sandbox, "image": image}), pull="missing"
    )
    expected = {"nothing": 0.0, SOLUTION: 1.0, **{f"cheat:{name}": 0.0 for name in OF_ANOTHER_USER}}
    assert (rewards(found), found.notes) == (expected, ()), found.problems


WORK = """echo here >made; cd /
rm /home/image-file; mkdir -p /srv/new/deep; echo deep >/srv/new/deep/x; echo top >/answer
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


@pytest.mark.parametrize("workdir", ["/workspace", "/opt/app", "/usr/src/app", "/root", "/srv", "/link"])
async def test_whatever_a_rollout_made_or_removed_outside_the_folders_of_programs_is_judged(
    harbor, check, image_of, workdir
):
    image = image_of(f"touch /home/image-file; ln -s /opt/behind /link; mkdir -p /opt/behind {workdir}")
    task = harbor(LOOK, solve=WORK, toml=f'[environment]\nworkdir = "{workdir}"')
    found = await check(dataclasses.replace(task, sandbox={**task.sandbox, "image": image}), pull="missing")
    assert rewards(found) == {"nothing": 0.0, SOLUTION: 1.0}, found.problems


@pytest.mark.parametrize(("user", "fields"), [("root", {"disk_mb": 64}), ("1000:1000", {})])
async def test_a_fresh_sandbox_takes_what_its_user_may_write(harbor, check, user, fields):
    """A disk limit makes all but a few folders read-only, and another user than root may write to few."""
    task = harbor(TEST, solve="echo 42 > /tmp/a.txt")
    options = {"script": '[ "$(cat /tmp/a.txt)" = 42 ]'}
    verifier = dataclasses.replace(task.verifier, options=options)
    precautions = dataclasses.replace(task.precautions, access="fresh")
    sandbox = {**task.sandbox, **fields}
    task = dataclasses.replace(task, verifier=verifier, precautions=precautions, solution=steps("echo 42 >/tmp/a.txt"))
    found = await check(dataclasses.replace(task, sandbox=sandbox), user=user)
    assert rewards(found) == {"nothing": 0.0, SOLUTION: 1.0}, found.problems


LIES = {
    "a mode that is a text": "'mode': 'x'",
    "a name with a NUL": "'path': 'a\\0b'",
    "a name that is a path": "'path': '../usr/bin/cat'",
    "a name that is a number": "'path': 7",
    "a name that is no text": "'path': '\\ud800'",
    "another key": "'more': 1",
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
async def test_an_agent_that_lies_about_what_there_is_has_the_lowest_score(harbor, check, lie):
    """The live sandbox's agent is started anew from the image's Python, which a model that is root can change."""
    lying = f"""
import _json, sys
def make_encoder(*given, make=_json.make_encoder):
    encode = make(*given)
    def lie(value, level):
        if isinstance(value, dict) and isinstance(value.get("part"), list):
            value["part"] = [{{**entry, {lie}}} for entry in value["part"]]
        return encode(value, level)
    return lie
if "statistics" not in str(sys.orig_argv):
    _json.make_encoder = make_encoder
"""
    attack = f"""cat >>"{OF_THE_AGENT}" <<'END'\n{lying}\nEND\necho 42 >/tmp/a.txt"""
    task = harbor(TEST, solve="echo 42 > /tmp/a.txt")
    found = await check(dataclasses.replace(task, cheats=(Cheat(name="it", steps=steps(attack)),)))
    assert rewards(found) == {"nothing": 0.0, SOLUTION: 1.0, "cheat:it": 0.0}, found.problems


async def test_what_may_not_change_stays_the_image_s_although_the_agent_hides_it(harbor, check):
    """The rollout's own agent is asked whether it was changed."""
    test = TEST.replace("if [", "if [ -e /conftest.py ] || [", 1)
    task = harbor(test, solve="echo 42 > /tmp/a.txt")
    assert task.verifier is not None
    asked = len(task.verifier.options["protected"])
    hides = f"""
import os
listed = []
def listdir(path=".", real=os.listdir):
    listed.extend([path] if str(path) == "/" else [])
    return [name for name in real(path) if name != "conftest.py" or len(listed) > {asked}]
if "statistics" not in str(__import__("sys").orig_argv):
    os.listdir = listdir
"""
    attack = f"""cat >>"{OF_THE_AGENT}" <<'END'\n{hides}\nEND\n: >/conftest.py"""
    found = await check(dataclasses.replace(task, cheats=(Cheat(name="it", steps=steps(attack)),)))
    assert rewards(found) == {"nothing": 0.0, SOLUTION: 1.0, "cheat:it": 0.0}, found.problems


async def test_an_error_number_that_the_agent_has_made_up_is_no_way_out(harbor, check):
    raises = """
import os
def listdir(path=".", real=os.listdir):
    if str(path) == "/":
        raise OSError(24, "Too many open files")
    return real(path)
os.listdir = listdir
"""
    attack = f"""cat >>"{OF_THE_AGENT}" <<'END'\n{raises}\nEND"""
    task = harbor(TEST, solve="echo 42 > /tmp/a.txt")
    found = await check(dataclasses.replace(task, cheats=(Cheat(name="it", steps=steps(attack)),)))
    assert rewards(found) == {"nothing": 0.0, SOLUTION: 1.0, "cheat:it": 0.0}, found.problems


async def test_what_is_mounted_in_both_containers_is_left_alone(harbor, check, tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "data").write_text("of others")
    task = harbor(TEST, solve="for n in {1..60}; do : >/srv/f$n; done; echo 42 > /tmp/a.txt")
    found = await check(task, volumes=[f"{tmp_path / 'cache'}:/srv/cache"])
    assert rewards(found) == {"nothing": 0.0, SOLUTION: 1.0}, found.problems
    assert (tmp_path / "cache" / "data").read_text() == "of others"


async def test_a_named_path_leads_to_no_program_through_a_link_of_the_rollout(harbor, check):
    task = harbor(TEST, solve="ln -s /usr build; echo 42 > /tmp/a.txt")
    found = await check(dataclasses.replace(task, precautions=Precautions(artifacts=("build/bin", "/"))))
    assert rewards(found) == {"nothing": 0.0, SOLUTION: 1.0}, found.problems


PROGRAM = """#!/bin/bash
[ "$(/usr/local/bin/tool)" = 7 ] && echo 1 >/logs/verifier/reward.txt || echo 0 >/logs/verifier/reward.txt
"""
MAKE_PROGRAM = "mkdir -p /usr/local/bin && cd /usr/local/bin && printf '#!/bin/sh\\necho 7\\n' >tool && chmod 755 tool"


@pytest.mark.parametrize(
    ("toml", "reward"),
    [
        ("", 0.0),
        ('artifacts = ["/usr/local/bin/tool"]', 1.0),
        ('artifacts = [{source = "/usr/local/bin/tool"}]', 1.0),
        ('artifacts = ["/usr/local/"]', 0.0),
        ('artifacts = ["/usr/local/bin"]', None),
    ],
)
async def test_a_program_is_judged_where_the_task_names_it(harbor, check, toml, reward):
    found = await check(harbor(PROGRAM, solve=MAKE_PROGRAM, toml=toml))
    assert rewards(found)[SOLUTION] == reward, found.problems
    if reward is None:
        assert "name the files" in found.problems[0]


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
