"""Delivery of groups when the ledger cannot be written: a delivered group is never reported as undelivered."""

from __future__ import annotations

import pytest

pytest.importorskip("atroposlib", reason="hermes-atropos is not installed")

from atropos_envs import ChatDouble, config, environment, says

from hermes_atropos.groups.ledger import End, Ledger
from hermes_atropos.trainer.group_sink import GroupSink
from hermes_core.contracts.errors import OutputError


class FullDisk:
    """The file of a ledger, which refuses lines while it is full."""

    def __init__(self):
        self.lines = []
        self.is_full = False

    def append(self, line):
        if self.is_full:
            raise OutputError("ledger.jsonl cannot be written: No space left on device")
        self.lines.append((line["rollout_id"], line["end"], line["reason"]))


@pytest.fixture
def disk():
    return FullDisk()


@pytest.fixture
def ledger(disk):
    made = Ledger(disk.append)
    for rollout in ("a", "b", "c"):
        made.begin(rollout, group_id="g")
    return made


@pytest.fixture
def trainer():
    """The ids of the rollouts that reached the trainer."""
    return []


@pytest.fixture
def outlet(ledger, trainer):
    async def send(groups):
        trainer.extend(about["rollout_id"] for group in groups for about in group["overrides"])
        return "received"

    made = GroupSink(config(), ledger)
    made.send = send
    return made


def group(*rollouts):
    return {"tokens": [[1]] * len(rollouts), "overrides": [{"rollout_id": rollout} for rollout in rollouts]}


async def test_a_group_that_the_trainer_has_is_delivered_though_the_ledger_is_full(outlet, disk, trainer, caplog):
    disk.is_full = True
    assert await outlet.deliver(group("a", "b"), to_trainer=True)
    assert trainer == ["a", "b"]
    assert "a group was delivered (received), which the ledger does not record yet: ledger.jsonl" in caplog.text


async def test_the_next_delivery_raises_the_ledgers_error_before_anything_is_sent(outlet, disk, trainer):
    disk.is_full = True
    await outlet.deliver(group("a", "b"), to_trainer=True)
    with pytest.raises(OutputError, match="No space left"):
        await outlet.deliver(group("c"), to_trainer=True)
    assert trainer == ["a", "b"]
    disk.is_full = False
    assert await outlet.deliver(group("c"), to_trainer=True)
    assert trainer == ["a", "b", "c"]


async def test_a_delivered_group_ends_as_sent_by_whoever_closes_it_later(outlet, disk, ledger):
    disk.is_full = True
    await outlet.deliver(group("a"), to_trainer=True)
    disk.is_full = False
    outlet.settle_open(group("a"), End.REJECTED, "postprocess_histories removed it")
    await outlet.aclose()
    assert disk.lines == [("a", "sent", "received")]
    assert [entry.rollout_id for entry in ledger.open] == ["b", "c"]


async def test_closing_records_what_was_delivered_while_the_ledger_was_full(outlet, disk):
    disk.is_full = True
    sequences = {"tokens": [[1], [2]], "overrides": [{}, {}]}
    outlet.send = receive
    assert await outlet.deliver(sequences, to_trainer=True)
    disk.is_full = False
    await outlet.aclose()
    assert [(end, reason) for _, end, reason in disk.lines] == [("sent", "received")] * 2
    assert len({rollout for rollout, _, _ in disk.lines}) == 2


async def test_closing_ends_sandboxes_and_connections_although_the_ledger_cannot_be_written(monkeypatch):
    """With a full disk they stayed open."""
    env = environment(ChatDouble(lambda _: says("0")))
    await env.setup()
    workshop, closed = env._workshop, []

    async def refuse():
        raise OutputError("the ledger cannot be written")

    async def close():
        closed.append(await type(workshop).aclose(workshop))

    monkeypatch.setattr(env.outlet, "aclose", refuse)
    monkeypatch.setattr(workshop, "aclose", close)
    with pytest.raises(OutputError):
        await env.aclose()
    assert len(closed) == 1


async def receive(groups):
    del groups
    return "received"
