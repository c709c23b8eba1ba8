"""The check of a task's rewards: what it runs, and which rewards it does not accept."""

import json
from pathlib import Path

import pytest

from hermes_core.cli import main
from hermes_core.contracts.errors import UnknownComponentError
from hermes_core.contracts.task import Cheat, Step, Task
from hermes_core.discovery import PluginSettings, Registry, load_plugins
from hermes_core.rollout import Runtime
from hermes_core.specs import Ref
from hermes_runner.tasks.check import TaskCheck, check_task, check_tasks

SUPPORT = Path(__file__).parents[1] / "support" / "rollout_components.py"


def run(command: str) -> tuple[Step, ...]:
    return (Step(tool="terminal", arguments={"command": command}),)


def task(verifier: str | None = "file_is_ok", **fields: object) -> Task:
    values: dict[str, object] = {
        "id": "t",
        "messages": ({"role": "user", "content": "Write ok to answer.txt."},),
        "verifier": None if verifier is None else Ref(kind="verifier", name=verifier),
        "solution": run("echo ok > answer.txt"),
        "cheats": (Cheat(name="wrong", steps=run("echo no > answer.txt")),),
    }
    return Task(**{**values, **fields})  # type: ignore[arg-type]  # a test's shorthand


IDLE = Cheat(name="idle", steps=())
WINNING = Cheat(name="winning", steps=run("echo ok > answer.txt"))


async def check(registry: Registry, checked: Task, *, repeats: int = 1) -> TaskCheck:
    async with Runtime(registry) as runtime:
        return await check_task(checked, runtime, repeats=repeats)


async def test_a_good_task_passes_and_lists_its_trials(registry: Registry) -> None:
    found = await check(registry, task(), repeats=2)
    assert found.problems == ()
    assert {trial.name: trial.rewards for trial in found.trials} == {
        "nothing": (0.0, 0.0),
        "solution": (1.0, 1.0),
        "cheat:wrong": (0.0, 0.0),
    }


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"solution": run("echo no > answer.txt")}, "the solution scores 0 of 1"),
        ({"setup": ("echo ok > answer.txt",)}, "doing nothing already scores 1"),
        ({"cheats": (IDLE, WINNING)}, "cheat:winning scores 1, more than doing nothing (0)"),
        ({"solution": None}, "it has no solution"),
        ({"verifier": None}, "it has no verifier"),
        ({"verifier": "raising"}, "solution has no reward: NoVerdictError"),
        ({"verifier": "nowhere"}, "nowhere"),
        ({"setup": ("exit 3",)}, "solution has no reward: TaskError"),
        ({"enabled_toolsets": ("no-such",)}, "no-such"),
        ({"sandbox": {"image": "debian:12"}}, "image"),
    ],
)
async def test_a_reward_that_cannot_be_relied_on_is_a_problem(
    registry: Registry, fields: dict[str, object], said: str
) -> None:
    found = await check(registry, task(**fields))  # type: ignore[arg-type]  # a table of mixed fields
    assert not found.passed
    assert said in " | ".join(found.problems)


async def test_repeats_that_differ_are_a_problem(registry: Registry, tmp_path: Path) -> None:
    count = tmp_path / "count"
    solution = run(f"echo >> {count}; [ $(wc -l < {count}) -gt 1 ] || echo ok > answer.txt")
    found = await check(registry, task(solution=solution), repeats=2)
    assert "solution: repeats differ, rewards 1, 0" in found.problems


async def test_the_answer_is_part_of_a_solution_and_of_a_cheat(registry: Registry) -> None:
    cheats = (Cheat(name="asks", steps=(), answer="please"),)
    found = await check(registry, task("sync_says_done", solution=(), answer="done", cheats=cheats))
    assert found.problems == ()


async def test_tasks_without_cheats_pass_with_a_note(registry: Registry) -> None:
    found = await check(registry, task(cheats=()))
    assert found.passed
    assert found.notes == ("it lists no cheats",)


OPENINGS = {
    "several messages": (
        {"role": "system", "content": "You are careful."},
        {"role": "user", "content": [{"type": "text", "text": "Write it."}]},
        {"role": "assistant", "content": "What?"},
        {"role": "user", "content": "ok, to answer.txt"},
    ),
    "the model's turn": ({"role": "user", "content": "Write."}, {"role": "assistant", "content": "I will."}),
    "a system message alone": ({"role": "system", "content": "Write ok to answer.txt."},),
}


