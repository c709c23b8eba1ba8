"""The order in which waiters get slots, and the errors of those that get none."""

from __future__ import annotations

import asyncio

import pytest
from pool_support import backend, request, slot_pool

from hermes_core.contracts.errors import BackendError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_pool import SlotUnavailable, SlotUnavailableError
from hermes_sandbox.backends import AgentSlot
from hermes_testing.watching import eventually


async def run_rollout(made, number, **fields):
    """Run a rollout: some commands, with pauses in which the slot is held."""
    async with await made.open(SandboxSpec(**fields)) as sandbox:
        await sandbox.write_file("mine", str(number))
        await asyncio.sleep(0)
        return (await sandbox.exec("cat mine")).output


async def test_four_trajectories_finish_on_two_slots():
    """hermes-agent's defect: none finished, because waiters kept the others from being served."""
    async with backend(max_hosts=1, slots_per_host=2) as made:
        answers = await asyncio.wait_for(asyncio.gather(*(run_rollout(made, n) for n in range(4))), 60)
    assert answers == ["0", "1", "2", "3"]


@pytest.mark.slow
async def test_sixty_four_trajectories_finish_on_two_hosts_and_no_slot_is_idle_while_one_waits():
    """hermes-agent's defects: four trajectories on two slots never finished, and a slow call held up the others."""
    async with backend(max_hosts=2, slots_per_host=8) as made:
        idle = []

        async def watch():
            while True:
                stats = made.pool.stats()
                idle.append(bool(stats.waiting and stats.free))
                await asyncio.sleep(0)

        watching = asyncio.create_task(watch())
        answers = await asyncio.wait_for(asyncio.gather(*(run_rollout(made, n) for n in range(64))), 100)
        watching.cancel()
        assert answers == [str(n) for n in range(64)]
        assert len(made.engine.hosts) == 2
        assert len(idle) > 100
        assert not any(idle)


async def test_slots_are_given_out_in_the_order_of_the_requests():
    async with slot_pool(max_hosts=1, slots_per_host=1) as (pool, engine):
        order = []

        async def use(number):
            seat = await pool.acquire("key", engine.make, 9, request())
            order.append(number)
            await asyncio.sleep(0)
            await seat.release()

        tasks = []
        for number in range(20):
            tasks.append(asyncio.create_task(use(number)))
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)
    assert order == list(range(20))


async def test_an_acquire_timeout_has_the_statistics_and_a_hint():
    """hermes-agent's defect: `acquire` never raised its documented error."""
    async with slot_pool(max_hosts=1, slots_per_host=2) as (pool, engine):
        seats = [await pool.acquire("key", engine.make, 9, request()) for _ in range(2)]
        pool.options.acquire_timeout = 0.2
        with pytest.raises(SlotUnavailableError) as caught:
            await pool.acquire("key", engine.make, 9, request())
        assert caught.value.message == (
            "no slot of pool 'engine' was given out or back within 0.2 s: "
            "1 waiting, 0 free and 2 in use of 2 slots, 1 host of at most 1"
        )
        assert "max_hosts" in str(caught.value.hint)
        assert caught.value.retryable
        assert caught.value.stats.used == 2
        assert pool.stats().waiting == 0
        await seats[0].release()
        await (await pool.acquire("key", engine.make, 9, request())).release()
    assert SlotUnavailable is SlotUnavailableError
    assert issubclass(SlotUnavailableError, BackendError)


