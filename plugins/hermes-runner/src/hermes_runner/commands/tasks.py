"""`hermes-core tasks`: list a task set, and check whether its rewards are reliable."""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from hermes_core.cli import json_object, positive_number
from hermes_core.specs import ACCESS_LEVELS

if TYPE_CHECKING:
    from hermes_core.contracts.task import LoadedTasks
    from hermes_core.discovery import Registry
    from hermes_runner.tasks.check import TaskCheck


class TasksCommand:
    """The command `tasks`."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the subcommands `list` and `check`."""
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        listing = actions.add_parser("list", help="list the tasks, and the problems of those that cannot be used")
        checking = actions.add_parser(
            "check", help="check the rewards: full for solutions, not for cheats or doing nothing, the same in repeats"
        )
        for action in (listing, checking):
            action.add_argument("tasks", metavar="TASKS", help="task file (.jsonl) or Harbor task folder")
            action.add_argument(
                "--source", metavar="NAME", help="task source that reads TASKS (default: by its suffix)"
            )
            action.add_argument("--task-filter", metavar="IDS", help="only these task ids, comma-separated")
            action.add_argument("--json", action="store_true", help="print JSON")
        number: dict[str, Any] = {"type": positive_number, "metavar": "N"}
        checking.add_argument("--repeats", **number, default=1, help="run everything N times (1)")
        checking.add_argument("--max-concurrent", **number, default=4, help="tasks at a time (4)")
        checking.add_argument(
            *("--terminal-backend", "--backend"),
            dest="backend",
            default="local",
            metavar="NAME",
            help="where sandboxes come from (local)",
        )
        checking.add_argument(
            "--backend-options",
            type=partial(json_object, "--backend-options"),
            default={},
            metavar="JSON",
            help="JSON object of the backend's options",
        )
        checking.add_argument(
            "--isolation", metavar="LEVEL", help="isolation level the sandboxes must have: none, bwrap, …"
        )
        checking.add_argument(
            "--verifier-access",
            choices=ACCESS_LEVELS,
            default="live",
            help="minimum access of every verifier (live)",
        )

    def run(self, arguments: argparse.Namespace) -> int:
        """Run the command; returns 1 if a task cannot be used or fails its check."""
        import os

        from hermes_core.discovery import load_plugins, load_tasks

        settings, found_with = (getattr(arguments, name, None) for name in ("plugin_settings", "loaded_plugins"))
        registry = load_plugins(settings, environ=os.environ, loaded=found_with)
        loaded = _filter_tasks(load_tasks(arguments.tasks, registry, source=arguments.source), arguments)
        if arguments.action == "list":
            return _list(_add_verifier_problems(loaded, registry), as_json=arguments.json)
        return _check(loaded, registry, arguments)


def _filter_tasks(loaded: LoadedTasks, arguments: argparse.Namespace) -> LoadedTasks:
    import dataclasses

    from hermes_core.contracts.errors import ConfigError

    if arguments.task_filter is None:
        return loaded
    wanted = {word.strip() for word in arguments.task_filter.split(",") if word.strip()}
    if unknown := sorted(wanted - {task.id for task in loaded.tasks}):
        hint = f"see: hermes-core tasks list {arguments.tasks}"
        raise ConfigError(f"--task-filter names {unknown[0]!r}, which is not a task of {arguments.tasks}", hint=hint)
    return dataclasses.replace(loaded, tasks=tuple(task for task in loaded.tasks if task.id in wanted))


def _add_verifier_problems(loaded: LoadedTasks, registry: Registry) -> LoadedTasks:
    """Add the problems with the options of each task's verifiers."""
    import dataclasses

    from hermes_core.contracts.errors import HermesError
    from hermes_core.contracts.task import TaskProblem
    from hermes_core.rollout import Runtime, all_verifiers

    runtime, problems = Runtime(registry), list(loaded.problems)
    for task in loaded.tasks:
        try:
            list(all_verifiers(runtime, task.verifier) if task.verifier else ())
        except HermesError as error:
            problems.append(TaskProblem(source=task.source, task_id=task.id, message=error.message))
        except Exception as error:  # noqa: BLE001 - the plugin boundary: a verifier's own code names its parts
            said = f"its verifier raised {type(error).__name__}: {error}"
            problems.append(TaskProblem(source=task.source, task_id=task.id, message=said))
    return dataclasses.replace(loaded, problems=tuple(problems))


