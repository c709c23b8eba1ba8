"""Whole runs on a real cluster of three nodes have the outcomes of one machine, even if nodes or workers die."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from ray_runs import EVENTS, EXAMPLES, PATIENCE, Runs, Seen, registry

from hermes_sandbox import LeaseBook, SandboxReclaimer
from hermes_sandbox.backends import Lease

SAME = ("task_id", "index", "seed", "reward", "reward_status", "reward_parts", "stop_reason", "turns", "counters")


@pytest.fixture
def runs(ray_cluster, tmp_path):
    return Runs(tmp_path, ray_cluster.address)


@pytest.fixture
def own_nodes(ray_cluster):
    """Add nodes for this test's workers alone; those that are left are removed afterwards."""
    added: list[str] = []

    def add(count: int, resource: str) -> list[str]:
        nodes = [ray_cluster.add_node(num_cpus=1, resources={resource: 100}) for _ in range(count)]
        added.extend(nodes)
        return nodes

    yield add
    for node in set(added) & set(ray_cluster.nodes()):
        ray_cluster.kill_node(node)


async def test_the_shipped_tasks_end_as_they_do_on_one_machine(runs):
    values = {"group_size": 2, "max_tasks": 6, "mistake_rate": 0.9, "seed": 7}
    here = await runs.run(EXAMPLES, engine="local", out="here", **values)
    # Rollout ids contain the run's id, so the second run continues the first, as if that had ended after one rollout.
    (runs.folder / "there").mkdir()
    shutil.copy(here.folder / "run.json", runs.folder / "there")
    first, _, _ = (here.folder / "rollouts.jsonl").read_bytes().partition(b"\n")
    (runs.folder / "there" / "rollouts.jsonl").write_bytes(first + b"\n")
    there = await runs.run(EXAMPLES, out="there", options={"workers": None}, **values)
    expected, found = ({line["rollout_id"]: line for line in runs.lines(out)} for out in ("here", "there"))
    runs.each_once(12, "there")
    assert {id_: [line[key] for key in SAME] for id_, line in found.items()} == {
        id_: [line[key] for key in SAME] for id_, line in expected.items()
    }
    assert len({line["reward"] for line in found.values()}) > 1
    engine = there.summary["run"]["engine"]
    assert (engine["name"], engine["lost_workers"], engine["unconfirmed"]) == ("ray", 0, 0)
    assert sum(worker["rollouts"] for worker in engine["workers"]) == 11
    assert len({worker["node"] for worker in engine["workers"]}) == len(engine["workers"]) >= 3
    places = [line["provenance"]["engine"] for line in runs.lines("there")[1:]]
    assert {place["node"] for place in places} <= {worker["node"] for worker in engine["workers"]}


async def test_a_node_that_dies_costs_only_the_rollouts_in_flight_there(runs, ray_cluster, own_nodes):
    staying, dying = own_nodes(2, "pair")
    known = registry()
    seen = Seen(known)
    options = {"workers": None, "resources": {"pair": 1}, "max_concurrent": 3}
    running = asyncio.create_task(runs.run(runs.gated(9), known=known, options=options, max_concurrent=6))
    await seen.until(lambda: len(seen.started()) == 6)
    await asyncio.to_thread(ray_cluster.kill_node, dying)
    # Rollouts of a dead node continue for a moment.
    await holds(lambda: len(runs.lines(name="attempts.jsonl")) == 3 or running.done())
    runs.gate.touch()
    result = await running
    runs.each_once(9)
    lines, attempts = runs.lines(), runs.lines(name="attempts.jsonl")
    assert {line["reward"] for line in lines} == {1.0}
    assert {line["provenance"]["engine"]["node"] for line in lines} == {staying}
    assert [(line["stop_reason"], line["failure"]["blame"], line["failure"]["type"]) for line in attempts] == 3 * [
        ("tool_backend_error", "backend", "EngineLostError")
    ]
    assert {line["provenance"]["engine"]["node"] for line in attempts} == {dying}
    assert sorted(line["attempt"] for line in lines) == [1] * 6 + [2] * 3
    engine = result.summary["run"]["engine"]
    assert engine["lost_workers"] == 1
    assert any("was lost" in note for note in engine["notes"])
    assert result.clean


