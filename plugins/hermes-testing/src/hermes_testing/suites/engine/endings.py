"""Tests of early ends: a cancelled run, a cancelled rollout, a killed caller; and of continuing afterwards."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from typing import Any, Self

import pytest

from hermes_testing.engine_plugin import MODULE
from hermes_testing.model_server import call, say
from hermes_testing.suites.base import needs
from hermes_testing.suites.engine.base import Bench, EngineBase, in_the_background, script
from hermes_testing.watching import processes_here, sleep_token

_NAMES = ("t0", "t1", "t2")
_CALLER = """
import asyncio, io, json, sys
from hermes_runner.config import RunConfig
from hermes_runner.run.run import Run
from hermes_testing import isolated_registry

config, modules = json.loads(sys.argv[1]), json.loads(sys.argv[2])
run = Run(RunConfig.parse(config, source="the suite"), isolated_registry(*modules), stream=io.StringIO())
asyncio.run(run.execute())
"""


def sleeping(name: str, token: str) -> dict[str, Any]:
    """Write a task whose rollout runs a command that does not end."""
    return script(name, call("terminal", {"command": f"sleep {token}"}), say(f"answer of {name}"))


class Endings(EngineBase):
    """No process is left, and no record is lost."""

    @needs("visible_processes")
    async def test_a_cancelled_run_has_ended_every_rollout_where_it_ran(self, bench: Bench) -> None:
        """All have ended when the run returns, not later."""
        token = sleep_token()
        items = [sleeping(name, token) for name in _NAMES]
        async with in_the_background(bench.run(*items)) as running:
            assert await bench.eventually(lambda: len(processes_here(token)) >= len(items))
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(asyncio.shield(running), self.patience)
            assert processes_here(token) == []
        assert bench.lines() == []

    @needs("visible_processes")
    async def test_a_cancelled_rollout_ends_alone(self, bench: Bench) -> None:
        """`run_rollout` returns once it has ended on its worker; other rollouts continue."""
        token = sleep_token()
        bench.tasks([sleeping("sleeps", token), script("waits", say("answer", hold=True))])
        first, second = bench.specs()
        async with (
            bench.open_engine() as engine,
            in_the_background(engine.run_rollout(second)) as other,
            in_the_background(engine.run_rollout(first)) as struck,
        ):
            await bench.await_held(1)
            assert await bench.eventually(lambda: processes_here(token) != [])
            struck.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(asyncio.shield(struck), self.patience)
            assert processes_here(token) == []
            assert not other.done()
            bench.server.release("waits")
            outcome = await asyncio.wait_for(asyncio.shield(other), self.patience)
            assert (outcome.rollout_id, outcome.reward) == (second.rollout_id, 1.0)

    async def test_a_cancelled_rollout_gives_its_place_back(self, bench: Bench) -> None:
        """The same number of rollouts can run after it."""
        names = [f"t{number}" for number in range(self.at_once)]
        bench.tasks([script(name, say("answer", hold=True)) for name in names])
        specs = bench.specs()
        async with bench.open_engine() as engine:
            for _ in range(2):
                tasks = [asyncio.ensure_future(engine.run_rollout(spec)) for spec in specs]
                await bench.await_held(self.at_once)
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks, timeout=self.patience)
                assert [task.cancelled() for task in tasks] == [True] * self.at_once
                await bench.server.until(lambda: not bench.server.held.total(), seconds=self.patience)

    async def test_a_run_that_was_cancelled_is_continued(self, bench: Bench) -> None:
        """Recorded rollouts are not repeated, the others are run."""
        items = [script(name, say(f"answer {name}", hold=True)) for name in _NAMES]
        async with in_the_background(bench.run(*items)) as running:
            await bench.await_held(len(_NAMES))
            bench.server.release("t0")
            assert await bench.eventually(lambda: bench.recorded_tasks() == ["t0"] or running.done())
        assert bench.recorded_tasks() == ["t0"]
        bench.server.release(*_NAMES)
        await bench.run()
        assert Counter(bench.recorded_tasks()) == dict.fromkeys(_NAMES, 1)
        assert bench.server.asked == {("t0", 0): 1, **{(name, 0): 2 for name in _NAMES[1:]}}

    async def test_a_run_whose_caller_was_killed_is_continued(self, bench: Bench) -> None:
        """With the same config and folder; each rollout is recorded once."""
        bench.tasks([script(name, say(f"answer {name}", hold=True)) for name in _NAMES])
        async with self.a_caller(bench) as caller:
            await bench.await_held(len(_NAMES))
            bench.server.release("t0")
            assert await bench.eventually(lambda: bench.recorded_tasks() == ["t0"])
            caller.kill()
        bench.server.release(*_NAMES)
        await bench.run()
        assert Counter(bench.recorded_tasks()) == dict.fromkeys(_NAMES, 1)
        assert bench.server.asked["t0", 0] == 1

    @needs("visible_processes")
    async def test_the_rollouts_of_a_killed_caller_end(self, bench: Bench) -> None:
        """Nobody would read its result."""
        token = sleep_token()
        bench.tasks([sleeping(f"t{number}", token) for number in range(2)])
        async with self.a_caller(bench) as caller:
            assert await bench.eventually(lambda: len(processes_here(token)) >= 2)
            caller.kill()
            assert await bench.eventually(lambda: processes_here(token) == [])

    @needs("visible_processes")
    async def test_closing_ends_rollouts_that_still_run(self, bench: Bench) -> None:
        """A closed engine has nothing running anywhere."""
        token = sleep_token()
        bench.tasks([sleeping("t", token)])
        (spec,) = bench.specs()
        async with bench.open_engine() as engine:
            running = asyncio.ensure_future(engine.run_rollout(spec))
            assert await bench.eventually(lambda: processes_here(token) != [])
        assert await bench.eventually(lambda: processes_here(token) == [])
        running.cancel()
        await asyncio.wait({running}, timeout=self.patience)

    def a_caller(self, bench: Bench) -> _Caller:
        """Provide a separate process that runs the tasks in the folder."""
        config = json.dumps(bench.config().model_dump(mode="json"))
        return _Caller([sys.executable, "-c", _CALLER, config, json.dumps([self.plugin, MODULE])])


class _Caller:
    """A process that is killed at the end of the test at the latest."""

    def __init__(self, command: list[str]) -> None:
        path = os.pathsep.join(item for item in sys.path if item)
        self._process = subprocess.Popen(
            command, env={**os.environ, "PYTHONPATH": path}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )

    async def __aenter__(self) -> Self:
        return self

    def kill(self) -> None:
        """Kill it without notice."""
        self._process.kill()

    async def __aexit__(self, *error: object) -> None:
        self.kill()
        await asyncio.to_thread(self._process.wait)
