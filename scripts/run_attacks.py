"""Runs the attack tasks on every level of isolation that this machine offers, and counts what they earned.

Prints a line for each level and judge: attacks tried, scored lowest, without a reward, succeeded. The
last two must be 0. What does not work here is named, with the reason: a level, or a task whose programs the image
lacks. Run it by `make attack`, which bounds the processes of the attacks.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from hermes_core.contracts.errors import HermesError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_core.contracts.task import Task
from hermes_core.discovery import PluginSettings, Registry, load_plugins, load_tasks
from hermes_core.rollout import Runtime
from hermes_core.specs import Ref
from hermes_runner import NOTHING, SOLUTION, TaskCheck, check_task

ROOT = Path(__file__).resolve().parent.parent
IMAGE = "hermes-test:2"
LEVELS = {
    "none": ("local", "none"),
    "bwrap": ("local", "bwrap"),
    "container": ("docker", "container"),
    "container+slot": ("docker", "container+slot"),
    "singularity": ("singularity", "container"),
}
"""Backend and isolation of each level that is tested."""
PLUGINS = (
    *("hermes-sandbox", "hermes-tools", "hermes-models", "hermes-tokens", "hermes-runner"),
    *("hermes-verifiers", "hermes-backend-docker", "hermes-backend-singularity"),
)
COLUMNS = ("tried", "lowest", "no reward", "succeeded")


def backend_of(name: str, folder: Path) -> Ref:
    """Return the backend that offers a level; raises `OSError` or a failed command's error where it cannot be had."""
    if name == "local":
        return Ref(kind="backend", name="local", options={"root_dir": str(folder)})
    if subprocess.run(["docker", "image", "inspect", IMAGE], capture_output=True, check=False).returncode:
        build = ROOT / "hermes_backend_docker" / "tests" / "support" / "build_image.sh"
        subprocess.run([build, IMAGE], check=True, capture_output=True)
    if name == "docker":
        return Ref(kind="backend", name="docker", options={"image": IMAGE, "pull": "never"})
    archive = folder / "image.tar"
    subprocess.run(["docker", "save", "--output", archive, IMAGE], check=True, capture_output=True)
    own = {"cache_dir": str(folder / "cache"), "scratch_dir": str(folder)}
    return Ref(kind="backend", name=name, options={"image": f"docker-archive:{archive}", **own})


def _opened(folder: Path) -> Path:
    """Open a folder to the unprivileged user that bubblewrap runs as."""
    folder.chmod(0o755)
    return folder


def count(check: TaskCheck, lowest: float) -> Counter[str]:
    """Count what the attacks of one task earned; a task whose solution fails has succeeded attacks only."""
    counts: Counter[str] = Counter(dict.fromkeys(COLUMNS, 0))
    solved = any(trial.name == SOLUTION and trial.reward == 1.0 for trial in check.trials)
    for trial in check.trials:
        if trial.name not in {NOTHING, SOLUTION}:
            word = "no reward" if trial.reward is None else "lowest" if trial.reward == lowest else "succeeded"
            counts.update({"tried": 1, word if solved else "succeeded": 1})
    return counts


async def missing_programs(runtime: Runtime, spec: SandboxSpec, tasks: list[Task]) -> set[str]:
    """Return the programs that tasks need and the image lacks."""
    needed = {name for task in tasks for name in task.metadata.get("needs", ())}
    async with runtime.open_sandbox(spec) as sandbox:
        found = {name: await sandbox.exec(f"command -v {name}", timeout=60) for name in needed}
    return {name for name, done in found.items() if done.exit_code}


async def run_level(registry: Registry, level: str, tasks: list[Task]) -> bool:
    """Run the tasks on one level and print its lines; tell whether no attack got what it wanted."""
    judges: dict[str, Counter[str]] = {}
    backend, isolation = LEVELS[level]
    with tempfile.TemporaryDirectory(prefix="hermes-attack-") as name:
        folder = _opened(Path(name))
        spec = SandboxSpec(isolation=isolation)  # type: ignore[arg-type]  # one of LEVELS
        try:
            async with Runtime(registry, backend=backend_of(backend, folder), sandbox=spec) as runtime:
                await runtime.backend.check(spec)
                missing = await missing_programs(runtime, spec, tasks)
                for task in tasks:
                    assert task.verifier is not None
                    if lacking := missing & {*task.metadata.get("needs", ())}:
                        print(f"{level}, {task.id}: not run, the sandbox lacks {', '.join(lacking)}", flush=True)
                        continue
                    judge = task.verifier.name
                    check = await check_task(task, runtime)
                    judges[judge] = judges.get(judge, Counter()) + count(check, 0.0)
                    for problem in check.problems:
                        print(f"{level}, {task.id}: {problem}", flush=True)
        except (HermesError, OSError, subprocess.CalledProcessError) as error:
            print(f"{level:<16} not here: {str(error).splitlines()[0]}", flush=True)
            return not judges
    for judge, counts in sorted(judges.items()):
        print(f"{level:<16} {judge:<14}" + "".join(f"{counts[column]:>12}" for column in COLUMNS), flush=True)
    return not any(counts["no reward"] or counts["succeeded"] for counts in judges.values())


def main() -> int:
    """Run what the command line names; everything where it names nothing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--level", action="append", choices=[*LEVELS], help="only this level; may be repeated")
    parser.add_argument("--task", default="", help="only tasks whose id contains this text")
    chosen = parser.parse_args()
    registry = load_plugins(PluginSettings(allow=PLUGINS, strict=True), environ={})
    loaded = load_tasks(ROOT / "examples" / "attack_tasks.jsonl", registry)
    tasks = [task for task in loaded.tasks if chosen.task in task.id]
    print(f"{'level':<16} {'judge':<14}" + "".join(f"{column:>12}" for column in COLUMNS))
    held = [asyncio.run(run_level(registry, level, tasks)) for level in chosen.level or LEVELS]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
