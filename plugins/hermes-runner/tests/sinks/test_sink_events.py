"""The sink `events`: a timeline of each rollout, which the event loop never waits for."""

from __future__ import annotations

import asyncio
import io
import json

import pytest

from hermes_core.contracts.events import (
    ProcessUpdated,
    RolloutFinished,
    RolloutScored,
    RolloutStarted,
    ToolCalled,
)
from hermes_core.specs import EngineSpec, SinkSpec
from hermes_runner.config import RunConfig
from hermes_runner.run.local_engine import LocalEngine
from hermes_runner.run.run import Run
from hermes_runner.sinks.events import EventsOptions, EventsSink

EVENTS = ["started", "tool", "scored", "finished"]


@pytest.fixture
def config(tmp_path):
    task = {"id": "a", "prompt": "Write a.", "verifier": {"name": "half"}, "solution": ["echo a > answer.txt"]}
    (tmp_path / "tasks.jsonl").write_text(json.dumps(task) + "\n")

    def parse(**values):
        given = {"tasks": str(tmp_path / "tasks.jsonl"), "out": str(tmp_path / "out"), "enabled_toolsets": ["terminal"]}
        return RunConfig.parse({**given, "sinks": ["events"], "mistake_rate": 0, **values}, source="the test")

    return parse


def lines(folder):
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


@pytest.fixture
def sink(registry, tmp_path):
    """A sink that observes a registry; gives the sink and the registry's `fire`."""

    def open_sink(**options):
        sink = EventsSink(EventsOptions(**options))
        sink.open(str(tmp_path))
        return sink, registry.with_observer("sink:events", sink).fire

    return open_sink


def tool(name="terminal", **fields):
    values = {"rollout_id": "r", "turn": 1, "name": name, "seconds": 0.25, "error": None, **fields}
    return ToolCalled(**values)


def rollout_end(**outcome):
    return RolloutFinished(rollout_id="r", outcome={"attempt": 1, "stop_reason": "final_answer", **outcome})


async def test_a_run_has_a_timeline_of_each_rollout_with_one_time_of_day(registry, config, tmp_path):
    await Run(config(group_size=3), registry, stream=io.StringIO()).execute()
    begin, *events = lines(tmp_path / "out")
    assert (begin["at"], begin["event"], begin["time"][-1]) == (0.0, "run", "Z")
    assert [event["event"] for event in events] == EVENTS * 3
    assert len({event["rollout_id"] for event in events[:4]}) == 1
    assert all(events[i]["at"] <= events[i + 1]["at"] for i in range(11) if (i + 1) % 4)
    started, called, scored, ended = events[:4]
    assert started["task_id"] == "a"
    assert (called["turn"], called["name"], called["error"]) == (1, "terminal", None)
    assert (scored["status"], scored["reward"]) == ("ok", 0.5)
    assert (ended["attempt"], ended["stop_reason"], ended["reward"]) == (1, "final_answer", 0.5)


async def test_a_resumed_run_restarts_its_clock_and_appends_its_events(registry, config, tmp_path):
    await Run(config(), registry, stream=io.StringIO()).execute()
    await Run(config(group_size=2), registry, stream=io.StringIO()).execute()
    assert [line["event"] for line in lines(tmp_path / "out")] == ["run", *EVENTS] * 2


async def test_rollouts_in_flight_of_an_interrupted_run_are_in_it_as_cancelled(registry, config, tmp_path):
    begun, loop = asyncio.Event(), asyncio.get_running_loop()

    class Signal:
        def open(self, folder):
            del folder

        def write(self, outcome):
            del outcome
            loop.call_soon_threadsafe(begun.set)

        def close(self):
            pass

    registry = registry.with_component(SinkSpec(name="signal", summary="Signals.", target="test:Signal"), Signal())
    settings = config(sinks=["events", "signal"], group_size=500, max_concurrent=2)
    running = asyncio.ensure_future(Run(settings, registry, stream=io.StringIO()).execute())
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    ends = [line["stop_reason"] for line in lines(tmp_path / "out") if line["event"] == "finished"]
    recorded = len((tmp_path / "out" / "rollouts.jsonl").read_bytes().splitlines())
    assert ends.count("final_answer") >= recorded > 0
    assert "cancelled" in ends


