"""Our side of the comparison: the real scheduler, engine, client and recorder on the same requests.

Prints one JSON object; run by `framework_cost` in a separate process, so that CPU time and memory are this side's
alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sys
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from hermes_core.contracts.sandbox import IsolationLevel, SandboxSpec
from hermes_core.contracts.task import Task
from hermes_core.discovery import PluginSettings, Registry, load_plugins
from hermes_core.rollout import GroupPlan, RolloutLimits, RolloutSpec, Runtime, run_rollout
from hermes_core.specs import Ref
from hermes_core.tooling import select_tools
from hermes_models import create_model
from hermes_runner import OutputFolder, Policy, Recorder, Scheduler

PROMPT = "Call the tool until you are told to stop, then say that you are done."


TEST = "import unittest\nclass Test(unittest.TestCase):\n    def test(self): self.assertEqual(1, 1)\n"
JUDGES: Mapping[str, Ref] = {
    "command": Ref(kind="verifier", name="exit_code", options={"command": "true"}),
    "tests": Ref(kind="verifier", name="pytest", options={"runner": "unittest", "files": {"test_it.py": TEST}}),
}
"""Verifiers that judge nothing, so that only the framework is measured."""


class Silent:
    """An observer that shows nothing."""

    def note_start(self, rollout_id: str) -> None:
        """Ignore."""

    def turn(self, rollout_id: str) -> None:
        """Ignore."""

    def note_retry(self, rollout_id: str) -> None:
        """Ignore."""

    def note_outcome(self, outcome: Mapping[str, Any]) -> None:
        """Ignore."""


def specs(
    registry: Registry, rollouts: int, turns: int, toolset: str = "noop", judge: str | None = None
) -> list[RolloutSpec]:
    """Build the rollouts to run."""
    verifier = None if judge is None else JUDGES[judge]
    task = Task(id=toolset, messages=({"role": "user", "content": PROMPT},), verifier=verifier)
    group = GroupPlan(group_id="g", task=task, tools=select_tools(registry, enabled_toolsets=[toolset]))
    limits = RolloutLimits(max_agent_turns=turns + 1)
    return [RolloutSpec(rollout_id=f"ro_{i}", group=group, index=i, limits=limits) for i in range(rollouts)]


async def run_rollouts(
    url: str,
    *,
    rollouts: int,
    turns: int,
    concurrency: int,
    level: IsolationLevel | None = None,
    judge: str | None = None,
) -> dict[str, Any]:
    """Run them and measure CPU seconds with those of all processes, wall time and peak memory of this process.

    With a `level`, each has a sandbox of that isolation, and the tool is the terminal.
    """
    toolset = "noop" if level is None else "terminal"
    registry = load_plugins(
        PluginSettings(
            allow=(
                "hermes-sandbox",
                "hermes-tools",
                "hermes-models",
                "hermes-tokens",
                "hermes-runner",
                "hermes-verifiers",
            ),
            extra=("noop_plugin",),
        )
    )
    model = create_model(url, model_name="mock")
    with tempfile.TemporaryDirectory() as out:
        folder = OutputFolder.open(Path(out), {}, facts={})
        recorder = Recorder(folder, {})
        async with Runtime(registry, sandbox=SandboxSpec(isolation=level)) as runtime:
            scheduler = Scheduler(
                partial(run_rollout, runtime=runtime, model=model), recorder, Policy({}, max_attempts=1), Silent()
            )
            # Opens the connections, as the plain loop does before it measures.
            first = specs(registry, min(rollouts, concurrency), turns, toolset, judge)
            await scheduler.run(iter(first), max_concurrent=concurrency)
            before, started = cpu_seconds(), time.perf_counter()
            base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            plan = specs(registry, rollouts, turns, toolset, judge)
            await scheduler.run(iter(plan), max_concurrent=concurrency)
            wall, cpu = time.perf_counter() - started, cpu_seconds() - before
        await model.aclose()
        await recorder.close()
        lines = [json.loads(line) for line in folder.rollouts.lines()]
        folder.close()
    turns_run = sum(line["turns"] for line in lines[-rollouts:])
    failed = sum(line["stop_reason"] != "final_answer" for line in lines)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "turns": turns_run,
        "failed": failed,
        "wall_s": wall,
        "cpu_per_turn_ms": cpu / turns_run * 1000,
        "base_rss_mb": base / 1024,
        "peak_rss_mb": peak / 1024,
    }


def cpu_seconds() -> float:
    """Return user and system seconds of this process, and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def main() -> None:
    """Measure once and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--rollouts", type=int, default=200)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--level", choices=["none", "bwrap"], help="run the terminal in a sandbox of this isolation")
    parser.add_argument("--judge", choices=[*JUDGES], help="judge each rollout by a verifier that does nothing")
    arguments = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    result = asyncio.run(
        run_rollouts(
            arguments.url,
            rollouts=arguments.rollouts,
            turns=arguments.turns,
            concurrency=arguments.concurrency,
            level=arguments.level,
            judge=arguments.judge,
        )
    )
    print(json.dumps(result))


if __name__ == "__main__":
    main()
