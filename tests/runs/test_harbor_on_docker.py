"""Harbor and Terminal-Bench task folders on Docker, as they are written: their own image, user and limits."""

from __future__ import annotations

import fcntl
import json
import subprocess
import tempfile
from pathlib import Path

import pytest
from chat_endpoint import server

ROOT = Path(__file__).resolve().parents[2]
IMAGE = "hermes-test:2"
pytestmark = [pytest.mark.component("docker"), pytest.mark.timeout(300)]

TEMPLATE = """version = "1.0"

[metadata]
author_name = "Somebody"
author_email = "somebody@example.org"
difficulty = "easy"
category = "programming"
tags = ["trivial"]

[verifier]
timeout_sec = 120.0

[agent]
timeout_sec = 120.0

[environment]
build_timeout_sec = 600.0
cpus = 1
memory = "2G"
storage = "10G"
"""
"""The values of Harbor's template."""

TERMINAL_BENCH = """schema_version = "1.1"
artifacts = []

[task]
name = "terminal-bench/trivial"
description = ""

[metadata]
difficulty = "easy"

[verifier]
timeout_sec = 120.0

[agent]
timeout_sec = 120.0

[environment]
build_timeout_sec = 600.0
docker_image = "{image}"
cpus = 1
memory_mb = 2048
storage_mb = 10240
gpus = 0
allow_internet = true
"""

SOLVE = """#!/bin/bash
set -e
[ "$(pwd)" = "{workdir}" ] && [ "$(id -un)" = "{user}" ]
cd ~ && echo 42 > /solution/proof && cp /solution/proof "{workdir}/answer.txt"
"""
TEST = """#!/bin/bash
# As Harbor has it: root, in the image's working directory, with what the solution left there.
if [ "$(id -u)" = 0 ] && [ "$(pwd)" = "{workdir}" ] && [ "$(cat answer.txt)" = 42 ]; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
"""


@pytest.fixture(scope="session", autouse=True)
def _small_image():
    """Build the image of the Docker backend's tests where the engine does not have it."""
    script = ROOT / "hermes_backend_docker" / "tests" / "support" / "build_image.sh"
    # The script itself is what is locked: a file in /tmp may be another user's.
    with script.open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if subprocess.run(["docker", "image", "inspect", IMAGE], capture_output=True, check=False).returncode:
            subprocess.run([script, IMAGE], check=True, capture_output=True)


