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

from hermes_core.contracts.task import Task
from hermes_core.discovery import PluginSettings, Registry, load_plugins
from hermes_core.rollout import GroupPlan, RolloutLimits, RolloutSpec, Runtime, run_rollout
from hermes_core.tooling import select_tools
from hermes_models import create_model
from hermes_runner import OutputFolder, Policy, Recorder, Scheduler

PROMPT = "Call the tool until you are told to stop, then say that you are done."


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


def specs(registry: Registry, rollouts: int, turns: int) -> list[RolloutSpec]:
    """Build the rollouts to run."""
    task = Task(id="noop", messages=({"role": "user", "content": PROMPT},))
    group = GroupPlan(group_id="g", task=task, tools=select_tools(registry, enabled_toolsets=["noop"]))
    limits = RolloutLimits(max_agent_turns=turns + 1)
    return [RolloutSpec(rollout_id=f"ro_{i}", group=group, index=i, limits=limits) for i in range(rollouts)]


async def run_rollouts(url: str, *, rollouts: int, turns: int, concurrency: int) -> dict[str, Any]:
    """Run them and measure CPU seconds of this process, wall time and peak memory."""
    registry = load_plugins(
        PluginSettings(
            allow=(
                "hermes-sandbox",
                "hermes-tools",
                "hermes-models",
                "hermes-tokens",
                "hermes-runner",
            ),
            extra=("noop_plugin",),
        )
    )
    model = create_model(url, model_name="mock")
    with tempfile.TemporaryDirectory() as out:
        folder = OutputFolder.open(Path(out), {}, facts={})
        recorder = Recorder(folder, {})
        async with Runtime(registry) as runtime:
            scheduler = Scheduler(
                partial(run_rollout, runtime=runtime, model=model), recorder, Policy({}, max_attempts=1), Silent()
            )
            # Opens the connections, as the plain loop does before it measures.
            await scheduler.run(iter(specs(registry, min(rollouts, concurrency), turns)), max_concurrent=concurrency)
            before, started = cpu_seconds(), time.perf_counter()
            base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            plan = specs(registry, rollouts, turns)
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
    """Return user and system seconds of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Measure once and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--rollouts", type=int, default=200)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--concurrency", type=int, default=64)
    arguments = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    result = asyncio.run(
        run_rollouts(
            arguments.url, rollouts=arguments.rollouts, turns=arguments.turns, concurrency=arguments.concurrency
        )
    )
    print(json.dumps(result))


if __name__ == "__main__":
    main()
