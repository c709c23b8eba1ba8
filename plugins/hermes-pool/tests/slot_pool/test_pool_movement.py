"""Waiting in a queue that moves is no failure; one that stands still is. The clock of the loop is moved by hand."""

from __future__ import annotations

import asyncio

import pytest
from pool_support import Backend, backend, places, request

from hermes_core.contracts.errors import ConfigError
from hermes_core.contracts.sandbox import BoundedBackend, SandboxSpec
from hermes_pool import OptionNames, SlotUnavailableError
from hermes_pool.backend.options import PoolBackendOptions
from hermes_pool.backend.pool_backend import PoolBackend
from hermes_testing.watching import eventually


@pytest.fixture
async def pass_time(monkeypatch):
    """Let seconds pass on the loop's clock, and whoever has waited for that go on."""
    loop = asyncio.get_running_loop()
    now, passed = loop.time, 0.0
    monkeypatch.setattr(loop, "time", lambda: now() + passed)

    async def move(seconds):
        nonlocal passed
        passed += seconds
        for _ in range(5):
            await asyncio.sleep(0)

    return move


async def test_whoever_waits_longer_than_the_time_in_a_queue_that_moves_gets_his_slot(pass_time):
    """All of them were told after a minute that there was no slot, and their rollouts were dropped."""
    async with places(max_hosts=1, slots_per_host=1, acquire_timeout=600, idle_timeout=10**6) as (pool, engine):
        seat = await pool.acquire("key", engine.make, 9, request())
        waiting = [asyncio.create_task(pool.acquire("key", engine.make, 9, request())) for _ in range(4)]
        assert await eventually(lambda: pool.waiting == 4)
        for task in waiting:
            await pass_time(500)
            await seat.release()
            seat = await asyncio.wait_for(task, 60)
        await seat.release()


async def test_whoever_waits_for_another_kind_lives_on_what_moves_anywhere(pass_time):
    async with places(max_hosts=1, slots_per_host=2, acquire_timeout=600, idle_timeout=10**6) as (pool, engine):
        seats = [await pool.acquire("key", engine.make, 9, request()) for _ in range(2)]
        other = asyncio.create_task(pool.acquire("other", engine.make, 9, request()))
        assert await eventually(lambda: pool.waiting == 1)
        for seat in seats:
            await pass_time(500)
            await seat.release()
        await (await asyncio.wait_for(other, 60)).release()


async def test_a_queue_that_stands_still_fails_with_the_numbers(pass_time):
    async with places(max_hosts=1, slots_per_host=2, acquire_timeout=600) as (pool, engine):
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


async def test_the_start_of_a_host_may_take_longer_than_anybody_waits_for_a_slot(pass_time):
    """A slow pull of an image ended the run after 30 seconds, though 120 were allowed for it."""
    async with places(max_hosts=1, acquire_timeout=30, start_timeout=120) as (pool, engine):
        engine.gate.clear()
        task = asyncio.create_task(pool.acquire("key", engine.make, 9, request()))
        assert await eventually(lambda: pool.stats().hosts["starting"] == 1)
        await pass_time(100)
        assert not task.done()
        engine.gate.set()
        await (await asyncio.wait_for(task, 60)).release()


async def test_slow_starts_of_two_kinds_do_not_end_one_another(pass_time):
    """After half of the time that one waits for a slot, each counted as late, and was ended for the other's sake."""
    async with places(max_hosts=2, acquire_timeout=30, start_timeout=120, slots_per_host=1) as (pool, engine):
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


async def test_a_start_that_takes_too_long_is_told_in_the_words_of_the_backend(pass_time):
    names = OptionNames(acquire_timeout="acquire_timeout_s", start_timeout="patience")
    async with places(max_hosts=1, acquire_timeout=30, start_timeout=120, names=names) as (pool, engine):
        engine.gate.clear()
        task = asyncio.create_task(pool.acquire("key", engine.make, 9, request()))
        assert await eventually(lambda: pool.stats().hosts["starting"] == 1)
        await pass_time(121)
        with pytest.raises(SlotUnavailableError, match="was not started within 12") as told:
            await asyncio.wait_for(task, 60)
        assert (
            told.value.hint == "look at why its engine does not answer, or where hosts take that long, raise patience"
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
    async with places(max_hosts=1, slots_per_host=1, acquire_timeout=30, names=OptionNames(**names)) as (pool, engine):
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


async def test_the_queue_over_several_members_moves_as_well(pool_of, pass_time):
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


async def test_whoever_has_waited_for_a_slot_may_wait_for_the_start_of_a_host_besides(pool_of, pass_time):
    """Who had waited nearly all of the time had a moment for a host to start."""
    backend = pool_of(1, max_hosts=1, acquire_timeout=600, start_timeout=600)
    engine = backend.members[0].backend.engine
    first = await backend.open(SandboxSpec())
    waiting = asyncio.create_task(backend.open(SandboxSpec()))
    assert await eventually(lambda: backend.stats().waiting == 1)
    await pass_time(550)
    # Its host ends with it: the next one waits for another.
    backend.members[0].fleet.hosts[0].retire()
    engine.gate.clear()
    await first.aclose()
    assert await eventually(lambda: engine.starting == 1)
    await pass_time(550)
    assert not waiting.done()
    engine.gate.set()
    await (await asyncio.wait_for(waiting, 60)).aclose()


async def test_a_backend_with_places_of_its_own_says_how_many_it_has_when_it_has_been_tried():
    async with backend(limit=3, max_hosts=2, slots_per_host=16) as made:
        assert isinstance(made, BoundedBackend)
        assert made.capacity(SandboxSpec()) is None
        await (await made.open(SandboxSpec())).aclose()
        assert made.capacity(SandboxSpec()) == 6


async def test_a_pool_has_the_places_of_its_members_and_of_those_not_reached_what_the_options_allow(pool_of):
    backend = pool_of(3, 1000, max_hosts=2, slots_per_host=5)
    assert isinstance(backend, BoundedBackend)
    assert backend.capacity(SandboxSpec()) == 20
    await (await backend.open(SandboxSpec())).aclose()
    assert backend.capacity(SandboxSpec()) == 16
