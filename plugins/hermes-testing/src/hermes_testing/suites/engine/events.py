"""Tests of events during rollouts: turns, and events for plugins."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

from hermes_core.contracts.events import RolloutFinished, RolloutScored, ToolCalled
from hermes_testing.engine_plugin import WHERE
from hermes_testing.model_server import call, say
from hermes_testing.suites.engine.base import EVENTS, Bench, EngineBase, in_the_background, script

_CALL = call(WHERE)


class Events(EngineBase):
    """Events of rollouts, wherever they run."""

    async def test_every_event_reaches_the_run_s_plugins_once_and_in_order(self, bench: Bench) -> None:
        """For each rollout: started, each call, scored, finished."""
        seen = bench.watch()
        await bench.run(*(script(f"t{number}", _CALL, _CALL, say("answer")) for number in range(3)), group_size=2)
        started, called, scored, finished = EVENTS
        for line in bench.lines():
            hooks = [hook for hook, event in seen if event.rollout_id == line["rollout_id"]]
            assert hooks == [started, called, called, scored, finished]
        assert len(seen) == 5 * len(bench.lines())

    async def test_events_say_what_is_recorded(self, bench: Bench) -> None:
        """The tool, the reward and the outcome."""
        seen = bench.watch()
        await bench.run(script("t", call("no_such_tool"), _CALL, say("answer")))
        (line,) = bench.lines()
        events: list[Any] = [event for _, event in seen]
        assert [(event.name, event.turn) for event in events if isinstance(event, ToolCalled)][-1][0] == WHERE
        assert [event.reward for event in events if isinstance(event, RolloutScored)] == [line["reward"]]
        (end,) = [event for event in events if isinstance(event, RolloutFinished)]
        assert {key: end.outcome[key] for key in ("stop_reason", "turns", "reward_parts", "final_response")} == {
            key: line[key] for key in ("stop_reason", "turns", "reward_parts", "final_response")
        }

    async def test_events_come_while_a_rollout_runs(self, bench: Bench) -> None:
        """Observers see events as they happen, not afterwards."""
        seen = bench.watch()
        async with in_the_background(bench.run(script("t", _CALL, say("answer", hold=True)))) as running:
            await bench.await_held(1)
            assert await bench.eventually(lambda: len(seen) >= 2)
            assert [hook for hook, _ in seen] == list(EVENTS[:2])
            bench.server.release("t")
            await running

    async def test_a_failed_attempt_is_finished_for_plugins_too(self, bench: Bench) -> None:
        """Each attempt has one finished event."""
        seen = bench.watch()
        await bench.run(script("t", say("answer", status=503, times=1)))
        ends = [event.outcome["stop_reason"] for _, event in seen if isinstance(event, RolloutFinished)]
        assert ends == ["model_error", "final_answer"]

    async def test_every_turn_is_told_when_the_model_has_answered(self, bench: Bench) -> None:
        """On the run's thread, with the rollout's id, once; the progress display counts turns."""
        turns: list[tuple[str, int]] = []
        bench.tasks([script("t", _CALL, _CALL, say("answer", hold=True))])
        run = bench.engine_run(on_turn=lambda rollout_id: turns.append((rollout_id, threading.get_ident())))
        (spec,) = bench.specs()
        async with bench.open_engine(run) as engine, in_the_background(engine.run_rollout(spec)) as running:
            await bench.await_held(1)
            assert await bench.eventually(lambda: len(turns) == 2)
            bench.server.release("t")
            await running
            assert await bench.eventually(lambda: len(turns) == 3)
        assert Counter(turns) == {(spec.rollout_id, threading.get_ident()): 3}

    async def test_events_come_on_the_run_s_own_thread(self, bench: Bench) -> None:
        """So plugins need no locks."""
        threads = set()
        bench.registry.forward_events(lambda _hook, _event: threads.add(threading.get_ident()), listened=EVENTS)
        await bench.run(script("t", _CALL, say("answer")))
        assert threads == {threading.get_ident()}
