"""Items of a resumed `process`: each runs once, from every source, except unrecognisable ones."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("atroposlib", reason="hermes-atropos is not installed")

from atropos_envs import PuzzleEnv, TokenDouble, environment, lines, says

from hermes_atropos.trainer.item_digests import ItemDigests
from hermes_core.contracts.errors import ModelAuthError, OutputError


def right(request):
    return says(str(2 * int(request.conversation.messages[0]["content"].partition("+")[0])))


def refuses(number):
    """Return a model that ends the process at one question."""
    return lambda request: (
        ModelAuthError("401")
        if request.conversation.messages[0]["content"] == f"{number}+{number}?"
        else right(request)
    )


async def run_process(folder, kind, answer=right, **fields):
    env = environment(
        TokenDouble(answer),
        kind=kind,
        **{"data_path_to_save_groups": str(folder / "g.jsonl"), "total_steps": 1, **fields},
    )
    return await env.process_manager()


def tasks(folder):
    return sorted(group["group_overrides"]["task_id"] for group in lines(folder / "g.jsonl"))


def shuffling_env(seed):
    class Shuffled(PuzzleEnv):
        async def setup(self):
            await super().setup()
            random.Random(seed).shuffle(self.puzzles)

    return Shuffled


async def test_items_in_another_order_than_at_first_are_refused(tmp_path):
    await run_process(tmp_path, shuffling_env(1), total_steps=5)
    with pytest.raises(OutputError, match=r"was started with other items: item 0 .*\n.*shuffle with a fixed seed"):
        await run_process(tmp_path, shuffling_env(2), total_steps=9)
    await run_process(tmp_path, shuffling_env(1), total_steps=9)
    assert len(set(tasks(tmp_path))) == 9


async def test_items_that_are_changed_while_they_run_and_given_again_are_the_same(tmp_path):
    class Changing(PuzzleEnv):
        async def setup(self):
            await super().setup()
            del self.puzzles[2:]

        async def collect_trajectories(self, item):
            item["times"] = item.get("times", 0) + 1
            return await super().collect_trajectories(item)

    await run_process(tmp_path, Changing, total_steps=5)
    assert (await run_process(tmp_path, Changing, total_steps=7))["groups_before"] == 5


class Opaque:
    """An item that is not JSON and has an address in its `repr`."""

    def __init__(self, item):
        self.item = item


def wrap(item):
    return Opaque(item)


def pair(item):
    return (item, 1)


class Splitting(PuzzleEnv):
    wrap = staticmethod(wrap)

    async def collect_trajectories(self, item):
        inner = item.item if isinstance(item, Opaque) else item[0] if isinstance(item, tuple) else item
        group, _ = await super().collect_trajectories(inner)
        return group, [self.wrap(self.puzzles[10]), self.wrap(self.puzzles[11])] if inner["id"] == "p0" else []


@pytest.mark.parametrize("made", [wrap, pair])
@pytest.mark.parametrize("refused", [10, 11])
async def test_items_of_the_backlog_that_are_no_json_are_neither_lost_nor_run_twice(tmp_path, made, refused):
    kind = type("Splitting", (Splitting,), {"wrap": staticmethod(made)})
    with pytest.raises(ModelAuthError):
        await run_process(tmp_path, kind, refuses(refused))
    await run_process(tmp_path, kind)
    assert tasks(tmp_path) == ["p0", "p10", "p11"]
    assert (await run_process(tmp_path, kind))["is_finished_before"] is True


async def test_a_backlog_that_setup_fills_runs_once(tmp_path):
    class Filled(PuzzleEnv):
        async def setup(self):
            await super().setup()
            self.backlog.extend([self.puzzles[40], self.puzzles[41]])

    with pytest.raises(ModelAuthError):
        await run_process(tmp_path, Filled, refuses(41), max_concurrent_groups=1)
    await run_process(tmp_path, Filled)
    await run_process(tmp_path, Filled, total_steps=2)
    assert tasks(tmp_path) == ["p0", "p1", "p40", "p41"]


class Sending(PuzzleEnv):
    """A task of the author's own, made in setup, sends the groups."""

    async def setup(self):
        await super().setup()
        self.queue = asyncio.Queue()
        self.sender = asyncio.create_task(self.send_all())

    async def send_all(self):
        while True:
            group, item, sent = await self.queue.get()
            await self.handle_send_to_api(group, item, do_send_to_api=False)
            sent.set_result(None)

    async def collect_trajectories(self, item):
        group, backlog = await super().collect_trajectories(item)
        sent = asyncio.get_running_loop().create_future()
        await self.queue.put((group, item, sent))
        await sent
        return None, backlog


async def test_groups_of_an_authors_own_task_are_written_to_the_same_file(tmp_path):
    fields = {"ledger_path": str(tmp_path / "ledger.jsonl"), "group_size": 2}
    await run_process(tmp_path, Sending, total_steps=2, **fields)
    await run_process(tmp_path, Sending, total_steps=4, **fields)
    assert tasks(tmp_path) == ["p0", "p1", "p2", "p3"]
    assert not (tmp_path / "g_1.jsonl").exists()
    assert Counter(line["end"] for line in lines(tmp_path / "ledger.jsonl")) == {"sent": 8}


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.frozensets(st.text(), max_size=4) | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(values)
def test_every_item_has_a_digest_that_does_not_depend_on_the_object(value):
    assert ItemDigests().digest([value]) == ItemDigests().digest([value])
    assert ItemDigests().digest(Opaque(value)) == ItemDigests().digest(Opaque(value))


async def test_a_finished_output_is_finished_whatever_items_come(tmp_path):
    await run_process(tmp_path, shuffling_env(1), total_steps=5)
    counts = await run_process(tmp_path, shuffling_env(2), total_steps=5)
    assert counts["is_finished_before"]
    assert len(tasks(tmp_path)) == 5


class Image:
    """Shows its address in capital letters, as Pillow's images do."""

    def __repr__(self):
        return f"<Image at 0x{id(self):X}>"


@dataclass
class Tagged:
    tags: set[str]


@pytest.mark.parametrize(
    "make",
    [
        lambda: {"image": Image()},
        lambda: {"tagged": Tagged({"k", "l", "m"})},
        lambda: {("a", 1): {"a", "b"}},
        Image,
    ],
    ids=["an image", "an object with a set", "a key that is no text", "an object"],
)
def test_what_has_no_text_of_its_own_is_not_compared(make):
    assert ItemDigests().digest(make()) == ""


def test_sets_have_one_digest_however_they_were_filled():
    first, second = frozenset({"a", "b", frozenset("xyz")}), frozenset({frozenset("zyx"), "b", "a"})
    assert ItemDigests().digest([first]) == ItemDigests().digest([second]) != ItemDigests().digest([frozenset("a")])