async def test_an_engine_elsewhere_is_told_which_events_to_send_and_nothing_of_the_sinks(registry, config):
    opened = []

    class Elsewhere(LocalEngine):
        async def open(self, run):
            opened.append(run)
            await super().open(run)

    registry = registry.with_component(EngineSpec(name="elsewhere", summary="-", target="test:Elsewhere"), Elsewhere)
    await Run(config(engine="elsewhere"), registry, stream=io.StringIO()).execute()
    (run,) = opened
    assert all(run.registry.listens(hook) for hook in run.registry.event_hooks)
    assert not any(registry.listens(hook) for hook in registry.event_hooks)
    assert run.config["sinks"] == []


def test_an_outcome_writes_the_events_of_its_rollout_and_no_others(sink, tmp_path):
    made, fire = sink()
    for rollout_id in ("r", "other"):
        started = RolloutStarted(rollout_id=rollout_id, task_id="t", group_id="g")
        fire("hermes_rollout_started", started)
    fire("hermes_tool_called", tool(error="no such file"))
    assert [line["event"] for line in lines(tmp_path)] == ["run"]
    made.write({"rollout_id": "r"})
    assert [(line.get("rollout_id"), line["event"]) for line in lines(tmp_path)[1:]] == [
        ("r", "started"),
        ("r", "tool"),
    ]
    made.close()
    assert [line.get("rollout_id") for line in lines(tmp_path)[1:]] == ["r", "r", "other"]


def test_attempts_that_were_repeated_are_in_one_timeline(sink, tmp_path):
    made, fire = sink()
    for attempt in (1, 2):
        fire("hermes_rollout_started", RolloutStarted(rollout_id="r", task_id="t", group_id="g"))
        fire("hermes_rollout_finished", rollout_end(attempt=attempt))
    made.write({"rollout_id": "r"})
    made.close()
    found = [(line["event"], line.get("attempt")) for line in lines(tmp_path)[1:]]
    assert found == [("started", None), ("finished", 1), ("started", None), ("finished", 2)]


def test_events_above_the_limit_are_counted_but_score_and_end_are_written(sink, tmp_path):
    made, fire = sink(max_events=2)
    for number in range(5):
        fire("hermes_tool_called", tool(f"tool{number}"))
    fire("hermes_rollout_scored", RolloutScored(rollout_id="r", status="ok", reward=1.0, parts={"a": 1.0}))
    fire("hermes_rollout_finished", rollout_end())
    made.write({"rollout_id": "r"})
    made.close()
    *events, left_out = lines(tmp_path)[1:]
    assert [event["event"] for event in events] == ["tool", "tool", "scored", "finished"]
    assert (left_out["event"], left_out["count"]) == ("left_out", 3)


def test_long_texts_are_cut_and_no_output_and_no_message_is_kept(sink, tmp_path):
    made, fire = sink()
    long = "x" * 10_000
    fire("hermes_tool_called", tool(long, error=long))
    update = ProcessUpdated(
        rollout_id="r", process_id="p1", session_key="r", command=long, moment="ended", running=False,
        exit_code=1, reason="exited", seconds=2.0, output=long,
    )  # fmt: skip
    fire("hermes_process_updated", update)
    fire("hermes_rollout_finished", rollout_end(messages=[long]))
    made.write({"rollout_id": "r"})
    made.close()
    assert all(len(line) < 2000 for line in (tmp_path / "events.jsonl").read_text().splitlines())
    process = lines(tmp_path)[2]
    assert (process["moment"], process["reason"], process["output_chars"]) == ("ended", "exited", 10_000)


def test_a_field_that_is_not_json_is_left_out_and_named_in_its_line(sink, tmp_path):
    made, fire = sink()
    fire("hermes_tool_called", tool(seconds={1, 2}))
    parts = {"a": 1.0, "b": object()}
    fire("hermes_rollout_scored", RolloutScored(rollout_id="r", status="ok", reward=1.0, parts=parts))
    fire("hermes_rollout_finished", rollout_end(turns=3))
    made.write({"rollout_id": "r"})
    made.close()
    called, scored, ended = lines(tmp_path)[1:]
    assert (called["name"], called["left_out"]) == ("terminal", ["seconds"])
    assert (scored["reward"], scored["left_out"], "parts" in scored) == (1.0, ["parts"], False)
    assert (ended["turns"], "left_out" in ended) == (3, False)
