"""Measure rollouts per second on one to four identical hosts, with a model of fixed latency.

A host is a node of a Slurm on this machine, with one agent and a budget of slots. A rollout waits for the model and,
when all slots are taken, for a slot. So twice the hosts should do twice the rollouts, unless the machine, which runs
all the hosts, the model and the caller, is the bottleneck.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.clusters.slurm_calls import slurm_cluster
from benchmarks.rollouts import mock_server
from benchmarks.rollouts.our_loop import Silent
from hermes_core.contracts.task import Task
from hermes_core.discovery import Registry, load_plugins
from hermes_core.rollout import GroupPlan, RolloutLimits, RolloutSpec, Runtime, run_rollout
from hermes_core.specs import Ref
from hermes_core.tooling import select_tools
from hermes_models import create_model
from hermes_runner import OutputFolder, Policy, Recorder, Scheduler

HOSTS: Final = (1, 2, 3, 4)
SLOTS: Final = 4
TURNS: Final = 4
LATENCY_MS: Final = 800
PER_SLOT: Final = 4
"""Consecutive rollouts per slot."""


def _specs(registry: Registry, rollouts: int) -> list[RolloutSpec]:
    task = Task(id="true", messages=({"role": "user", "content": "Call the tool until you are told to stop."},))
    group = GroupPlan(group_id="g", task=task, tools=select_tools(registry, enabled_toolsets=["terminal"]))
    limits = RolloutLimits(max_agent_turns=TURNS + 1)
    return [RolloutSpec(rollout_id=f"ro_{i}", group=group, index=i, limits=limits) for i in range(rollouts)]


async def _rate(url: str, options: Mapping[str, Any], slots: int) -> float:
    registry = load_plugins()
    model = create_model(url, model_name="mock")
    with tempfile.TemporaryDirectory() as out:
        folder = OutputFolder.open(Path(out), {}, facts={})
        recorder = Recorder(folder, {})
        backend = Ref(kind="backend", name="slurm", options=dict(options))
        async with Runtime(registry, backend=backend, max_sandbox_starts=slots) as runtime:
            scheduler = Scheduler(
                partial(run_rollout, runtime=runtime, model=model), recorder, Policy({}, max_attempts=1), Silent()
            )
            # Starts the agents, so that the start of the run is not measured.
            await scheduler.run(iter(_specs(registry, slots)), max_concurrent=slots)
            rollouts = slots * PER_SLOT
            began = time.perf_counter()
            await scheduler.run(iter(_specs(registry, rollouts)), max_concurrent=slots)
            wall = time.perf_counter() - began
        await model.aclose()
        await recorder.close()
        lines = [json.loads(line) for line in folder.rollouts.lines()]
        folder.close()
    unfinished = [line["stop_reason"] for line in lines if line["stop_reason"] != "final_answer"]
    if unfinished or len(lines) != slots + rollouts:
        raise AssertionError(f"expected {slots + rollouts} finished rollouts, got {len(lines)} and {unfinished}")
    return rollouts / wall


async def measure() -> dict[str, Any]:
    """Return rollouts per second for each number of hosts, and the gain of an added host relative to the first."""
    rates: dict[int, float] = {}
    arguments = json.dumps({"command": "true"})
    with (
        slurm_cluster(max(HOSTS)) as cluster,
        mock_server.running(turns=TURNS, latency_ms=LATENCY_MS, tool="terminal", arguments=arguments) as url,
    ):
        for hosts in HOSTS:
            with cluster.allocation(hosts) as job:
                options = {"conf": str(cluster.conf), "job_id": job, "slots_per_agent": SLOTS}
                rates[hosts] = await _rate(url, options, hosts * SLOTS)
    added = [(rates[hosts] - rates[hosts - 1]) / rates[1] for hosts in HOSTS[1:]]
    return {
        "slots_per_host": SLOTS,
        "model_calls": TURNS + 1,
        "latency_ms": LATENCY_MS,
        "rollouts_per_second": {str(hosts): round(rate, 2) for hosts, rate in rates.items()},
        "per_added_host": [round(share, 2) for share in added],
        "per_added_host_mean": round((rates[HOSTS[-1]] / rates[1] - 1) / (len(HOSTS) - 1), 2),
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure()), indent=2))
