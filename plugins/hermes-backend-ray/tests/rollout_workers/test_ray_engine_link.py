"""The run's link to one worker: a reply counts once, a silent worker is lost, a cancelled rollout is confirmed."""

from __future__ import annotations

import asyncio
import dataclasses
import math

import pytest
from ray_runs import Seen, registry
from scripted_actor import ScriptedActor

from hermes_backend_ray.cluster.nodes import Node
from hermes_backend_ray.rollout_workers.engine_cluster import EngineCluster
from hermes_backend_ray.rollout_workers.engine_options import EngineOptions
from hermes_backend_ray.rollout_workers.messages import describe_error, pack, pack_outcome, rebuilt, unpack
from hermes_backend_ray.rollout_workers.worker import Outbox, WorkerRollouts
from hermes_backend_ray.rollout_workers.worker_link import WorkerLink
from hermes_backend_ray.rollout_workers.worker_pool import Crew, WorkerGoneError
from hermes_core.contracts.engine import EngineRun
from hermes_core.contracts.errors import (
    BackendError,
    ConfigError,
    EngineLostError,
    ModelAuthError,
    TaskError,
    UserError,
)
from hermes_core.contracts.events import RolloutStarted
from hermes_core.contracts.model import ToolSchemas
from hermes_core.contracts.rollout import StopReason
from hermes_core.contracts.task import Task
from hermes_core.contracts.tokens import TrainingSample
from hermes_core.rollout import GroupPlan, RolloutSpec, failed_outcome
from hermes_core.tooling import ToolSelection

OPTIONS = EngineOptions(workers=1, lost_after=30, cancel_timeout=0.05, start_timeout=0.2)
PLACE = {"name": "ray", "worker": "w1", "node": "n1"}


@pytest.fixture(scope="module")
def known_plugins():
    return registry(allow=("hermes-sandbox", "hermes-tools", "hermes-models", "hermes-tokens", "hermes-runner"))


@pytest.fixture
def rollout():
    task = Task(id="t1", messages=({"role": "user", "content": "do it"},))
    tools = ToolSelection(specs=(), schemas=ToolSchemas(), drawn=(), skipped=())
    return RolloutSpec(rollout_id="ro_1", group=GroupPlan(group_id="g1", task=task, tools=tools))


@pytest.fixture
async def worker(known_plugins, request):
    """A listening link to a scripted actor; yields both, and what the link has counted."""
    cancel_timeout = getattr(request, "param", OPTIONS.cancel_timeout)
    actor = ScriptedActor()
    turns: list[str] = []
    run = EngineRun(run_id="r", config={}, registry=known_plugins, on_turn=turns.append)
    options = OPTIONS.model_copy(update={"cancel_timeout": cancel_timeout})
    link = WorkerLink(actor, PLACE, slots=2, run=run, options=options)
    lost: list[WorkerLink] = []
    link.listen(lost.append)
    yield link, actor, turns, lost
    await link.close()


def outcome_of(rollout):
    """An outcome with values that a text format would lose."""
    made = failed_outcome(rollout, TaskError("x"))
    sample = TrainingSample(tokens=(1, 2), masks=[-100, 2], logprobs=(None, -0.1 - 2**-40))
    messages = [{"role": "tool", "content": "\ud800 lone"}]
    return dataclasses.replace(made, samples=(sample,), messages=messages, reward_parts={"x": math.inf})


async def wait_until_begun(actor, count=1):
    while len(actor.begun) < count:
        await asyncio.sleep(0)


async def test_an_outcome_comes_back_without_loss_and_with_its_turns(worker, rollout):
    link, actor, turns, _ = worker
    running = asyncio.create_task(link.run_rollout(rollout))
    await wait_until_begun(actor)
    (key, sent) = actor.begun[0]
    assert key == "ro_1#1"
    assert unpack(sent).provenance["engine"] == PLACE
    actor.tell("turn", "ro_1", None)
    outcome = outcome_of(rollout)
    actor.tell("done", key, pack_outcome(outcome))
    assert await running == outcome
    assert turns == ["ro_1"]