@pytest.mark.parametrize("opening", OPENINGS.values(), ids=OPENINGS)
async def test_a_task_may_begin_with_any_conversation(
    registry: Registry, opening: tuple[dict[str, object], ...]
) -> None:
    twice = (*run("echo no > answer.txt"), *run("echo ok > answer.txt"))
    found = await check(
        registry, task(messages=opening, solution=twice, cheats=(IDLE, Cheat(name="c", steps=twice[:1])))
    )
    assert found.problems == ()
    assert {trial.name: trial.reward for trial in found.trials} == {
        "nothing": 0.0,
        "solution": 1.0,
        "cheat:idle": 0.0,
        "cheat:c": 0.0,
    }


async def test_missing_models_are_an_error_and_not_a_problem_of_a_task() -> None:
    allowed = ("hermes-sandbox", "hermes-tools", "hermes-runner")
    async with Runtime(load_plugins(PluginSettings(allow=allowed), environ={})) as runtime:
        with pytest.raises(UnknownComponentError, match=r"pip install hermes-models|hermes-models has it"):
            await check_task(task(), runtime)
        with pytest.raises(UnknownComponentError, match=r"pip install hermes-models|hermes-models has it"):
            await anext(check_tasks([task()], runtime))


async def test_results_come_in_the_order_of_the_tasks(registry: Registry) -> None:
    slow = task(id="slow", setup=("sleep 0.5",), cheats=())
    async with Runtime(registry) as runtime:
        found = [c.task_id async for c in check_tasks([slow, task(id="b", cheats=()), task(id="c")], runtime)]
    assert found == ["slow", "b", "c"]


@pytest.fixture
def tasks_file(tmp_path: Path) -> Path:
    path = tmp_path / "tasks.jsonl"
    good = {
        "id": "good",
        "prompt": "p",
        "verifier": "file_is_ok",
        "solution": ["echo ok > answer.txt"],
        "cheats": [{"name": "c", "steps": ["echo no > answer.txt"]}],
    }
    path.write_text(json.dumps(good) + "\n" + json.dumps({**good, "id": "bad", "solution": ["true"]}) + "\n{\n")
    return path


def command(*words: object, plugins: tuple[str, ...] = ()) -> int:
    return main(["-p", str(SUPPORT), *plugins, "tasks", *map(str, words)], environ={})


def test_the_command_prints_a_table_and_fails_when_a_task_does(
    tasks_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("check", tasks_file) == 1
    printed = capsys.readouterr().out
    assert "good  1.00      0.00     0.00        passed" in printed
    assert "bad: the solution scores 0 of 1" in printed
    assert "1 of 2 tasks passed, 1 could not be read" in printed
    assert f"problem: {tasks_file}:3: not JSON" in printed


def test_the_command_succeeds_when_all_tasks_do(tasks_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tasks_file.write_text(tasks_file.read_text().splitlines()[0])
    assert command("check", tasks_file, "--json", "--repeats", 2, "--isolation", "none") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["passed"] is True
    assert printed["tasks"][0]["trials"][1] == {"name": "solution", "rewards": [1.0, 1.0], "failure": "", "detail": ""}


def test_the_command_lists_tasks_and_problems(tasks_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("list", tasks_file) == 1
    printed = capsys.readouterr().out
    assert "good  train  file_is_ok  1       yes" in printed
    assert "problem:" in printed
    assert command("list", tasks_file, "--json", "--task-filter", "good") == 1
    listed = json.loads(capsys.readouterr().out)
    assert [entry["id"] for entry in listed["tasks"]] == ["good"]
    assert listed["problems"][0]["source"] == f"{tasks_file}:3"


def test_bad_arguments_are_answered_with_what_to_type(tasks_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("check", tasks_file, "--task-filter", "goood") == 2
    assert "goood" in capsys.readouterr().err
    assert command("check", tasks_file.with_name("task.jsonl")) == 2
    assert "did you mean" in capsys.readouterr().err
    assert command("check", tasks_file, "--backend", "lokal") == 2
    assert "local" in capsys.readouterr().err
    assert command("check", tasks_file, plugins=("-p", "no:hermes-models")) == 2
    printed = capsys.readouterr()
    assert "hermes-models has it" in printed.err
    assert printed.out == ""
