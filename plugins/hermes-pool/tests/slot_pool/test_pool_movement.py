"""Waiters fail in a queue that does not move, and not in one that moves. The tests advance the clock of the loop."""

from __future__ import annotations

import asyncio

import pytest
from pool_support import Backend, backend, request, slot_pool

from hermes_core.contracts.errors import ConfigError
from hermes_core.contracts.sandbox import BoundedBackend, SandboxSpec
from hermes_pool import OptionNames, SlotUnavailableError
from hermes_pool.backend.options import PoolBackendOptions
from hermes_pool.backend.pool_backend import PoolBackend
from hermes_testing.watching import eventually


@pytest.fixture
async def pass_time(monkeypatch):
    """Advance the loop's clock by seconds, and let the tasks run that waited for that."""
    loop = asyncio.get_running_loop()
    now, passed = loop.time, 0.0
    monkeypatch.setattr(loop, "time", lambda: now() + passed)

    async def move(seconds):
        nonlocal passed
        passed += seconds
        for _ in range(5):
            await asyncio.sleep(0)

    return move


async def test_a_waiter_gets_its_slot_after_more_than_acquire_timeout_in_a_queue_that_moves(pass_time):
    """All waiters got an error after a minute, and their rollouts were dropped."""
    async with slot_pool(max_hosts=1, slots_per_host=1, acquire_timeout=600, idle_timeout=10**6) as (pool, engine):
        seat = await pool.acquire("key", engine.make, 9, request())
        waiting = [asyncio.create_task(pool.acquire("key", engine.make, 9, request())) for _ in range(4)]
        assert await eventually(lambda: pool.waiting == 4)
        for task in waiting:
            await pass_time(500)
            await seat.release()
            seat = await asyncio.wait_for(task, 60)
        await seat.release()


async def test_slots_of_any_kind_that_are_given_back_keep_a_waiter_in_the_queue(pass_time):
    async with slot_pool(max_hosts=1, slots_per_host=2, acquire_timeout=600, idle_timeout=10**6) as (pool, engine):
        seats = [await pool.acquire("key", engine.make, 9, request()) for _ in range(2)]
        other = asyncio.create_task(pool.acquire("other", engine.make, 9, request()))
        assert await eventually(lambda: pool.waiting == 1)
        for seat in seats:
            await pass_time(500)
            await seat.release()
        await (await asyncio.wait_for(other, 60)).release()


async def test_waiting_in_a_queue_that_does_not_move_fails_with_the_statistics(pass_time):
    async with slot_pool(max_hosts=1, slots_per_host=2, acquire_timeout=600) as (pool, engine):
        seats = [await pool.acquire("key", engine.make, 9, request()) for _ in range(2)]
        waiting = [asyncio.create_task(pool.acquire("key", engine.make, 9, request())) for _ in range(2)]
        assert await eventually(lambda: pool.waiting == 2)
        await pass_time(500)
        await seats[0].release()
        got = await waiting[0]
        await pass_time(500)
        assert not waiting[1].done()
        await pass_time(101)
        with pytest.raises(
            SlotUnavailableError, match="given out or back within 600 s: 1 waiting, 0 free and 2 in use"
        ):
            await waiting[1]
        for seat in (got, seats[1]):
            await seat.release()


async def test_the_start_of_a_host_may_take_longer_than_acquire_timeout(pass_time):
    """A slow pull of an image ended the run after 30 seconds, although 120 were allowed for it."""
    async with slot_pool(max_hosts=1, acquire_timeout=30, start_timeout=120) as (pool, engine):
        engine.gate.clear()
        task = asyncio.create_task(pool.acquire("key", engine.make, 9, request()))
        assert await eventually(lambda: pool.stats().hosts["starting"] == 1)
        await pass_time(100)
        assert not task.done()
        engine.gate.set()
        await (await asyncio.wait_for(task, 60)).release()


async def test_slow_starts_of_two_kinds_do_not_end_one_another(pass_time):
    """After half of `acquire_timeout` each counted as late, and was ended to make room for the other."""
    async with slot_pool(max_hosts=2, acquire_timeout=30, start_timeout=120, slots_per_host=1) as (pool, engine):
        engine.gate.clear()
        tasks = [asyncio.create_task(pool.acquire(key, engine.make, 9, request())) for key in ("one", "two")]
        tasks.append(asyncio.create_task(pool.acquire("three", engine.make, 9, request())))
        assert await eventually(lambda: pool.stats().hosts["starting"] == 2)
        for _ in range(9):
            await pass_time(10)
            pool._queue._tick()
        assert engine.asked == 2
        assert not any(task.done() for task in tasks)
        engine.gate.set()
        for task in tasks:
            await (await asyncio.wait_for(task, 60)).release()


