"""Engines: a third party's engine runs a config exactly as the local one does, whatever happens to it."""

from __future__ import annotations

import io
import json

import pytest

from hermes_core.contracts.errors import BrokenComponentError, HermesError, UserError
from hermes_core.discovery import PluginSettings, load_plugins
from hermes_runner.config import RunConfig
from hermes_runner.run.run import Run

KEPT = ("rollout_id", "seed", "index", "reward", "stop_reason", "attempt", "turns", "final_response", "counters")


@pytest.fixture
def with_engines():
    extra = ("rollout_components", "engine_components")
    return load_plugins(
        PluginSettings(allow=("hermes-sandbox", "hermes-tools", "hermes-models", "hermes-runner"), extra=extra),
        environ={},
    )


def task(name, **fields):
    return {
        "id": name,
        "prompt": f"Write {name}.",
        "verifier": {"name": "half"},
        "solution": [f"echo {name} > answer.txt"],
        **fields,
    }


@pytest.fixture
def ran(with_engines, tmp_path):
    """Run a task file with an engine; gives the result, the recorded lines by rollout id, and the attempts."""

    async def run(engine="desks", *tasks, registry=with_engines, out="out", stream=None, **config):
        path = tmp_path / "tasks.jsonl"
        path.write_text("".join(json.dumps(item) + "\n" for item in tasks or [task("a"), task("b")]))
        values = {"tasks": str(path), "out": str(tmp_path / out), "engine": engine, "mistake_rate": 0.5, **config}
        parsed = RunConfig.parse({"enabled_toolsets": ["terminal"], **values}, source="the test")
        result = await Run(parsed, registry, stream=stream or io.StringIO()).execute()
        lines, attempts = (
            [json.loads(line) for line in (tmp_path / out / name).read_bytes().splitlines()]
            for name in ("rollouts.jsonl", "attempts.jsonl")
        )
        return result, {line["rollout_id"]: line for line in lines}, attempts

    return run


def facts(lines):
    """Return what an engine must not change, without rollout ids, which depend on the run's id."""
    return sorted([line["task_id"], *(line[key] for key in KEPT[1:] if key != "counters")] for line in lines.values())


async def test_a_strangers_engine_gives_the_outcomes_of_the_local_one(ran):
    _, here, _ = await ran("local", out="here", group_size=3)
    result, there, attempts = await ran("desks", out="there", group_size=3)
    assert facts(there) == facts(here)
    assert (len(there), attempts, result.clean) == (6, [], True)


async def test_the_run_s_own_sandbox_is_tried_where_a_task_brings_no_image(ran):
    """The backend's default image can be missing if no task needs it."""
    imaged = task("a", sandbox={"image": "debian"})
    with pytest.raises(HermesError, match=r"^backend 'local' cannot enforce isolation 'gvisor'"):
        await ran("local", task("b"), imaged, isolation="gvisor")
    with pytest.raises(HermesError, match=r"no task of .* can be run: backend 'local' cannot enforce isolation"):
        await ran("local", imaged, isolation="gvisor")


async def test_the_run_records_which_engine_ran_it(ran):
    result, lines, _ = await ran("desks")
    assert result.summary["run"]["engine"] == {"name": "desks", "desks": 2, "rollouts": 2, "most": 2}
    (line, *_) = lines.values()
    assert line["provenance"]["engine"] == {"name": "desks"}
    components = [name for plugin in line["provenance"]["plugins"] for name in plugin["components"]]
    assert "engine:desks" in components
    result, _, _ = await ran("local", out="here")
    assert result.summary["run"]["engine"] == {"name": "local"}


async def test_a_lost_rollout_is_an_attempt_of_the_backends_and_is_repeated(ran):
    _, lines, attempts = await ran("desks", engine_options={"trouble": "lost"}, group_size=2)
    assert {line["attempt"] for line in lines.values()} == {2}
    assert len(lines) == len(attempts) == 4
    assert {line["stop_reason"] for line in attempts} == {"tool_backend_error"}
    failure = attempts[0]["failure"]
    assert (failure["blame"], failure["type"], failure["retryable"]) == ("backend", "EngineLostError", True)
    assert attempts[0]["provenance"]["engine"]["worker"] in {0, 1}