def write_task(folder: Path, toml: str, *, workdir: str = "/app", user: str = "root", dockerfile: str = "") -> Path:
    """Write a task folder as Harbor has it; its solution and its test say 1 where they are who and where they must."""
    files = {
        "instruction.md": "Write 42 into answer.txt.\n",
        "task.toml": toml,
        "tests/test.sh": TEST.format(workdir=workdir),
        "solution/solve.sh": SOLVE.format(workdir=workdir, user=user),
        **({"environment/Dockerfile": dockerfile} if dockerfile else {}),
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def run_task(hermes, tmp_path):
    """Run the solutions of task folders with no option but the backend, and what a test adds: `run_task(FOLDER)`."""

    def run(tasks: Path, *more: str, env=None):
        model = () if "--model" in more else ("--model", "oracle", "--mistake-rate", "0")
        ended = hermes(
            "run", tasks, "--terminal-backend", "docker", "--out", "out", *model, *more, env=env, seconds=200
        )
        lines = tmp_path / "out" / "rollouts.jsonl"
        return ended, [json.loads(line) for line in lines.read_text().splitlines()] if lines.is_file() else []

    return run


@pytest.fixture
def named_image():
    """An image of the engine with a working directory and a user of its own."""
    name = "hermes-harbor-test:1"
    text = f"FROM {IMAGE}\nRUN mkdir -p /app && chown 1000:1000 /app\nWORKDIR /app\n"
    subprocess.run(["docker", "build", "-q", "-t", name, "-"], input=text.encode(), check=True, capture_output=True)
    return name


def test_a_folder_as_harbor_s_template_has_it_scores_full_with_its_solution(run_task, tmp_path):
    dockerfile = f"FROM {IMAGE}\nWORKDIR /app\n"
    ended, (rollout,) = run_task(write_task(tmp_path / "task", TEMPLATE, dockerfile=dockerfile))
    assert (ended.returncode, rollout["reward"]) == (0, 1.0), (ended.stderr, rollout["reward_detail"])
    place = rollout["provenance"]["sandbox"]
    assert place["limits"]["disk"].startswith("none: ")
    assert place["limits"]["memory"] == "2048 MB, no swap"
    assert ended.stderr.count("disk is not limited as tasks wish") == 1
    assert rollout["provenance"]["verification"]["access"] == "fresh"


WITHOUT_PYTHON = f"FROM {IMAGE}\nRUN rm -rf /usr/bin/python3* /usr/lib/python3*\n"
"""What the template itself builds on, ubuntu:24.04, has bash and no Python either."""


@pytest.mark.parametrize(
    ("lines", "workdir", "user"), [("", "/app", "root"), ("USER agent\n", "/home/agent", "agent")], ids=["root", "user"]
)
def test_an_image_without_python_is_judged_like_any_other(run_task, tmp_path, lines, workdir, user):
    text = f"{WITHOUT_PYTHON}RUN mkdir -p /solution && chown 1000 /solution\nWORKDIR {workdir}\n{lines}"
    folder = write_task(tmp_path / "task", TEMPLATE, workdir=workdir, user=user, dockerfile=text)
    solve = folder / "solution" / "solve.sh"
    solve.write_text(f"! type python3 || exit\nmkdir -p ~/made && echo 1 >~/made/by\n{solve.read_text()}")
    test = folder / "tests" / "test.sh"
    home = "/root" if user == "root" else workdir
    test.write_text(test.read_text().replace("if ", f"if ! type python3 && [ $(cat {home}/made/by) = 1 ] && "))
    ended, (rollout,) = run_task(folder)
    assert (ended.returncode, rollout["reward"]) == (0, 1.0), (ended.stderr, rollout["reward_detail"])
    assert rollout["provenance"]["sandbox"]["carried_python"]
    assert rollout["provenance"]["verification"]["access"] == "fresh"


def test_a_folder_in_the_form_of_terminal_bench_scores_full_with_its_solution(run_task, tmp_path, named_image):
    toml = TERMINAL_BENCH.format(image=named_image)
    for name in ("one", "two"):
        write_task(tmp_path / "tasks" / name, toml)
    ended, rollouts = run_task(tmp_path / "tasks")
    assert (ended.returncode, [rollout["reward"] for rollout in rollouts]) == (0, [1.0, 1.0]), ended.stderr
    assert ended.stderr.count("disk is not limited as tasks wish") == 1


def test_tasks_check_needs_no_option_but_the_backend(hermes, tmp_path, named_image):
    folder = write_task(tmp_path / "task", TERMINAL_BENCH.format(image=named_image))
    ended = hermes("tasks", "check", folder, "--backend", "docker", "--json")
    (found,) = json.loads(ended.stdout)["tasks"]
    assert (ended.returncode, found["problems"]) == (0, []), ended.stderr


@pytest.mark.parametrize(
    ("more", "workdir", "user"),
    [("USER agent", "/home/agent", "agent"), ("USER 1000:1000", "/home/agent", "agent"), ("", "/", "root")],
)
def test_commands_are_the_image_s_user_s_in_its_directory_and_the_test_is_root(run_task, tmp_path, more, workdir, user):
    text = f"FROM {IMAGE}\nRUN mkdir -p /solution && chown 1000 /solution\nWORKDIR {workdir}\n{more}\n"
    folder = write_task(tmp_path / "task", TEMPLATE, workdir=workdir, user=user, dockerfile=text)
    ended, (rollout,) = run_task(folder)
    assert (ended.returncode, rollout["reward"]) == (0, 1.0), (ended.stderr, rollout["reward_detail"])


def test_what_the_model_s_user_may_not_look_into_stays_the_image_s(run_task, tmp_path):
    """Its judge is root in a container of its own, and compares all of both."""
    lines = [f"FROM {IMAGE}", "RUN mkdir -p /solution && chown 1000 /solution"]
    lines += ["RUN mkdir -p /srv/kept/in && echo kept >/srv/kept/in/f"]
    lines += ["RUN chmod 700 /root /srv/kept && echo secret >/root/f", "WORKDIR /home/agent", "USER agent"]
    folder = write_task(tmp_path / "task", TEMPLATE, workdir="/home/agent", user="agent", dockerfile="\n".join(lines))
    solve = folder / "solution" / "solve.sh"
    solve.write_text(solve.read_text() + "mkdir /tmp/shut && echo 1 >/tmp/shut/f && chmod 0 /tmp/shut/f /tmp/shut\n")
    test = folder / "tests" / "test.sh"
    looks = '[ "$(cat /srv/kept/in/f /root/f | tr "\n" " ")" = "kept secret " ] || exit\n'
    begins = f"#!/bin/bash\necho 0 >/logs/verifier/reward.txt\n{looks}"
    test.write_text(test.read_text().replace("#!/bin/bash\n", begins))
    ended, (rollout,) = run_task(folder)
    assert (ended.returncode, rollout["reward"]) == (0, 1.0), (ended.stderr, rollout["reward_detail"])


def test_work_below_a_folder_that_its_user_may_not_look_into_is_judged(run_task, tmp_path):
    """A named path that this user cannot even reach is as the image has it."""
    lines = [f"FROM {IMAGE}", "RUN mkdir -p /root/work /srv/shut && chown 1000 /root/work && chmod 711 /root"]
    lines += ["RUN echo kept >/srv/shut/f && chmod 700 /srv/shut", "WORKDIR /root/work", "USER agent"]
    toml = 'artifacts = ["/srv/shut/f"]\n' + TEMPLATE
    folder = write_task(tmp_path / "task", toml, workdir="/root/work", dockerfile="\n".join(lines))
    (folder / "solution" / "solve.sh").write_text("echo 42 >answer.txt\n")
    test = folder / "tests" / "test.sh"
    test.write_text(test.read_text().replace("if ", "if [ -e /srv/shut/f ] && "))
    ended, (rollout,) = run_task(folder)
    assert (ended.returncode, rollout["reward"]) == (0, 1.0), (ended.stderr, rollout["reward_detail"])


def test_a_test_finds_the_programs_that_its_image_has_in_the_work_folder_and_at_home(run_task, tmp_path):
    """A model that is root may have written to both, but not in the container that is judged."""
    places = ["/app/.venv/bin", "/root/tools/bin"]
    made = [f"RUN mkdir -p {place} && ln -s /bin/true {place}/tool{n}" for n, place in enumerate(places)]
    lines = [f"FROM {IMAGE}", *made, f"ENV PATH={':'.join(places)}:/usr/bin:/bin", "WORKDIR /app"]
    folder = write_task(tmp_path / "task", TEMPLATE, dockerfile="\n".join(lines))
    test = folder / "tests" / "test.sh"
    test.write_text(test.read_text().replace("if ", "if tool0 && tool1 && "))
    ended, (rollout,) = run_task(folder)
    assert (ended.returncode, rollout["reward"]) == (0, 1.0), (ended.stderr, rollout["reward_detail"])


def test_a_task_may_name_the_user_of_its_model(run_task, tmp_path):
    text = f"FROM {IMAGE}\nRUN mkdir -p /solution && chown 1000 /solution\nWORKDIR /home/agent\n"
    toml = TEMPLATE.replace("[agent]", '[agent]\nuser = "agent"')
    folder = write_task(tmp_path / "task", toml, workdir="/home/agent", user="agent", dockerfile=text)
    ended, (rollout,) = run_task(folder)
    assert (ended.returncode, rollout["reward"]) == (0, 1.0), (ended.stderr, rollout["reward_detail"])


@pytest.mark.parametrize("user", ['"agent"', "1000"])
def test_a_task_may_name_the_user_of_its_test(run_task, tmp_path, user):
    """What lies in that user's own home may be the model's work, and is not to be what the test starts with."""
    toml = TEMPLATE.replace("[verifier]", f"[verifier]\nuser = {user}")
    folder = write_task(tmp_path / "task", toml, dockerfile=f"FROM {IMAGE}\nWORKDIR /app\n")
    test = folder / "tests" / "test.sh"
    asks = '[ "$(id -u) $(id -g)" = "1000 1000" ] && [ "$HOME" != /home/agent ] && touch ~/x'
    test.write_text(test.read_text().replace('[ "$(id -u)" = 0 ]', asks))
    ended, (rollout,) = run_task(folder)
    assert (ended.returncode, rollout["reward"]) == (0, 1.0), (ended.stderr, rollout["reward_detail"])


def test_a_solution_can_be_run_by_a_user_who_may_not_write_to_the_root(run_task, tmp_path):
    text = f"FROM {IMAGE}\nWORKDIR /home/agent\nUSER agent\n"
    folder = write_task(tmp_path / "task", TEMPLATE, workdir="/home/agent", user="agent", dockerfile=text)
    solve = folder / "solution" / "solve.sh"
    solve.write_text(solve.read_text().replace("/solution/proof", "/tmp/proof"))
    ended, (rollout,) = run_task(folder)
    assert (ended.returncode, rollout["reward"]) == (0, 1.0), (ended.stderr, rollout["reward_detail"])


def test_the_option_user_stands_above_what_the_task_and_its_image_say(run_task, tmp_path):
    text = f"FROM {IMAGE}\nRUN mkdir -p /solution && chmod 777 /solution\nWORKDIR /tmp\n"
    toml = TEMPLATE.replace("[agent]", '[agent]\nuser = "root"')
    folder = write_task(tmp_path / "task", toml, workdir="/tmp", dockerfile=text)
    _, (rollout,) = run_task(folder, "--backend-options", '{"user": "65534:65534"}')
    assert (rollout["reward"], rollout["provenance"]["sandbox"]["uid"]) == (None, 65534)


def test_a_limit_that_the_run_itself_asks_for_is_refused_where_it_cannot_be_enforced(run_task, tmp_path):
    folder = write_task(tmp_path / "task", TEMPLATE, dockerfile=f"FROM {IMAGE}\nWORKDIR /app\n")
    (tmp_path / "run.yaml").write_text("sandbox:\n  disk_mb: 4096\n")
    ended, rollouts = run_task(folder, "--config", "run.yaml")
    assert (ended.returncode != 0, rollouts) == (True, [])
    assert "got 4096 MB of disk and 2048 MB of memory" in ended.stderr


def test_a_worker_of_ray_wants_no_image_that_no_task_wants(run_task, tmp_path, named_image):
    """It is not told the tasks where the model is a server's."""
    pytest.importorskip("ray", reason="install hermes-backend-ray")
    folder = write_task(tmp_path / "task", TERMINAL_BENCH.format(image=named_image))

    def answer(number):
        wanted = {"name": "terminal", "arguments": json.dumps({"command": "echo 42 >answer.txt"})}
        call = {"id": "c", "type": "function", "function": wanted}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        if number > 1:
            message = {"role": "assistant", "content": "done"}
        return 200, {}, {"choices": [{"message": message, "finish_reason": "stop"}]}

    options = json.dumps({"address": "local", "workers": 1, "num_cpus": 1})
    # The names of Ray's sockets would be too long below the test's own folder.
    with server(answer) as (url, _), tempfile.TemporaryDirectory(prefix="ray-") as short:
        model = ("--model", url, "--model-name", "m", "--engine", "ray", "--engine-options", options)
        ended, found = run_task(folder, *model, env={"TMPDIR": short})
    assert ended.returncode == 0, ended.stderr
    (rollout,) = found
    assert (ended.returncode, rollout["reward"]) == (0, 1.0), (ended.stderr, rollout["reward_detail"])


def test_the_default_image_is_wanted_where_a_task_brings_none(run_task, tmp_path):
    write_task(tmp_path / "tasks" / "one", TEMPLATE, dockerfile=f"FROM {IMAGE}\nWORKDIR /app\n")
    (tmp_path / "bare.jsonl").write_text(
        json.dumps({"id": "bare", "prompt": "Go.", "verifier": {"name": "script", "options": {"script": "true"}}})
    )
    options = json.dumps({"image": "hermes-there-is-none:1", "pull": "never"})
    ended, _ = run_task(tmp_path / "bare.jsonl", "--backend-options", options)
    assert ended.returncode != 0
    assert "hermes-there-is-none:1" in ended.stderr


HOME = "/home/agent"
AT_HOME = f"FROM {IMAGE}\nWORKDIR {HOME}\nUSER agent\n"


def test_work_that_is_its_users_alone_is_that_users_where_it_is_judged(run_task, tmp_path):
    toml = TEMPLATE.replace("[verifier]", '[verifier]\nuser = "agent"')
    folder = write_task(tmp_path / "task", toml, workdir=HOME, dockerfile=AT_HOME)
    solution = "cd ~ && mkdir -p build && echo 42 >answer.txt && chmod 600 answer.txt"
    (folder / "solution" / "solve.sh").write_text(f"{solution}\n")
    judged = f'[ "$(cat {HOME}/answer.txt)" = 42 ] && touch {HOME}/build/x'
    lines = [f"if {judged}; then r=1; else r=0; fi", "echo $r >/logs/verifier/reward.txt"]
    (folder / "tests" / "test.sh").write_text("\n".join([*lines, ""]))
    ended, (rollout,) = run_task(folder)
    assert (ended.returncode, rollout["reward"]) == (0, 1.0), (ended.stderr, rollout["reward_detail"])


def test_what_a_model_has_shut_is_judged_as_it_is_behind_that(run_task, tmp_path):
    """The image's own folder was judged in its place, and what was broken in it was not seen."""
    text = AT_HOME.replace("USER", "RUN mkdir proj && echo whole >proj/conf && chown -R agent proj\nUSER")
    folder = write_task(tmp_path / "task", TEMPLATE, workdir=HOME, dockerfile=text)
    (folder / "solution" / "solve.sh").write_text("cd ~ && echo broken >proj/conf && chmod 0 proj\n")
    lines = [f"grep -q whole {HOME}/proj/conf && r=1 || r=0", "echo $r >/logs/verifier/reward.txt", ""]
    (folder / "tests" / "test.sh").write_text("\n".join(lines))
    _, (rollout,) = run_task(folder)
    assert (rollout["reward"], rollout["reward_status"]) == (0.0, "ok")


def test_a_user_of_the_test_need_not_have_an_account(run_task, tmp_path):
    toml = TEMPLATE.replace("[verifier]", "[verifier]\nuser = 12345")
    folder = write_task(tmp_path / "task", toml, dockerfile=f"FROM {IMAGE}\nWORKDIR /app\n")
    lines = ['[ "$(id -u) $(id -g)" = "12345 12345" ] && r=1 || r=0', "echo $r >/logs/verifier/reward.txt", ""]
    (folder / "tests" / "test.sh").write_text("\n".join(lines))
    (folder / "tests" / "test.sh").chmod(0o600)
    ended, (rollout,) = run_task(folder)
    assert (ended.returncode, rollout["reward"]) == (0, 1.0), (ended.stderr, rollout["reward_detail"])
