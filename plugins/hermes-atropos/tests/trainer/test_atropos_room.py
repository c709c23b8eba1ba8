"""How many groups may be in flight: the trainer's queue, an evaluation and a minimum share decide."""

from __future__ import annotations

import asyncio
import types

import pytest

pytest.importorskip("atroposlib", reason="hermes-atropos is not installed")

from atropos_envs import ChatDouble, environment
from hypothesis import given
from hypothesis import strategies as st

from hermes_atropos import EvalHandlingEnum
from hermes_atropos.trainer.serving import Serving


@pytest.fixture(scope="module")
def env():
    return environment(ChatDouble(), max_num_workers=8, batch_size=8, group_size=2, max_batches_offpolicy=2)


@pytest.fixture
def room(env, monkeypatch):
    def room(queue=0, *, evaluating=False, **fields):
        status = {"queue_size": queue, "self_queue_size": queue, "unallocated_fraction": 1.0}
        monkeypatch.setattr(env, "status_dict", status, raising=False)
        monkeypatch.setattr(env, "eval_runner", types.SimpleNamespace(done=lambda: not evaluating))
        for name, value in fields.items():
            monkeypatch.setattr(env.config, name, value)
        return Serving(env).room(status)

    return room


def test_an_empty_queue_leaves_room_for_all_workers(room):
    assert room() == 8


@pytest.mark.parametrize(("queue", "left"), [(1, 7), (7, 1), (8, 0), (20, 0)])
def test_what_is_queued_takes_room(room, queue, left):
    assert room(queue) == left


def test_without_an_off_policy_limit_the_queue_does_not_matter(room):
    assert room(20, max_batches_offpolicy=0) == 8


@pytest.mark.parametrize(
    ("handling", "left"),
    [(EvalHandlingEnum.STOP_TRAIN, 0), (EvalHandlingEnum.LIMIT_TRAIN, 2), (EvalHandlingEnum.NONE, 8)],
)
def test_an_evaluation_takes_the_room_that_its_handling_says(room, handling, left):
    assert room(evaluating=True, eval_handling=handling, eval_limit_ratio=0.25) == left
    assert room(evaluating=False, eval_handling=handling, eval_limit_ratio=0.25) == 8


@pytest.mark.parametrize(("own", "left"), [(9, 0), (1, 3)])
def test_a_minimum_share_of_the_batch_keeps_room_in_a_full_queue(env, monkeypatch, own, left):
    status = {"queue_size": 9, "self_queue_size": own, "unallocated_fraction": 0.5}
    monkeypatch.setattr(env, "status_dict", status, raising=False)
    monkeypatch.setattr(env, "eval_runner", None)
    monkeypatch.setattr(env.config, "min_batch_allocation", 0.5)
    assert Serving(env).room(status) == left


@given(st.integers(0, 50), st.integers(1, 64), st.integers(1, 8), st.integers(0, 5))
def test_room_is_never_negative_nor_more_than_the_workers(env, queue, batch, group, offpolicy):
    env.eval_runner = None
    env.config.batch_size, env.config.group_size, env.config.max_batches_offpolicy = batch, group, offpolicy
    env.config.min_batch_allocation = None
    env.status_dict = {"queue_size": queue, "unallocated_fraction": 1.0}
    assert 0 <= Serving(env).room(env.status_dict) <= 8


async def test_no_item_now_is_asked_for_again(env, caplog):
    items = [None, None, {"id": "late", "question": "1+1?"}]

    async def next_item():
        return items.pop(0)

    serving = Serving(env)
    env.get_next_item = next_item
    started = []
    serving._run_item = lambda item: _note(started, item)
    for _ in range(3):
        await serving._admit(1)
    await asyncio.gather(*serving._groups)
    assert started == [{"id": "late", "question": "1+1?"}]
    assert caplog.text.count("get_next_item returned no item") == 1


async def _note(started, item):
    started.append(item)
    return True