async def test_the_queue_is_bounded():
    async with slot_pool(max_hosts=1, slots_per_host=1, max_waiting=2) as (pool, engine):
        seat = await pool.acquire("key", engine.make, 9, request())
        waiting = [asyncio.create_task(pool.acquire("key", engine.make, 9, request())) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(SlotUnavailableError, match="queue of pool 'engine' is full: 2 waiting"):
            await pool.acquire("key", engine.make, 9, request())
        await seat.release()
        for task in waiting:
            await (await task).release()


async def test_a_cancelled_waiter_keeps_neither_a_slot_nor_a_queue_position():
    """hermes-agent's defect: a call of a released trajectory acquired a slot that was never released."""
    async with slot_pool(max_hosts=1, slots_per_host=1) as (pool, engine):
        seat = await pool.acquire("key", engine.make, 9, request())
        waiting = [asyncio.create_task(pool.acquire("key", engine.make, 9, request())) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.wait((waiting[0],))
        assert pool.stats().waiting == 2
        # Cancelled after the slot was granted, and before the waiter ran again.
        await seat.release()
        waiting[1].cancel()
        await asyncio.wait((waiting[1],))
        last = await asyncio.wait_for(waiting[2], 60)
        assert (pool.stats().used, pool.stats().waiting) == (1, 0)
        await last.release()
        assert (pool.stats().used, pool.stats().free) == (0, 1)


async def test_opening_sandboxes_can_be_cancelled_at_any_step():
    async with backend(max_hosts=1, slots_per_host=1) as made:
        async with await made.open(SandboxSpec()):
            for steps in (0, 1, 2, 3, 5, 8, 20):
                opening = asyncio.create_task(made.open(SandboxSpec()))
                for _ in range(steps):
                    await asyncio.sleep(0)
                opening.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await opening
            assert made.pool.stats().waiting == 0
        assert await eventually(lambda: made.pool.stats().used == 0)
        assert await run_rollout(made, 7) == "7"


async def test_waiters_do_not_keep_an_open_sandbox_from_being_renewed():
    """With more waiters than sandboxes may be starting at a time, renewal waited for a start slot."""
    async with backend(max_hosts=1, slots_per_host=1) as made:
        sandbox = await made.open(SandboxSpec())
        waiting = [asyncio.create_task(run_rollout(made, n)) for n in range(made.concurrent_starts + 4)]
        assert await eventually(lambda: made.pool.stats().waiting == len(waiting))
        await asyncio.wait_for(sandbox.renew(), 60)
        await sandbox.aclose()
        assert await asyncio.wait_for(asyncio.gather(*waiting), 60) == [str(n) for n in range(len(waiting))]


async def test_a_trajectory_that_has_a_slot_does_not_queue_for_its_second():
    """Otherwise all trajectories could hold one and wait for another, as with verifiers that use a separate sandbox."""
    async with backend(max_hosts=1, slots_per_host=2) as made:

        async def verify_in_sandbox(number):
            fields = {"rollout_id": f"rollout-{number}"}
            async with await made.open(SandboxSpec(**fields)) as sandbox:
                await sandbox.exec("true")
                return await run_rollout(made, number, **fields)

        answers = await asyncio.wait_for(asyncio.gather(*(verify_in_sandbox(n) for n in range(8))), 60)
        assert answers == [str(n) for n in range(8)]
        assert made.pool.stats().used == 0


async def test_the_backend_s_number_of_slots_applies_if_it_is_lower():
    async with slot_pool(max_hosts=1, slots_per_host=5) as (pool, engine):
        seats = [await pool.acquire("key", engine.make, 2, request()) for _ in range(2)]
        pool.options.acquire_timeout = 0.1
        with pytest.raises(SlotUnavailableError):
            await pool.acquire("key", engine.make, 2, request())
        for seat in seats:
            await seat.release()


async def test_releasing_twice_gives_back_once():
    async with slot_pool(max_hosts=1, slots_per_host=2) as (pool, engine):
        one, other = [await pool.acquire("key", engine.make, 9, request()) for _ in range(2)]
        await one.release()
        await one.release()
        assert (pool.stats().used, pool.stats().free) == (1, 1)
        await other.release()


async def test_closing_the_pool_refuses_its_waiters():
    """hermes-agent's defect: `close` hung."""
    async with slot_pool(max_hosts=1, slots_per_host=1) as (pool, engine):
        await pool.acquire("key", engine.make, 9, request())
        waiting = asyncio.create_task(pool.acquire("key", engine.make, 9, request()))
        await asyncio.sleep(0)
        await asyncio.wait_for(pool.aclose(), 60)
        with pytest.raises(BackendError, match="being closed"):
            await waiting
        assert engine.alive == []


async def test_closing_the_pool_ends_starts_in_progress():
    async with slot_pool(max_hosts=2, slots_per_host=1) as (pool, engine):
        engine.gate.clear()
        waiting = asyncio.create_task(pool.acquire("key", engine.make, 9, request()))
        assert await eventually(lambda: engine.starting == 1)
        await asyncio.wait_for(pool.aclose(), 60)
        with pytest.raises(BackendError, match="being closed"):
            await waiting
        assert engine.starting == 0


async def test_closing_a_backend_refuses_its_waiters_before_it_closes_its_sandboxes(monkeypatch):
    """They got the slots that closing gave back, and opened sandboxes in a closed backend."""
    async with backend(max_hosts=1, slots_per_host=1) as made:
        await made.open(SandboxSpec())
        waiting = asyncio.create_task(made.open(SandboxSpec()))
        assert await eventually(lambda: made.pool.stats().waiting == 1)
        end, gate = AgentSlot.aclose, asyncio.Event()

        async def slow(self):
            await gate.wait()
            await end(self)

        monkeypatch.setattr(AgentSlot, "aclose", slow)
        closing = asyncio.create_task(made.aclose())
        with pytest.raises(BackendError, match="being closed"):
            await asyncio.wait_for(waiting, 60)
        with pytest.raises(BackendError, match="being closed"):
            await made.open(SandboxSpec())
        assert not closing.done()
        gate.set()
        await closing
        assert (made.engine.asked, made.engine.alive) == (1, [])
        await (await made.open(SandboxSpec())).aclose()
