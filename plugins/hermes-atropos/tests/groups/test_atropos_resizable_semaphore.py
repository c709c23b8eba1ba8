"""A limit that can be changed while it is in use."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from hermes_atropos.groups.resizable_semaphore import ResizableSemaphore


class Users:
    """Tasks that hold a slot until they are told to go."""

    def __init__(self, slots):
        self.slots = slots
        self.inside = []
        self.tasks = {}

    async def come(self, name):
        self.tasks[name] = asyncio.create_task(self._stay(name))
        await settle()

    async def _stay(self, name):
        async with self.slots:
            self.inside.append(name)
            try:
                await asyncio.Event().wait()
            finally:
                self.inside.remove(name)

    async def go(self, name):
        self.tasks.pop(name).cancel()
        await settle()


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


async def test_those_who_wait_get_in_in_the_order_they_came():
    users = Users(ResizableSemaphore(1))
    for name in "abc":
        await users.come(name)
    assert users.inside == ["a"]
    await users.go("a")
    assert users.inside == ["b"]
    await users.go("b")
    assert users.inside == ["c"]
    await users.go("c")


async def test_a_smaller_limit_takes_nothing_away_and_a_larger_one_lets_in():
    users = Users(ResizableSemaphore(2))
    for name in "abc":
        await users.come(name)
    users.slots.resize(1)
    await users.go("a")
    assert users.inside == ["b"]
    users.slots.resize(5)
    await settle()
    assert users.inside == ["b", "c"]
    for name in "bc":
        await users.go(name)


async def test_a_turn_that_comes_with_a_cancellation_is_handed_on():
    users = Users(ResizableSemaphore(1))
    for name in "abc":
        await users.come(name)
    users.tasks["a"].cancel()
    await asyncio.sleep(0)
    users.tasks["b"].cancel()  # it was given its turn and has not taken it
    await settle()
    assert users.inside == ["c"]
    await users.go("c")
    assert users.slots.used == 0


@given(st.lists(st.tuples(st.sampled_from(["come", "go", "resize"]), st.integers(0, 5)), max_size=30))
def test_never_more_than_the_limit_begin_and_nobody_waits_beside_a_free_slot(steps):
    async def run_all():
        slots = ResizableSemaphore(2)
        users, limit = Users(slots), 2
        for number, (step, value) in enumerate(steps):
            before = len(users.inside)
            if step == "come":
                await users.come(number)
            elif step == "resize":
                limit = max(1, value)
                slots.resize(value)
                await settle()
            elif users.tasks:
                await users.go(sorted(users.tasks)[value % len(users.tasks)])
            assert len(users.inside) <= max(limit, before)
            assert len(users.inside) >= min(limit, len(users.tasks))
            assert slots.used == len(users.inside)
        for name in list(users.tasks):
            await users.go(name)
        assert slots.used == 0

    asyncio.run(run_all())