@pytest.mark.parametrize(("trouble", "said"), [("bug", "'desks' raised KeyError"), ("exit", "SystemExit")])
async def test_whatever_an_engine_raises_costs_the_attempt_and_not_the_run(ran, trouble, said):
    _, lines, attempts = await ran("desks", engine_options={"trouble": trouble})
    assert [line["attempt"] for line in lines.values()] == [2, 2]
    assert said in attempts[0]["failure"]["message"]


async def test_a_lost_attempt_is_finished_for_observers_too(ran, with_engines):
    finished = []
    with_engines.forward_events(
        lambda _hook, event: finished.append((event.rollout_id, event.outcome["stop_reason"])),
        listened=["hermes_rollout_finished"],
    )
    await ran("desks", task("a"), engine_options={"trouble": "lost"})
    assert [reason for _, reason in finished] == ["tool_backend_error", "final_answer"]


async def test_a_fatal_error_of_the_engine_stops_the_run(ran):
    with pytest.raises(UserError, match="on fire"):
        await ran("desks", engine_options={"trouble": "fatal"})


@pytest.mark.parametrize("trouble", ["other", "nothing"])
async def test_an_engine_that_gives_back_something_else_is_broken(ran, trouble):
    with pytest.raises(BrokenComponentError, match="engine 'bent' was expected to return"):
        await ran("bent", engine_options={"trouble": trouble})


async def test_an_engine_that_cannot_open_stops_the_run_before_any_rollout(ran, tmp_path):
    with pytest.raises(UserError, match="shut"):
        await ran("desks", engine_options={"trouble": "shut"})
    assert not (tmp_path / "out").exists()


async def test_a_task_that_the_engine_refuses_does_not_stop_the_others(ran):
    tasks = [task("a", sandbox={"pids": 5}), task("b")]
    result, lines, _ = await ran("desks", *tasks, engine_options={"refuses": "pids"})
    assert [line["task_id"] for line in lines.values()] == ["b"]
    assert ["no desk has pids" in problem.message for problem in result.problems] == [True]


@pytest.mark.parametrize(("capacity", "most"), [(1, 1), (3, 3), (None, 4)])
async def test_no_more_rollouts_are_in_flight_than_the_engine_has_places_for(ran, capacity, most):
    result, _, _ = await ran("desks", group_size=4, max_concurrent=4, engine_options={"capacity": capacity})
    assert result.summary["run"]["engine"]["most"] == most


async def test_no_more_rollouts_are_in_flight_than_the_backend_has_room_for_and_the_run_says_so(ran):
    stream = io.StringIO()
    result, lines, attempts = await ran(
        "local", group_size=5, max_concurrent=8, terminal_backend="narrow", mistake_rate=0, stream=stream
    )
    assert (len(lines), attempts, result.clean) == (10, [], True)
    said = "3 rollouts at a time: engine 'local' with backend 'narrow' has room for no more (max_concurrent is 8)\n"
    assert stream.getvalue().startswith(said)


async def test_no_capacity_is_named_if_all_rollouts_fit(ran):
    stream = io.StringIO()
    await ran("local", group_size=1, max_concurrent=8, terminal_backend="narrow", stream=stream)
    await ran("local", group_size=5, max_concurrent=8, out="wide", stream=stream)
    assert "at a time" not in stream.getvalue()


async def test_another_engine_continues_a_run(ran):
    first, _, _ = await ran("desks", task_filter=[], group_size=2)
    again, lines, _ = await ran("local", group_size=2)
    assert again.summary["run"]["run_id"] == first.summary["run"]["run_id"]
    assert again.summary["speed"]["rollouts"] == 0
    assert len(lines) == 4


@pytest.mark.parametrize(
    ("engine", "options", "words"),
    [
        ("dseks", {}, "desks"),
        ("ray", {}, "hermes-backend-ray has it|pip install hermes-backend-ray"),
        ("desks", {"truoble": ""}, "truoble"),
        ("local", {"workers": 3}, "workers"),
    ],
)
async def test_a_wrong_engine_or_option_is_one_clear_message(ran, engine, options, words):
    with pytest.raises(HermesError, match=words):
        await ran(engine, engine_options=options)


async def test_a_component_that_is_no_engine_is_refused(ran):
    with pytest.raises(BrokenComponentError, match="half"):
        await ran("half")