async def test_a_reply_that_is_repeated_or_late_counts_once_and_is_noted(worker, rollout):
    link, actor, _, _ = worker
    running = asyncio.create_task(link.run_rollout(rollout))
    await wait_until_begun(actor)
    for _ in range(2):
        actor.tell("done", "ro_1#1", pack_outcome(outcome_of(rollout)))
    await running
    actor.tell("done", "ro_0#1", b"")
    while len(link.notes) < 2:
        await asyncio.sleep(0)
    assert ["ro_1#1 was discarded" in link.notes[0], "ro_0#1 was discarded" in link.notes[1]] == [True, True]
    assert link.rollouts == 1


async def test_a_worker_that_dies_loses_all_its_rollouts_with_its_place_in_the_error(worker, rollout):
    link, actor, _, lost = worker
    running = [
        asyncio.create_task(link.run_rollout(dataclasses.replace(rollout, rollout_id=f"ro_{number}")))
        for number in range(2)
    ]
    await wait_until_begun(actor, 2)
    actor.die()
    ends = await asyncio.gather(*running, return_exceptions=True)
    assert [(type(end), getattr(end, "place", None)) for end in ends] == 2 * [(EngineLostError, PLACE)]
    assert (lost, link.free) == ([link], 0)
    with pytest.raises(EngineLostError):
        await link.run_rollout(rollout)


async def test_a_worker_that_stops_answering_is_lost(known_plugins, rollout, monkeypatch):
    monkeypatch.setattr("hermes_backend_ray.rollout_workers.worker_link._POLL", 0.01)
    run = EngineRun(run_id="r", config={}, registry=known_plugins)
    options = OPTIONS.model_copy(update={"lost_after": 0.05})
    link = WorkerLink(ScriptedActor(), PLACE, slots=1, run=run, options=options)
    link.listen(lambda _: None)
    with pytest.raises(EngineLostError, match="worker w1 on node n1 was lost: it does not answer"):
        await link.run_rollout(rollout)
    await link.close()


# A confirmation that comes must have enough time on a busy machine, too.
@pytest.mark.parametrize(
    ("worker", "confirms", "unconfirmed"), [(60.0, True, 0), (0.05, False, 1)], indirect=["worker"]
)
async def test_a_cancelled_rollout_ends_when_the_worker_confirms_it_or_is_counted(
    worker, rollout, confirms, unconfirmed
):
    link, actor, _, _ = worker
    actor.confirms = confirms
    running = asyncio.create_task(link.run_rollout(rollout))
    await wait_until_begun(actor)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (actor.cancelled, link.unconfirmed) == (["ro_1#1"], unconfirmed)


async def test_a_fatal_error_stays_fatal_and_names_the_worker(worker, rollout):
    link, actor, _, _ = worker
    running = asyncio.create_task(link.run_rollout(rollout))
    await wait_until_begun(actor)
    actor.tell("raised", "ro_1#1", describe_error(ModelAuthError("401", hint="another key")))
    with pytest.raises(ModelAuthError, match=r"worker w1 on node n1: 401") as error:
        await running
    assert (error.value.fatal, error.value.hint) == (True, "another key")


async def test_a_reply_that_cannot_be_read_loses_the_attempt(worker, rollout):
    link, actor, _, _ = worker
    running = asyncio.create_task(link.run_rollout(rollout))
    await wait_until_begun(actor)
    actor.tell("done", "ro_1#1", b"torn")
    with pytest.raises(EngineLostError, match="cannot be read"):
        await running


async def test_a_task_that_cannot_be_sent_is_a_task_error(worker, rollout):
    link, actor, _, _ = worker
    task = dataclasses.replace(rollout.task, metadata={"lock": lambda: None})
    with pytest.raises(TaskError, match="task 't1' cannot be sent"):
        await link.run_rollout(dataclasses.replace(rollout, group=dataclasses.replace(rollout.group, task=task)))
    assert actor.begun == []


