"""Tests of a run's results: every rollout once, each with its outcome, exactly as the local engine gives it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from hermes_core.contracts.engine import RolloutEngine
from hermes_testing.engine_plugin import WHERE
from hermes_testing.model_server import call, say
from hermes_testing.suites.engine.base import Bench, EngineBase, in_the_background, script

SAME = (
    "task_id",
    "index",
    "seed",
    "attempt",
    "reward",
    "reward_status",
    "reward_parts",
    "reward_detail",
    "stop_reason",
    "disposition",
    "turns",
    "final_response",
    "messages",
    "tool_errors",
    "counters",
    "samples",
)
_ODD = "answer \ud800 \x00 ١٢٣ 0.1"
_LONG = 'echo "$CONFORMANCE"; seq 1 4000'


def varied_tasks() -> list[dict[str, Any]]:
    """Return tasks that end in different ways, with texts that a careless transfer to a worker would change."""
    return [
        script("plain", say("answer of plain")),
        script("odd", call("terminal", {"command": r"printf 'a\377b\n'"}), say(_ODD)),
        script("long", call("terminal", {"command": _LONG}), say("answer of long")),
        script("wrong", call("no_such_tool"), call(WHERE, {"x": 1}), say("no idea")),
        script("endless", call("no_such_tool"), limits={"max_agent_turns": 3}),
    ]


def facts(lines: list[dict[str, Any]]) -> dict[tuple[str, int], dict[str, Any]]:
    """Return the recorded values that must not depend on the engine, by task and index in the group."""
    return {(line["task_id"], line["index"]): {key: line.get(key) for key in SAME} for line in lines}


def _round_floats(value: Any) -> Any:
    """Round sums of floats, whose last bits depend on the order of ends."""
    if isinstance(value, Mapping):
        return {key: _round_floats(item) for key, item in value.items()}
    return round(value, 12) if isinstance(value, float) else value


def _has_recorded(bench: Bench, count: int, running: asyncio.Task[Any]) -> bool:
    return len(bench.lines()) >= count or running.done()


def _let_go(bench: Bench, task: str) -> bool:
    return not bench.server.held[task]


class Outcomes(EngineBase):
    """Successful runs."""

    async def test_it_has_the_contract_s_methods(self, bench: Bench) -> None:
        """`capacity`, `provenance`, `open`, `refusals`, `run_rollout`, `aclose`."""
        assert isinstance(self.make(bench.registry), RolloutEngine)

    async def test_every_rollout_is_recorded_once(self, bench: Bench) -> None:
        """Each of each group, and nothing else."""
        await bench.run(*varied_tasks(), group_size=3)
        found = Counter((line["task_id"], line["index"]) for line in bench.lines())
        assert found == {(item["id"], index): 1 for item in varied_tasks() for index in range(3)}
        assert len({line["rollout_id"] for line in bench.lines()}) == len(found)

    async def test_a_rollout_runs_once(self, bench: Bench) -> None:
        """Each turn of each rollout is sampled once, because sampling costs money."""
        await bench.run(*varied_tasks(), group_size=2)
        turns = {"plain": 1, "odd": 2, "long": 2, "wrong": 3, "endless": 3}
        assert bench.server.asked == {(task, turn): 2 for task, most in turns.items() for turn in range(most)}

    async def test_outcomes_are_those_of_the_local_engine(self, bench: Bench) -> None:
        """With the same config they are equal to the last character and bit."""
        values: dict[str, Any] = {"group_size": 2, "seed": 7, "sandbox": {"env": {"CONFORMANCE": "of the run"}}}
        await bench.run(*varied_tasks(), engine="local", out="here", **values)
        await bench.run(out="there", **values)
        assert facts(bench.lines("there")) == facts(bench.lines("here"))

    async def test_a_run_adds_up_to_what_it_does_on_the_local_engine(self, bench: Bench) -> None:
        """Tokens, counters, rewards, passes, turns and tool errors of the summary."""
        here = await bench.run(*varied_tasks(), engine="local", out="here", group_size=2)
        there = await bench.run(out="there", group_size=2)
        for part in ("rollouts", "reward", "pass", "tokens", "counters", "turns", "tool_errors", "exactness"):
            # Only the number of rollouts per engine differs.
            found, expected = ({**(result.summary[part] or {}), "engine": None} for result in (there, here))
            assert _round_floats(found) == _round_floats(expected), part

    async def test_seeds_and_ids_are_those_of_the_run(self, bench: Bench) -> None:
        """They do not depend on where a rollout runs, so another engine can continue the run."""
        await bench.run(*varied_tasks(), engine="local")
        before = {line["rollout_id"]: line["seed"] for line in bench.lines()}
        kept = (bench.folder / "out" / "rollouts.jsonl").read_bytes().splitlines(keepends=True)[:1]
        (bench.folder / "out" / "rollouts.jsonl").write_bytes(b"".join(kept))
        await bench.run()
        assert {line["rollout_id"]: line["seed"] for line in bench.lines()} == before

    async def test_rollouts_that_end_in_another_order_keep_their_own_outcomes(self, bench: Bench) -> None:
        """The last one to start may be the first one to end."""
        names = ["t0", "t1", "t2"]
        items = [script(name, say(f"answer of {name}", hold=True)) for name in names]
        async with in_the_background(bench.run(*items)) as running:
            await bench.await_held(len(names))
            for done, name in enumerate(reversed(names), start=1):
                bench.server.release(name)
                assert await bench.eventually(partial(_has_recorded, bench, done, running))
            await running
        assert bench.recorded_tasks() == list(reversed(names))
        assert {line["task_id"]: line["final_response"] for line in bench.lines()} == {
            name: f"answer of {name}" for name in names
        }

    async def test_as_many_run_at_a_time_as_were_asked_for(self, bench: Bench) -> None:
        """Not fewer if the engine has capacity, and not more than the run allows."""
        items = [script(f"t{number}", say("answer", hold=True)) for number in range(self.at_once + 3)]
        async with in_the_background(bench.run(*items)) as running:
            await bench.await_held(self.at_once)
            bench.server.release(*(item["id"] for item in items))
            await running
        assert bench.server.most == self.at_once

    async def test_a_smaller_run_starts_no_more_than_it_allows(self, bench: Bench) -> None:
        """`max_concurrent` holds for any number of workers."""
        items = [script(f"t{number}", say("answer", hold=True)) for number in range(4)]
        async with in_the_background(bench.run(*items, max_concurrent=1)) as running:
            for item in items:
                await bench.await_held(1)
                bench.server.release(item["id"])
                await bench.server.until(partial(_let_go, bench, item["id"]), seconds=self.patience)
            await running
        assert bench.server.most == 1

    async def test_capacity_is_known_when_it_is_open(self, bench: Bench) -> None:
        """A number of rollouts, or None for any number."""
        async with bench.open_engine() as engine:
            capacity = engine.capacity
        assert capacity is None or (type(capacity) is int and capacity >= 1)

    async def test_an_attempt_that_is_repeated_runs_anew(self, bench: Bench) -> None:
        """The run's policy decides, and both attempts are recorded under one id."""
        await bench.run(script("t", say("answer", status=503, times=1)))
        ((first,), (last,)) = bench.lines(name="attempts.jsonl"), bench.lines()
        assert (first["attempt"], first["stop_reason"]) == (1, "model_error")
        assert (last["attempt"], last["stop_reason"], last["reward"]) == (2, "final_answer", 1.0)
        assert first["rollout_id"] == last["rollout_id"]

    async def test_the_record_names_the_engine(self, bench: Bench) -> None:
        """For every rollout and for the run; the engine's provenance is plain data."""
        result = await bench.run(*varied_tasks())
        assert {line["provenance"]["engine"]["name"] for line in bench.lines()} == {self.component}
        engine = result.summary["run"]["engine"]
        assert engine["name"] == self.component
        assert not engine.get("unconfirmed")
        assert not engine.get("lost_workers")
        for worker in engine.get("workers", ()):
            assert worker["node"]

    async def test_two_engines_run_side_by_side(self, bench: Bench) -> None:
        """In one process, each for its own run; an engine has no process-global state."""
        bench.tasks(script(name, say("answer", hold=True)) for name in ("a", "b"))
        one, two = bench.specs()
        async with bench.open_engine(bench.engine_run(api_key="key-of-one")) as first, AsyncExitStack() as stack:
            async with bench.open_engine(bench.engine_run(api_key="key-of-two")) as second:
                here = await stack.enter_async_context(in_the_background(first.run_rollout(one)))
                async with in_the_background(second.run_rollout(two)) as there:
                    await bench.await_held(2)
                    bench.server.release("b")
                    assert (await asyncio.wait_for(asyncio.shield(there), self.patience)).reward == 1.0
            bench.server.release("a")
            assert (await asyncio.wait_for(asyncio.shield(here), self.patience)).reward == 1.0
        assert bench.server.keys == {"a": {"key-of-one"}, "b": {"key-of-two"}}
