"""Tests of dying workers: only their rollouts are lost, and recorded as lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from hermes_runner import RunResult
from hermes_testing.engine_plugin import WHERE
from hermes_testing.model_server import call, say
from hermes_testing.suites.base import needs
from hermes_testing.suites.engine.base import Bench, EngineBase, in_the_background, script


@dataclass
class Loss:
    """A run in which a worker was lost with the rollouts `victims`, while `others` ran elsewhere."""

    result: RunResult
    victims: set[str]
    others: set[str]


class Losses(EngineBase):
    """For engines whose workers can be lost; `lose` ends one."""

    @needs("workers")
    async def test_a_lost_worker_costs_only_its_own_rollouts(self, bench: Bench) -> None:
        """The remaining workers run them again; all other rollouts are not affected."""
        async with self.a_loss(bench) as loss:
            lines = {line["rollout_id"]: line for line in bench.lines()}
            assert Counter(line["rollout_id"] for line in bench.lines()) == dict.fromkeys(loss.victims | loss.others, 1)
            assert {lines[rollout]["attempt"] for rollout in loss.others} == {1}
            assert {lines[rollout]["attempt"] for rollout in loss.victims} == {2}
            assert {line["reward"] for line in lines.values()} == {1.0}
            assert loss.result.clean

    @needs("workers")
    async def test_a_lost_attempt_says_that_the_backend_is_to_blame_and_where_it_was(self, bench: Bench) -> None:
        """It is a separate, retryable attempt; never a reward of 0."""
        async with self.a_loss(bench) as loss:
            attempts = bench.lines(name="attempts.jsonl")
            assert {line["rollout_id"] for line in attempts} == loss.victims
            for line in attempts:
                assert (line["attempt"], line["stop_reason"], line["reward"]) == (1, "tool_backend_error", None)
                failure = line["failure"]
                assert (failure["blame"], failure["type"]) == ("backend", "EngineLostError")
                assert failure["retryable"] is True
                assert set(line["provenance"]["engine"]) > {"name"}

    @needs("workers")
    async def test_the_run_says_how_many_workers_it_has_lost(self, bench: Bench) -> None:
        """It names all of them, with their nodes."""
        async with self.a_loss(bench) as loss:
            engine = loss.result.summary["run"]["engine"]
            assert engine["lost_workers"] == 1
            assert len(engine["workers"]) >= 2
            assert all(worker["node"] for worker in engine["workers"])

    @asynccontextmanager
    async def a_loss(self, bench: Bench) -> AsyncIterator[Loss]:
        """Start a run, lose the worker of its first rollout while all workers are busy, and return the result."""
        names = [f"t{number}" for number in range(self.at_once)]
        items: list[dict[str, Any]] = [script(name, call(WHERE), say(f"answer {name}", hold=True)) for name in names]
        options = {**self.options, **self.loss_options}
        async with in_the_background(bench.run(*items, engine_options=options)) as running:
            await bench.await_held(self.at_once)
            places = bench.server.places()
            first = next(iter(places.values()))
            victims = {rollout for rollout, place in places.items() if place == first}
            others = places.keys() - victims
            assert others, "expected two workers, got all rollouts on one; set the suite's options to start two"
            await self.lose(first)
            told = len(victims)
            assert await bench.eventually(lambda: len(bench.lines(name="attempts.jsonl")) >= told or running.done()), (
                "the loss was not noticed while other rollouts ran"
            )
            bench.server.release(*names)
            assert await bench.eventually(running.done), "the run does not continue"
            yield Loss(running.result(), victims, set(others))