async def test_events_of_the_worker_reach_the_plugins_of_the_run(worker, known_plugins):
    _, actor, _, _ = worker
    seen = Seen(known_plugins)
    event = RolloutStarted(rollout_id="ro_1", task_id="t", group_id="g")
    actor.tell("event", "hermes_rollout_started", pack(event))
    await seen.until(lambda: seen.started() == ["ro_1"])


async def test_an_event_that_cannot_be_read_is_noted_and_loses_no_rollout(worker, rollout):
    """The event ended the listening without a message, and the run waited for the worker's rollouts endlessly."""
    link, actor, _, lost = worker
    running = asyncio.create_task(link.run_rollout(rollout))
    await wait_until_begun(actor)
    actor.tell("event", "hermes_rollout_started", b"torn")
    actor.tell("done", "ro_1#1", pack_outcome(outcome_of(rollout)))
    async with asyncio.timeout(60):
        assert (await running).rollout_id == "ro_1"
    assert "hermes_rollout_started: an event could not be read" in link.notes[0]
    assert lost == []


async def test_a_worker_whose_messages_cannot_be_read_is_lost(worker, rollout):
    link, actor, _, lost = worker
    running = asyncio.create_task(link.run_rollout(rollout))
    await wait_until_begun(actor)
    actor.tell("done")
    async with asyncio.timeout(60):
        with pytest.raises(EngineLostError, match="its messages cannot be read: TypeError"):
            await running
    assert lost == [link]


def test_an_outcome_that_cannot_be_sent_is_replaced_by_one_that_says_so(rollout):
    outcome = dataclasses.replace(outcome_of(rollout), provenance={"lock": lambda: None})
    received = unpack(pack_outcome(outcome))
    assert (received.rollout_id, received.attempt) == ("ro_1", 1)
    assert received.stop_reason is StopReason.FRAMEWORK_ERROR
    assert received.samples == outcome.samples


async def test_a_rollout_that_a_worker_cannot_read_fails_only_that_task():
    """The call failed, so that the whole worker counted as dead, with all its rollouts."""
    outbox = Outbox()
    await WorkerRollouts(outbox).begin("ro_1#1", b"torn")
    (kind, key, error), *_ = await outbox.take(1)
    assert (kind, key) == ("raised", "ro_1#1")
    assert type(rebuilt(error, "w1")) is TaskError
    assert "cannot be read here" in error["message"]


def test_an_error_of_a_class_that_only_the_worker_has_stays_fatal_or_not():
    class StrangeError(UserError):
        pass

    assert type(rebuilt(describe_error(StrangeError("odd")), "w1")) is UserError
    assert not rebuilt(describe_error(ValueError("odd")), "w1").fatal


class Shelf(EngineCluster):
    """A list of nodes without a cluster."""

    def __init__(self, *nodes: Node) -> None:
        super().__init__()
        self.known = list(nodes)

    async def nodes(self):
        return self.known


def crew_of(known, options, *nodes, fails=0):
    run = EngineRun(run_id="r", config={}, registry=known)
    failures = iter([True] * fails)

    async def start(name, node):
        if next(failures, False):
            raise WorkerGoneError("it died")
        place = {"name": "ray", "worker": name, "node": "anywhere" if node is None else node.id}
        return WorkerLink(ScriptedActor(), place, slots=2, run=run, options=options)

    return Crew(Shelf(*nodes), options, start)


NODES = [Node(id=f"n{number}", address="h", resources={"CPU": number}) for number in range(3)]


async def test_each_node_that_has_what_a_worker_needs_gets_one(known_plugins):
    crew = crew_of(known_plugins, EngineOptions(workers_per_node=2), *NODES)
    await crew.muster()
    assert [link.place["node"] for link in crew.links] == ["n1", "n1", "n2", "n2"]
    await crew.close()


async def test_a_rollout_goes_to_the_worker_with_most_room_and_waits_for_room(known_plugins):
    crew = crew_of(known_plugins, EngineOptions(workers=2))
    await crew.muster()
    first, second, third, fourth = [await crew.seat() for _ in range(4)]
    assert (first, third) == (crew.links[0], crew.links[0])
    assert (second, fourth) == (crew.links[1], crew.links[1])
    waiting = asyncio.create_task(crew.seat())
    await asyncio.sleep(0)
    assert not waiting.done()
    await crew.leave(second)
    assert await waiting is second
    await crew.close()