async def test_the_error_of_a_start_that_takes_too_long_names_the_backend_s_options(pass_time):
    names = OptionNames(acquire_timeout="acquire_timeout_s", start_timeout="patience")
    async with slot_pool(max_hosts=1, acquire_timeout=30, start_timeout=120, names=names) as (pool, engine):
        engine.gate.clear()
        task = asyncio.create_task(pool.acquire("key", engine.make, 9, request()))
        assert await eventually(lambda: pool.stats().hosts["starting"] == 1)
        await pass_time(121)
        with pytest.raises(SlotUnavailableError, match="was not started within 12") as told:
            await asyncio.wait_for(task, 60)
        assert (
            told.value.hint == "find out why its engine does not answer, or if its hosts take that long, raise patience"
        )


@pytest.mark.parametrize(
    ("names", "hint"),
    [
        ({}, "run fewer rollouts at once (max_concurrent), or raise max_hosts or slots_per_host"),
        ({"max_hosts": "nodes"}, "run fewer rollouts at once (max_concurrent), or raise nodes or slots_per_host"),
        ({"max_hosts": "", "slots_per_host": ""}, "run fewer rollouts at once (max_concurrent)"),
    ],
)
async def test_a_hint_names_what_the_backends_user_can_set(pass_time, names, hint):
    async with slot_pool(max_hosts=1, slots_per_host=1, acquire_timeout=30, names=OptionNames(**names)) as (
        pool,
        engine,
    ):
        seat = await pool.acquire("key", engine.make, 9, request())
        task = asyncio.create_task(pool.acquire("key", engine.make, 9, request()))
        assert await eventually(lambda: pool.waiting == 1)
        await pass_time(31)
        with pytest.raises(SlotUnavailableError) as told:
            await asyncio.wait_for(task, 60)
        assert told.value.hint == hint
        await seat.release()


@pytest.fixture
async def pool_of(root):
    """A pool of backends whose hosts are agents on this machine."""
    made = []

    def build(*limits, **options):
        given = iter(limits)

        def member(_kind, name, _options):
            if name != "engine":
                raise ConfigError(f"expected engine, got {name}")
            return Backend(root, {}, limit=next(given))

        members = [{"backend": "engine"} for _ in limits]
        told = PoolBackendOptions(backends=members, **{"health_timeout": 60, "idle_timeout": 10**6, **options})
        made.append(PoolBackend(told, build=member))
        made[-1].lease_dir = root / "leases"
        return made[-1]

    yield build
    for one in made:
        await one.aclose()


async def test_a_queue_moves_when_slots_of_any_member_are_given_back(pool_of, pass_time):
    backend = pool_of(1, 1, max_hosts=1, acquire_timeout=600)
    held = [await backend.open(SandboxSpec()) for _ in range(2)]
    waiting = [asyncio.create_task(backend.open(SandboxSpec())) for _ in range(3)]
    assert await eventually(lambda: backend.stats().waiting == 3)
    for task in waiting:
        await pass_time(500)
        await held.pop(0).aclose()
        held.append(await asyncio.wait_for(task, 60))
    late = asyncio.create_task(backend.open(SandboxSpec()))
    assert await eventually(lambda: backend.stats().waiting == 1)
    await pass_time(601)
    with pytest.raises(SlotUnavailableError, match="within 600 s: 1 waiting"):
        await late
    for sandbox in held:
        await sandbox.aclose()


async def test_the_start_of_a_host_does_not_count_towards_the_acquire_timeout_of_its_waiter(pool_of, pass_time):
    """A waiter that had waited nearly `acquire_timeout` for a slot left almost no time for the start of a host."""
    backend = pool_of(1, max_hosts=1, acquire_timeout=600, start_timeout=600)
    engine = backend.members[0].backend.engine
    first = await backend.open(SandboxSpec())
    waiting = asyncio.create_task(backend.open(SandboxSpec()))
    assert await eventually(lambda: backend.stats().waiting == 1)
    await pass_time(550)
    # Its host ends with it, so the waiter needs another one.
    backend.members[0].fleet.hosts[0].retire()
    engine.gate.clear()
    await first.aclose()
    assert await eventually(lambda: engine.starting == 1)
    await pass_time(550)
    assert not waiting.done()
    engine.gate.set()
    await (await asyncio.wait_for(waiting, 60)).aclose()


async def test_a_backend_with_a_slot_pool_has_a_capacity_after_its_first_sandbox():
    async with backend(limit=3, max_hosts=2, slots_per_host=16) as made:
        assert isinstance(made, BoundedBackend)
        assert made.capacity(SandboxSpec()) is None
        await (await made.open(SandboxSpec())).aclose()
        assert made.capacity(SandboxSpec()) == 6


async def test_a_pool_counts_what_the_options_allow_for_members_whose_capacity_is_unknown(pool_of):
    backend = pool_of(3, 1000, max_hosts=2, slots_per_host=5)
    assert isinstance(backend, BoundedBackend)
    assert backend.capacity(SandboxSpec()) == 20
    await (await backend.open(SandboxSpec())).aclose()
    assert backend.capacity(SandboxSpec()) == 16
