"""Work that is finished once it has begun, whatever happens to who waits for it."""

from __future__ import annotations

import asyncio

import pytest

from hermes_core.cancellation import run_uncancelled


async def test_work_ends_before_the_cancellation_is_passed_on():
    begun, gate, done = asyncio.Event(), asyncio.Event(), []

    async def work():
        begun.set()
        await gate.wait()
        done.append(True)

    waiting = asyncio.ensure_future(run_uncancelled(work()))
    await begun.wait()
    waiting.cancel()
    waiting.cancel()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert done == [True]


async def test_the_error_of_work_that_was_not_to_be_waited_for_is_the_cancellations_cause():
    begun, gate = asyncio.Event(), asyncio.Event()

    async def work():
        begun.set()
        await gate.wait()
        raise ValueError("no")

    waiting = asyncio.ensure_future(run_uncancelled(work()))
    await begun.wait()
    waiting.cancel()
    gate.set()
    with pytest.raises(asyncio.CancelledError) as caught:
        await waiting
    assert isinstance(caught.value.__cause__, ValueError)


async def test_results_and_errors_come_through():
    async def fail():
        raise KeyError("k")

    assert await run_uncancelled(asyncio.sleep(0, 5)) == 5
    with pytest.raises(KeyError):
        await run_uncancelled(fail())


async def test_who_waits_can_be_closed():
    """As at the end of a loop that a second Ctrl-C ended: a coroutine that ignores it raises a RuntimeError."""
    work = asyncio.ensure_future(asyncio.Event().wait())
    waiting = run_uncancelled(work)
    waiting.send(None)
    waiting.close()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work


def test_work_of_another_loop_is_an_error_and_not_waited_for():
    foreign = asyncio.new_event_loop()
    future = foreign.create_future()

    async def wait():
        with pytest.raises((RuntimeError, ValueError)):
            await run_uncancelled(future)

    asyncio.run(wait())
    foreign.close()