async def test_a_worker_that_dies_as_it_starts_is_started_again(known_plugins):
    crew = crew_of(known_plugins, EngineOptions(workers=1), fails=2)
    await crew.muster()
    assert (len(crew.links), crew.notes) == (1, ["it died", "it died"])
    await crew.close()


async def test_a_worker_that_dies_at_each_start_ends_the_run(known_plugins):
    with pytest.raises(WorkerGoneError):
        await crew_of(known_plugins, EngineOptions(workers=1), fails=9).muster()


async def test_an_error_about_no_suitable_node_names_what_a_worker_needs(known_plugins):
    with pytest.raises(ConfigError, match="'CPU': 8"):
        await crew_of(known_plugins, EngineOptions(num_cpus=8), *NODES).muster()


async def test_a_run_without_workers_for_too_long_ends_and_says_how_to_continue(known_plugins, monkeypatch):
    monkeypatch.setattr("hermes_backend_ray.rollout_workers.worker_pool._REFRESH", 0.01)
    crew = crew_of(known_plugins, OPTIONS)
    await crew.muster()
    crew.tend()
    await crew.seat()
    await crew.seat()
    monkeypatch.setattr(crew, "_start", _never)
    waiting = asyncio.create_task(crew.seat())
    crew.links[0].actor.die()
    with pytest.raises(UserError, match=r"no worker for 0\.2 s.*\n.*continues the run"):
        await waiting
    await crew.close()


async def test_a_cluster_that_stops_answering_ends_the_run_too(known_plugins, monkeypatch):
    """The task that replaces workers ended with Ray's error, and a run without workers waited endlessly."""
    monkeypatch.setattr("hermes_backend_ray.rollout_workers.worker_pool._REFRESH", 0.01)
    crew = crew_of(known_plugins, OPTIONS.model_copy(update={"workers": None}), NODES[1])
    await crew.muster()
    crew.tend()

    async def lose_head():
        raise ConnectionError("the head is gone")

    monkeypatch.setattr(crew._cluster, "nodes", lose_head)
    crew.links[0].actor.die()
    async with asyncio.timeout(60):
        while crew.links[0].loss is None:
            await asyncio.sleep(0)
        with pytest.raises(
            UserError, match=r"no worker for 0\.2 s: the cluster's nodes cannot be listed.*the head is gone"
        ):
            await crew.seat()
    await crew.close()


async def _never(_name, _node):
    raise WorkerGoneError("nothing starts")


async def test_a_lost_worker_is_replaced_on_its_node(known_plugins, monkeypatch):
    monkeypatch.setattr("hermes_backend_ray.rollout_workers.worker_pool._REFRESH", 0.01)
    crew = crew_of(known_plugins, EngineOptions(num_cpus=2), *NODES)
    await crew.muster()
    crew.tend()
    crew.links[0].actor.die()
    while len(crew.links) < 2:
        await asyncio.sleep(0)
    assert [(link.place["node"], link.loss is None) for link in crew.links] == [("n2", False), ("n2", True)]
    await crew.close()


async def test_an_error_of_closing_is_raised_after_all_workers_have_ended(known_plugins):
    """The error was dropped: the sandboxes stayed on the node, and no message said how to remove them."""
    crew = crew_of(known_plugins, EngineOptions(workers=3))
    await crew.muster()
    first, second, third = (link.actor for link in crew.links)
    first.ends = (False, describe_error(BackendError("node n1 is down", hint="hermes-core sandboxes gc")))
    second.is_dead = True
    with pytest.raises(BackendError) as caught:
        await crew.close()
    assert "worker w1 on node anywhere: node n1 is down; worker w2 on node anywhere was lost" in caught.value.message
    assert (caught.value.hint, third.closed) == ("hermes-core sandboxes gc", True)
