"""What judging depends on is hashed before the model's part; what has changed gives no reward, or the lowest."""

from __future__ import annotations

import json

import pytest
from rollout_script import Script, call, calls, says

from hermes_core.contracts.errors import Blame
from hermes_core.contracts.rollout import RewardStatus
from hermes_core.contracts.task import Precautions, Task, TaskFile, TaskProblem
from hermes_core.rollout import GroupPlan, RolloutSpec, Runtime, run_rollout
from hermes_core.specs import Ref
from hermes_core.tooling.selection import select_tools
from hermes_runner.tasks.jsonl import parse_line

TESTS = (TaskFile(path="tests/test_a.py", data=b"assert True\n"), TaskFile(path="tests/deep/b.txt", data=b"b"))


@pytest.fixture
def run_commands(registry):
    async def run_commands(options, *commands, name="depends", protected=(), access=None):
        task = Task(
            id="t",
            messages=({"role": "user", "content": "do it"},),
            files=TESTS,
            verifier=Ref(kind="verifier", name=name, options=options),
            precautions=Precautions(protected=protected, access=access, artifacts=("made",) if access else None),
        )
        turns = [calls(call("terminal", json.dumps({"command": command}))) for command in commands]
        group = GroupPlan(group_id="g", task=task, tools=select_tools(registry, enabled_toolsets=["terminal"]))
        async with Runtime(registry) as made:
            return await run_rollout(RolloutSpec(rollout_id="r", group=group), made, Script(*turns, says("done")))

    return run_commands


@pytest.mark.parametrize("change", ["echo x >> {0}/key", "rm {0}/key", "touch {0}/new", "ln -sf /etc/passwd {0}/key"])
async def test_a_file_of_this_machine_that_changed_meanwhile_gives_no_reward_and_is_named(
    run_commands, tmp_path, change
):
    (tmp_path / "key").write_text("42")
    options = {"reads": [str(tmp_path)]}
    assert (await run_commands(options, f"cat {tmp_path}/key")).reward == 1.0
    outcome = await run_commands(options, change.format(tmp_path))
    assert (outcome.reward, outcome.reward_status) == (None, RewardStatus.ERROR)
    assert outcome.reward_failure.blame is Blame.VERIFIER
    assert str(tmp_path) in outcome.reward_failure.message


async def test_a_file_that_is_missing_before_and_after_is_left_to_the_verifier(run_commands, tmp_path):
    outcome = await run_commands({"reads": [str(tmp_path / "nowhere")]})
    assert outcome.reward == 1.0


async def test_inputs_of_a_verifier_that_another_one_asks_are_watched_too(run_commands, tmp_path):
    (tmp_path / "key").write_text("42")
    inner = {"name": "depends", "options": {"reads": [str(tmp_path / "key")]}}
    assert (await run_commands(inner, name="asks")).reward == 1.0
    assert (await run_commands(inner, f"echo 43 > {tmp_path}/key", name="asks")).reward is None


async def test_verifiers_that_name_each_other_without_end_give_no_reward(run_commands):
    ref = {"name": "depends", "options": {}}
    for _ in range(40):
        ref = {"name": "asks", "options": ref}
    outcome = await run_commands(ref["options"], name="asks")
    assert outcome.reward is None
    assert "verifiers name each other more than" in outcome.reward_failure.message


async def test_a_verifier_that_cannot_say_what_it_needs_gives_no_reward(run_commands):
    outcome = await run_commands({"broken": True})
    assert outcome.reward is None
    assert "no idea" in outcome.reward_failure.message


CHANGES = {
    "edited": "echo 'assert 1' > tests/test_a.py",
    "same size": "printf 'assert 1234\\n' > tests/test_a.py",
    "appended": "echo >> tests/deep/b.txt",
    "deleted": "rm tests/deep/b.txt",
    "all gone": "rm -r tests",
    "added": "touch tests/conftest.py",
    "many added": "for n in $(seq 300); do touch tests/$n; done",
    "folder added": "mkdir tests/more",
    "a link in its place": "cp tests/test_a.py same && ln -sf ../same tests/test_a.py",
    "the folder a link": "mv tests other && ln -s other tests",
    "endless": "truncate -s 1T tests/deep/b.txt",
    "a pipe in its place": "rm tests/deep/b.txt && mkfifo tests/deep/b.txt",
    "made what was not there": "touch conftest.py",
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_a_rollout_that_changes_what_is_protected_scores_lowest_and_the_detail_says_what(run_commands, change):
    outcome = await run_commands({"guards": ["tests", "conftest.py"]}, change)
    assert (outcome.reward, outcome.reward_status) == (0.0, RewardStatus.OK)
    assert "protected paths: " in outcome.reward_detail
    tampered = outcome.provenance["verification"]["tampered"]
    assert tampered
    assert tampered[0] in outcome.reward_detail


@pytest.mark.parametrize(
    "harmless", ["cat tests/*.py; touch made", "touch -d 1990-01-01 tests/test_a.py", "cp -r tests copy; rm -r copy"]
)
async def test_a_rollout_that_leaves_what_is_protected_alone_is_judged(run_commands, harmless):
    outcome = await run_commands({}, harmless, protected=("tests", "conftest.py"))
    assert outcome.reward == 1.0
    assert outcome.provenance["verification"]["protected"]["conftest.py"] == "absent"
    assert "sha256" in outcome.provenance["verification"]["protected"]["tests/test_a.py"]


async def test_a_task_names_what_is_protected_beside_its_verifier(run_commands):
    assert (await run_commands({}, CHANGES["edited"], protected=("tests/test_a.py",))).reward == 0.0


async def test_protection_holds_for_a_fresh_sandbox_as_well(run_commands):
    options = {"command": "grep -q True tests/test_a.py"}
    assert (await run_commands(options, "echo forged > other", protected=("tests",), access="fresh")).reward == 1.0
    assert (await run_commands(options, CHANGES["edited"], protected=("tests",), access="fresh")).reward == 0.0
    assert (await run_commands(options, CHANGES["edited"], access="fresh")).reward == 1.0


def line(**verifier):
    task = {"id": "t", "prompt": "p", "verifier": {"name": "depends", **verifier}}
    return json.dumps(task).encode()


def test_a_task_file_says_how_its_verification_is_protected(tmp_path):
    given = {"access": "fresh", "artifacts": ["out/a.txt"], "protected": ["tests", "/opt/data"]}
    task = parse_line(line(**given), source="s", folder=tmp_path)
    assert isinstance(task, Task)
    assert task.precautions == Precautions(access="fresh", artifacts=("out/a.txt",), protected=("tests", "/opt/data"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"access": "root"}, "access"),
        ({"artifacts": ["../x"]}, "below the workspace"),
        ({"artifacts": ["/x/../y"]}, "an absolute path without"),
        ({"protected": [""]}, "below the workspace"),
        ({"artefacts": []}, "did you mean 'artifacts'"),
    ],
)
def test_a_task_file_that_protects_nothing_that_can_be_is_a_problem(tmp_path, given, said):
    problem = parse_line(line(**given), source="s", folder=tmp_path)
    assert isinstance(problem, TaskProblem)
    assert said in problem.message