@pytest.mark.slow
async def test_a_worker_that_dies_is_replaced_and_its_rollouts_run_again(runs, tmp_path):
    state = tmp_path / "state"
    options = {"workers": 1, "max_concurrent": 2, "runtime_env": {"env_vars": {"XDG_STATE_HOME": str(state)}}}
    running = asyncio.create_task(runs.run(runs.gated(4), options=options, max_concurrent=4))
    # A rollout starts before it has a sandbox.
    await holds(lambda: len(leases(state)) == 2 or running.done())
    (worker,) = {lease.owner_pid for lease in leases(state)}
    os.kill(worker, signal.SIGKILL)
    runs.gate.touch()
    result = await running
    runs.each_once(4)
    engine = result.summary["run"]["engine"]
    assert [worker["lost"] is not None for worker in engine["workers"]] == [True, False]
    assert [line["stop_reason"] for line in runs.lines(name="attempts.jsonl")] == 2 * ["tool_backend_error"]
    assert leases(state) == []  # what the first one left was removed by the second


async def test_every_event_reaches_the_plugins_of_the_driver_once_and_in_order(runs):
    known = registry()
    seen = Seen(known)
    runs.gate.touch()
    await runs.run(runs.gated(2), known=known, options={"workers": 1})
    for rollout in set(seen.started()):
        hooks = [hook for hook, event in seen.events if event.rollout_id == rollout]
        assert hooks == [hook.removeprefix("hermes_") for hook in EVENTS]
    assert sorted(seen.finished()) == sorted((line["rollout_id"], "final_answer") for line in runs.lines())


async def test_a_cancelled_run_closes_every_sandbox_and_continues_with_the_same_command(runs, tmp_path):
    known = registry()
    seen = Seen(known)
    state = tmp_path / "state"
    tasks = runs.gated(6)
    options = {"workers": 1, "runtime_env": {"env_vars": {"XDG_STATE_HOME": str(state)}}}
    values = {"options": options, "max_concurrent": 4}
    running = asyncio.create_task(runs.run(tasks, known=known, **values))
    await seen.until(lambda: len(seen.started()) == 4 or running.done())
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert leases(state) == []
    assert [reason for _, reason in seen.finished()] == 4 * ["cancelled"]
    assert runs.lines() == []
    runs.gate.touch()
    await runs.run(tasks, **values)
    runs.each_once(6)


@pytest.mark.slow
async def test_if_the_driver_is_killed_its_workers_end_and_gc_finds_their_sandboxes(runs, tmp_path):
    state = tmp_path / "state"
    options = {"workers": 2, "runtime_env": {"env_vars": {"XDG_STATE_HOME": str(state)}}}
    config = runs.config(runs.gated(4), options=options, max_concurrent=4)
    (tmp_path / "run.json").write_text(json.dumps(config.model_dump(mode="json")))
    command = [sys.executable, "-m", "hermes_core.cli", "run", "--config", str(tmp_path / "run.json")]
    driver = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        await holds(lambda: len(leases(state)) == 4)
    finally:
        driver.kill()
        driver.wait()
    await holds(lambda: all(lease.owner() == "dead" for lease in leases(state)))
    done = await SandboxReclaimer(LeaseBook(state / "hermes-core" / "sandboxes"), registry()).collect(backends=())
    assert (len(done.failed), leases(state)) == (0, [])
    assert runs.lines() == []
    runs.gate.touch()
    await runs.run(Path(config.tasks), options={"workers": 1})
    runs.each_once(4)


def leases(state: Path) -> list[Lease]:
    return list(LeaseBook(state / "hermes-core" / "sandboxes").read()[0])


async def holds(condition: Callable[[], bool]) -> None:
    """Wait for a condition that other processes fulfil."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code", "words"), [(signal.SIGTERM, 143, "terminated"), (signal.SIGINT, 130, "")])
async def test_a_signal_ends_the_command_once_every_sandbox_is_closed(runs, tmp_path, number, code, words):
    state = tmp_path / "state"
    options = {"workers": 1, "runtime_env": {"env_vars": {"XDG_STATE_HOME": str(state)}}}
    config = runs.config(runs.gated(2), options=options)
    (tmp_path / "run.json").write_text(json.dumps(config.model_dump(mode="json")))
    # A process that a shell starts in the background ignores SIGINT, and so do its children.
    begin = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)"
    program = f"{begin}; from hermes_core.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "run", "--config", str(tmp_path / "run.json")]
    driver = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        await holds(lambda: len(leases(state)) == 2)
        driver.send_signal(number)
        _, said = await asyncio.to_thread(driver.communicate, timeout=PATIENCE)
    finally:
        driver.kill()
        driver.wait()
    assert (driver.returncode, leases(state)) == (code, []), said
    assert words in said
    assert "0 of 2 rollouts recorded, 2 in flight ended, no sandbox left" in said