def _list(loaded: LoadedTasks, *, as_json: bool) -> int:
    if as_json:
        _print_json({"tasks": [_task_json(task) for task in loaded.tasks], "problems": _problems(loaded)})
        return 1 if loaded.problems else 0
    rows = [
        [task.id, task.split, task.verifier.name if task.verifier else "-", str(len(task.cheats)), _has(task.solution)]
        for task in loaded.tasks
    ]
    _print_table(["task", "split", "verifier", "cheats", "solution"], rows)
    _print_problems(loaded)
    return 1 if loaded.problems else 0


def _task_json(task: Any) -> dict[str, Any]:
    return {
        "id": task.id,
        "split": task.split,
        "verifier": None if task.verifier is None else task.verifier.name,
        "cheats": [cheat.name for cheat in task.cheats],
        "has_solution": task.solution is not None,
        "source": task.source,
    }


def _problems(loaded: LoadedTasks) -> list[dict[str, Any]]:
    return [{"source": p.source, "task_id": p.task_id, "message": p.message} for p in loaded.problems]


def _check(loaded: LoadedTasks, registry: Registry, arguments: argparse.Namespace) -> int:
    import asyncio

    from hermes_core.cli import plural

    checks = asyncio.run(_run_checks(loaded, registry, arguments))
    passed = all(check.passed for check in checks) and not loaded.problems
    if arguments.json:
        found = [check.to_json() for check in checks]
        _print_json({"passed": passed, "tasks": found, "problems": _problems(loaded)})
        return 0 if passed else 1
    _print_table(["task", "solution", "nothing", "best cheat", "result"], [_row(check) for check in checks])
    for check in checks:
        for line in (*check.problems, *check.notes):
            sys.stdout.write(f"{check.task_id}: {line}\n")
    _print_problems(loaded)
    good, every = sum(check.passed for check in checks), plural(len(checks), "task")
    sys.stdout.write(f"\n{good} of {every} passed, {len(loaded.problems)} could not be read\n")
    return 0 if passed else 1


async def _run_checks(loaded: LoadedTasks, registry: Registry, arguments: argparse.Namespace) -> list[TaskCheck]:
    from hermes_core.contracts.sandbox import SandboxSpec
    from hermes_core.rollout import Runtime
    from hermes_core.specs import Ref
    from hermes_runner.run.closing import closing_error, closing_warning
    from hermes_runner.tasks.check import check_tasks
    from hermes_runner.tasks.sandboxes import check_own_sandbox

    fields: dict[str, Any] = {} if arguments.isolation is None else {"isolation": arguments.isolation}
    spec = SandboxSpec(**fields)
    checks: list[TaskCheck] = []
    backend = Ref(kind="backend", name=arguments.backend, options=arguments.backend_options)
    access = arguments.verifier_access
    runtime = Runtime(registry, backend=backend, sandbox=spec, verifier_access=access)
    try:
        await check_own_sandbox(runtime, loaded.tasks)
        found = check_tasks(loaded.tasks, runtime, repeats=arguments.repeats, max_concurrent=arguments.max_concurrent)
        async for check in found:
            checks.append(check)
            if sys.stderr.isatty():
                sys.stderr.write(f"{len(checks)}/{len(loaded.tasks)} {check.task_id}\n")
    finally:
        if (error := await closing_error(runtime.aclose())) is not None:
            sys.stderr.write(f"warning: {closing_warning(f'backend {arguments.backend!r}', error)}\n")
    return checks


def _row(check: TaskCheck) -> list[str]:
    rewards = {trial.name: trial.reward for trial in check.trials}
    cheats = [reward for name, reward in rewards.items() if name.startswith("cheat:")]
    known = [reward for reward in cheats if reward is not None]
    result = "passed" if check.passed else "FAILED"
    best = "error" if len(known) < len(cheats) else _number(max(known, default=None))
    return [check.task_id, _number(rewards.get("solution")), _number(rewards.get("nothing")), best, result]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _has(value: object) -> str:
    return "-" if value is None else "yes"


def _print_problems(loaded: LoadedTasks) -> None:
    for problem in loaded.problems:
        sys.stdout.write(f"problem: {problem}\n")


def _print_table(titles: list[str], rows: list[list[str]]) -> None:
    widths = [max(len(row[column]) for row in [titles, *rows]) for column in range(len(titles))]
    for row in [titles, *rows]:
        sys.stdout.write("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() + "\n")


def _print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2) + "\n")
