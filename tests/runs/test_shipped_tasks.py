"""The tasks in examples/: built from their sources, varied, and each with a reward that can be relied on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hermes_core.discovery import PluginSettings, load_plugins, load_tasks
from hermes_core.rollout import Runtime
from hermes_runner import check_task

ROOT = Path(__file__).resolve().parents[2]
TASKS = ROOT / "examples" / "terminal_tasks.jsonl"
REGISTRY = load_plugins(
    PluginSettings(
        allow=(
            "hermes-sandbox",
            "hermes-tools",
            "hermes-models",
            "hermes-tokens",
            "hermes-runner",
            "hermes-verifiers",
        ),
        strict=True,
    ),
    environ={},
)
LOADED = load_tasks(TASKS, REGISTRY)


def test_there_are_many_tasks_of_many_kinds():
    assert LOADED.problems == ()
    assert len(LOADED.tasks) >= 24
    assert len({task.metadata["category"] for task in LOADED.tasks}) >= 15


@pytest.mark.parametrize("task", LOADED.tasks, ids=lambda task: task.id)
def test_every_task_has_a_solution_of_steps_and_three_kinds_of_cheats(task):
    assert task.solution is not None
    assert len(task.solution) >= 2
    assert {cheat.kind for cheat in task.cheats} >= {"wrong_output", "tampering", "hard_coded"}


@pytest.mark.parametrize("task", LOADED.tasks, ids=lambda task: task.id)
async def test_the_solution_scores_full_and_no_cheat_more_than_nothing(task):
    async with Runtime(REGISTRY) as runtime:
        check = await check_task(task, runtime)
    assert check.passed, "\n".join(check.problems)
    assert len(check.trials) == 2 + len(task.cheats)


def test_the_file_is_what_its_sources_say():
    script = ROOT / "scripts" / "build_terminal_tasks.py"
    done = subprocess.run([sys.executable, script, "--check"], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
