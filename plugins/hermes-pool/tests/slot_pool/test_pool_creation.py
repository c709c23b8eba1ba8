"""Hosts that cannot be started: which waiters get an error, when, and how often a start is tried."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import random
import weakref

import pytest
from pool_support import backend, request, slot_pool

from hermes_core.contracts.errors import BackendError, NoPythonError, SandboxRefusedError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_pool import HostStartTimeoutError, SlotUnavailableError
from hermes_pool.slot_pool.creation_rate import Backoff, CreationRate
from hermes_testing.watching import eventually


def first(count, error=None):
    """Fail the first `count` starts."""
    return lambda number: (error or BackendError("quota reached")) if number <= count else None


async def test_a_failed_start_is_tried_again_and_fails_no_waiter():
    """A waiter fails at its own deadline, not because a host that was started for another one failed."""
    async with slot_pool(max_hosts=1, slots_per_host=3) as (pool, engine):
        engine.failing = first(2)
        seats = await asyncio.wait_for(
            asyncio.gather(*(pool.acquire("key", engine.make, 9, request()) for _ in range(3))), 60
        )
        assert engine.asked == 3
        assert pool.stats().failed == 2
        for seat in seats:
            await seat.release()


async def test_many_failures_in_a_row_are_an_error_with_the_engine_s_message():
    async with slot_pool(max_hosts=2, max_failures=3, concurrent_starts=1) as (pool, engine):
        engine.failing = first(9, BackendError("engine e: quota of 3 nodes reached", hint="ask for more nodes"))
        tasks = [asyncio.create_task(pool.acquire("key", engine.make, 9, request())) for _ in range(4)]
        results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)
        assert {type(result) for result in results} == {BackendError}
        assert len({id(result) for result in results}) == 4
        for result in results:
            assert "3 starts in a row have failed, the last with: engine e: quota of 3 nodes reached" in str(result)
            assert getattr(result, "hint", None) == "ask for more nodes"
        assert engine.asked == 3


@pytest.mark.parametrize(
    "error",
    [SandboxRefusedError("no such image", hint="pull it"), NoPythonError("no python"), TypeError("a bug")],
    ids=["refused", "no python", "a bug"],
)
async def test_a_final_failure_is_raised_at_once(error):
    async with slot_pool(max_hosts=2) as (pool, engine):
        engine.failing = first(1, error)
        with pytest.raises(type(error), match=str(error).split("\n", maxsplit=1)[0]):
            await asyncio.wait_for(pool.acquire("key", engine.make, 9, request()), 60)
        assert engine.asked == 1


async def test_a_failed_start_of_one_kind_does_not_fail_waiters_of_another():
    async with slot_pool(max_hosts=4) as (pool, engine):

        async def refuse():
            raise SandboxRefusedError("no such image")

        bad = asyncio.create_task(pool.acquire("bad", refuse, 9, request()))
        good = await pool.acquire("good", engine.make, 9, request())
        with pytest.raises(SandboxRefusedError):
            await bad
        await good.release()


async def test_when_scaling_is_refused_the_waiters_wait_for_the_existing_hosts():
    """Nomad refuses to scale during a deployment; the running hosts stay usable."""
    async with slot_pool(max_hosts=4, slots_per_host=1, max_failures=1) as (pool, engine):
        seat = await pool.acquire("key", engine.make, 9, request())
        engine.failing = lambda _: BackendError("job scaling blocked due to active deployment")
        waiting = asyncio.create_task(pool.acquire("key", engine.make, 9, request()))
        assert await eventually(lambda: pool.stats().failed >= 2)
        assert not waiting.done()
        assert pool.stats().last_failure == "job scaling blocked due to active deployment"
        await seat.release()
        await (await asyncio.wait_for(waiting, 60)).release()


async def test_the_acquire_timeout_says_why_no_more_hosts_could_be_started():
    async with slot_pool(max_hosts=4, slots_per_host=1) as (pool, engine):
        seat = await pool.acquire("key", engine.make, 9, request())
        engine.failing = lambda _: BackendError("job blocked", hint="wait for the deployment")
        pool.options.acquire_timeout = 0.3
        with pytest.raises(SlotUnavailableError, match="last failures: engine: job blocked") as caught:
            await pool.acquire("key", engine.make, 9, request())
        assert caught.value.hint == "wait for the deployment"
        await seat.release()


async def hang():
    await asyncio.Event().wait()


async def test_a_start_that_hangs_does_not_delay_other_starts():
    """It counted as one of the concurrent starts without end."""
    async with slot_pool(max_hosts=2, slots_per_host=1, concurrent_starts=1) as (pool, engine):
        stuck = asyncio.create_task(pool.acquire("stuck", hang, 9, request()))
        assert await eventually(lambda: pool.stats().hosts["starting"] == 1)
        other = asyncio.create_task(pool.acquire("key", engine.make, 9, request()))
        await asyncio.sleep(0)
        assert pool.stats().hosts["starting"] == 1
        pool.options.acquire_timeout = 0.2  # half of which has passed already
        await (await asyncio.wait_for(other, 60)).release()
        assert not stuck.done()
        stuck.cancel()
        await asyncio.wait((stuck,))


async def test_a_waiter_for_a_host_that_hangs_gets_another():
    async with slot_pool(max_hosts=2, slots_per_host=1, concurrent_starts=1) as (pool, engine):
        begun = []

        async def make():
            begun.append(len(begun))
            return await (engine.make() if len(begun) > 1 else hang())

        waiting = asyncio.create_task(pool.acquire("key", make, 9, request()))
        assert await eventually(lambda: len(begun) == 1)
        pool.options.acquire_timeout = 0.2
        await (await asyncio.wait_for(waiting, 60)).release()


async def test_a_start_that_hangs_is_ended_after_start_timeout_with_a_typed_error():
    async with slot_pool(max_hosts=1, start_timeout=0.2, max_failures=1) as (pool, engine):
        engine.gate.clear()
        with pytest.raises(HostStartTimeoutError, match=r"a host of pool 'engine' was not started within") as caught:
            await asyncio.wait_for(pool.acquire("key", engine.make, 9, request()), 60)
        assert "start_timeout" in str(caught.value.hint)
        assert caught.value.retryable
        assert await eventually(lambda: sum(pool.stats().hosts.values()) == 0)
        assert engine.starting == 0
        engine.gate.set()
        pool.options.start_timeout = 600
        await (await asyncio.wait_for(pool.acquire("key", engine.make, 9, request()), 60)).release()


async def make_at_last(engine, gate):
    """Make a host when the gate is open, and ignore cancellation until then."""
    while not gate.is_set():
        with contextlib.suppress(asyncio.CancelledError):
            await gate.wait()
    return await engine.make()


async def test_a_cancelled_start_that_does_not_end_holds_no_host_and_is_reported(monkeypatch):
    monkeypatch.setattr("hermes_pool.slot_pool.fleet.REMOVING", 0.1)
    async with slot_pool(max_hosts=1, start_timeout=0.2, max_failures=1) as (pool, engine):
        gate = asyncio.Event()
        stubborn = functools.partial(make_at_last, engine, gate)
        with pytest.raises(HostStartTimeoutError):
            await asyncio.wait_for(pool.acquire("stubborn", stubborn, 9, request()), 60)
        # It no longer counts towards `max_hosts`.
        pool.options.start_timeout = 600
        await (await asyncio.wait_for(pool.acquire("key", engine.make, 9, request()), 60)).release()
        with pytest.raises(BackendError, match="its start was cancelled, and has not ended"):
            await asyncio.wait_for(pool.aclose(), 60)
        gate.set()
        # The host that it makes in the end is removed.
        assert await eventually(lambda: engine.asked == 2 and engine.alive == [])


async def test_closing_does_not_wait_for_a_start_that_does_not_end(monkeypatch):
    monkeypatch.setattr("hermes_pool.slot_pool.fleet.REMOVING", 0.1)
    async with slot_pool(max_hosts=1) as (pool, engine):
        gate = asyncio.Event()
        stubborn = functools.partial(make_at_last, engine, gate)
        waiting = asyncio.create_task(pool.acquire("stubborn", stubborn, 9, request()))
        assert await eventually(lambda: pool.stats().hosts["starting"] == 1)
        with pytest.raises(BackendError, match="1 host of pool 'engine' could not be ended"):
            await asyncio.wait_for(pool.aclose(), 60)
        with pytest.raises(BackendError, match="being closed"):
            await waiting
        gate.set()
        assert await eventually(lambda: engine.asked == 1 and engine.alive == [])


class Key:
    """The key of a kind of hosts; each object is a different key."""


@pytest.mark.parametrize("error", [SandboxRefusedError, BackendError])
async def test_kinds_that_failed_are_forgotten(error):
    """A kind was kept without end for each distinct spec that failed."""
    async with slot_pool(max_hosts=2, max_failures=1) as (pool, _engine):

        async def refuse():
            raise error("no such image")

        async def ask():
            key = Key()
            with pytest.raises(BackendError):
                await pool.acquire(key, refuse, 9, request())
            return weakref.ref(key)

        seen = [await ask() for _ in range(100)]
        gc.collect()
        assert sum(key() is not None for key in seen) <= 20


async def test_kinds_that_never_had_a_host_are_forgotten():
    async with slot_pool(max_hosts=1, slots_per_host=1) as (pool, engine):
        seat = await pool.acquire("key", engine.make, 9, request())

        async def ask():
            key = Key()
            waiting = asyncio.create_task(pool.acquire(key, engine.make, 9, request()))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait((waiting,))
            return weakref.ref(key)

        seen = [await ask() for _ in range(50)]
        await seat.release()
        gc.collect()
        assert sum(key() is not None for key in seen) <= 2


async def test_a_host_whose_agent_does_not_start_is_removed():
    async with backend(max_hosts=1, max_failures=1) as made:
        make = made.engine.make

        async def make_broken(kind):
            host = await make(kind)

            async def fail():
                raise BackendError("the agent did not start")

            host.start_agent = fail
            return host

        made.engine.make = make_broken
        with pytest.raises(BackendError, match="the agent did not start"):
            await made.open(SandboxSpec())
        assert made.engine.alive == []


def test_failed_and_slow_starts_halve_the_concurrent_starts_and_good_ones_raise_them_again():
    rate = CreationRate(8, load=lambda: 0.0)
    assert rate.allowed == 8
    for _ in range(5):
        rate.note_failure()
    assert rate.allowed == 1
    for _ in range(3):
        rate.note_success(1.0)
    assert rate.allowed == 4
    rate.note_success(9.0)
    assert rate.allowed == 2
    for _ in range(20):
        rate.note_success(1.0)
    assert rate.allowed == 8


def test_starts_that_are_always_slow_do_not_lower_the_limit():
    rate = CreationRate(4, load=lambda: 0.0)
    for _ in range(9):
        rate.note_success(60.0)
    assert rate.allowed == 4


def test_a_loaded_machine_starts_half_as_many():
    loads = [9.0, 0.1]
    rate = CreationRate(4, load=lambda: loads[0])
    assert rate.allowed == 2
    loads.pop(0)
    assert rate.allowed == 4


def test_pauses_double_with_jitter_up_to_a_limit():
    backoff = Backoff(random.Random(1))
    pauses = []
    for _ in range(12):
        backoff.begin_pause(100.0)
        pauses.append(backoff.until - 100.0)
    bounds = [min(30.0, 0.25 * 2**n) for n in range(12)]
    assert all(bound / 2 <= pause <= bound for pause, bound in zip(pauses, bounds, strict=True))
    assert len({pause / bound for pause, bound in zip(pauses, bounds, strict=True)}) > 6
    backoff.reset()
    assert (backoff.failures, backoff.until) == (0, 0.0)
