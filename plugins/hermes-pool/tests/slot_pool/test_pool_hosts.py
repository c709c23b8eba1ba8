"""Hosts are started for a long queue, ended without use, and quarantined when they are unhealthy."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
from pool_support import backend, request, slot_pool

from hermes_core.contracts.errors import BackendError, SandboxLostError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_pool import SlotUnavailableError
from hermes_sandbox.backends import AgentSlot
from hermes_testing.watching import eventually


def start_acquiring(pool, engine, count, key="key"):
    return [asyncio.create_task(pool.acquire(key, engine.make, 99, request())) for _ in range(count)]


async def release_all(tasks):
    for task in tasks:
        await (await task).release()


async def test_a_long_queue_starts_several_hosts_at_once_up_to_max_hosts():
    """hermes-agent's defect: it started one more container after each full timeout of a waiter."""
    async with slot_pool(max_hosts=3, slots_per_host=2, concurrent_starts=9) as (pool, engine):
        engine.gate.clear()
        tasks = start_acquiring(pool, engine, 9)
        assert await eventually(lambda: engine.starting == 3)
        engine.gate.set()
        assert await eventually(lambda: pool.stats().used == 6)
        assert pool.stats().waiting == 3
        await release_all(tasks)
        assert engine.asked == 3


async def test_no_more_hosts_start_at_a_time_than_concurrent_starts():
    async with slot_pool(max_hosts=6, slots_per_host=1, concurrent_starts=2) as (pool, engine):
        engine.gate.clear()
        tasks = start_acquiring(pool, engine, 6)
        assert await eventually(lambda: engine.starting == 2)
        for _ in range(20):
            await asyncio.sleep(0)
        assert engine.asked == 2
        engine.gate.set()
        await asyncio.gather(*tasks)
        assert engine.asked == 6
        assert engine.most_starting <= 2
        await release_all(tasks)


async def test_no_more_hosts_are_started_than_the_waiters_fill():
    async with slot_pool(max_hosts=9, slots_per_host=4, concurrent_starts=9) as (pool, engine):
        tasks = start_acquiring(pool, engine, 5)
        await asyncio.gather(*tasks)
        assert engine.asked == 2
        await release_all(tasks)


async def test_unused_hosts_end_down_to_min_hosts():
    """hermes-agent's defect: it never scaled down."""
    async with slot_pool(min_hosts=1, max_hosts=3, slots_per_host=1, idle_timeout=600) as (pool, engine):
        seats = await asyncio.gather(*start_acquiring(pool, engine, 3))
        for seat in seats:
            await seat.release()
        assert (len(engine.alive), pool.stats().hosts["ready"]) == (3, 3)
        pool.options.idle_timeout = 0.05
        assert await eventually(lambda: len(engine.alive) == 1)
        assert pool.stats().hosts["ready"] == 1
        await release_all(start_acquiring(pool, engine, 1))


async def test_min_hosts_are_started_after_the_first_trajectory():
    async with slot_pool(min_hosts=3, max_hosts=5, slots_per_host=4) as (pool, engine):
        (seat,) = [await task for task in start_acquiring(pool, engine, 1)]
        assert await eventually(lambda: pool.stats().hosts["ready"] == 3)
        assert pool.stats().free == 11
        await seat.release()


async def test_an_idle_host_of_another_kind_makes_room():
    async with slot_pool(max_hosts=1, slots_per_host=4) as (pool, engine):
        await release_all(start_acquiring(pool, engine, 1, key="one image"))
        await asyncio.wait_for(release_all(start_acquiring(pool, engine, 2, key="another")), 60)
        assert engine.asked == 2
        assert len(engine.alive) == 1


async def test_an_idle_host_makes_room_although_another_is_draining():
    """A waiter of another kind waited for the draining host to end, however long that was in use."""
    async with slot_pool(max_hosts=2, slots_per_host=1, acquire_timeout=60, idle_timeout=600) as (pool, engine):
        used, idle = await asyncio.gather(*start_acquiring(pool, engine, 2))
        used.retire_host()
        await idle.release()
        other = await pool.acquire("other", engine.make, 9, request())
        assert pool.stats().hosts["draining"] == 1
        await other.release()
        await used.release()


async def test_a_full_host_makes_room_for_an_older_waiter_of_another_kind():
    """A full host gives out no new slots while an older waiter needs another kind, and there are `max_hosts` hosts."""
    async with slot_pool(max_hosts=1, slots_per_host=2) as (pool, engine):
        first, second = [await task for task in start_acquiring(pool, engine, 2, key="one image")]
        (other,) = start_acquiring(pool, engine, 1, key="another")
        await asyncio.sleep(0)
        (younger,) = start_acquiring(pool, engine, 1, key="one image")
        await first.release()
        await asyncio.sleep(0)
        assert not younger.done()
        await second.release()
        seat = await asyncio.wait_for(other, 60)
        await seat.release()
        await asyncio.wait_for(release_all([younger]), 60)


async def test_a_host_that_makes_room_gives_second_slots_to_its_trajectories():
    """Both waited until the timeout: the host for its slots to be given back, the trajectory for its second slot."""
    async with slot_pool(max_hosts=1, slots_per_host=1) as (pool, engine):
        seat = await pool.acquire("one image", engine.make, 9, request("rollout-1"))
        (other,) = start_acquiring(pool, engine, 1, key="another")
        assert await eventually(lambda: pool.stats().hosts["draining"] == 1)
        second = await asyncio.wait_for(pool.acquire("one image", engine.make, 9, request("rollout-1")), 60)
        await second.release()
        await seat.release()
        await asyncio.wait_for(release_all([other]), 60)


async def test_an_unhealthy_host_gives_out_no_slot_and_keeps_its_sandboxes():
    """hermes-agent's defect: one failed check dropped its slots, the next success gave them out twice."""
    async with backend(max_hosts=1, slots_per_host=2, health_interval=0.05, quarantine=300) as made:
        sandbox = await made.open(SandboxSpec())
        (host,) = made.engine.hosts
        await sandbox.write_file("mine", "first")
        host.complaint = "the disk is full"
        assert await eventually(lambda: made.pool.stats().hosts["quarantined"] == 1)
        assert made.pool.stats().free == 0
        assert [slot.state for slot in made.pool.slots()] == ["error"]
        waiting = asyncio.create_task(made.open(SandboxSpec()))
        assert await eventually(lambda: made.pool.stats().waiting == 1)
        assert (await sandbox.exec("cat mine")).output == "first"
        host.complaint = None
        made.pool.options.quarantine = 0.05
        other = await asyncio.wait_for(waiting, 60)
        assert made.engine.asked == 1
        assert other.workspace != sandbox.workspace
        await other.write_file("mine", "second")
        await other.aclose()
        assert (await sandbox.exec("cat mine")).output == "first"
        await sandbox.aclose()


async def test_a_check_that_raises_an_unexpected_error_is_a_complaint_and_is_repeated():
    """The task of the check ended with it, and the host was never checked again."""
    async with slot_pool(max_hosts=1, slots_per_host=2, health_interval=0.05, quarantine=0.05) as (pool, engine):
        seat = await pool.acquire("key", engine.make, 9, request())
        (host,) = engine.hosts
        broken, host.examine = host.examine, _raise_key_error
        assert await eventually(lambda: pool.stats().quarantined == 1)
        assert "KeyError: 'ClientStatus'" in pool.slots()[0].metadata["complaint"]
        host.examine = broken
        await seat.release()


async def _raise_key_error():
    raise KeyError("ClientStatus")


async def test_a_host_that_stays_unhealthy_ends_with_its_last_slot_and_is_replaced():
    async with backend(max_hosts=1, slots_per_host=2, health_interval=0.05, quarantine=0.05) as made:
        sandbox = await made.open(SandboxSpec())
        (host,) = made.engine.hosts
        host.complaint = "the disk is full"
        assert await eventually(lambda: made.pool.stats().hosts["draining"] == 1)
        assert (await sandbox.exec("echo works")).output == "works\n"
        waiting = asyncio.create_task(made.open(SandboxSpec()))
        await sandbox.aclose()
        async with await asyncio.wait_for(waiting, 60) as other:
            assert (await other.exec("echo new")).output == "new\n"
        assert host.destroyed
        assert made.engine.asked == 2


async def test_a_host_whose_agent_is_stopped_is_quarantined_until_it_goes_on():
    # The host is not checked before it is stopped: a check that has begun keeps its timeout.
    async with slot_pool(max_hosts=1, slots_per_host=2, health_interval=600, quarantine=600) as (pool, engine):
        seat = await pool.acquire("key", engine.make, 9, request())
        os.kill(engine.hosts[0].process.pid, signal.SIGSTOP)
        pool.options.health_timeout, pool.options.health_interval = 0.3, 0.1
        assert await eventually(lambda: pool.stats().hosts["quarantined"] == 1)
        pool.options.health_timeout = 60
        os.kill(engine.hosts[0].process.pid, signal.SIGCONT)
        pool.options.quarantine = 0.05
        assert await eventually(lambda: pool.stats().hosts["ready"] == 1 or pool.stats().hosts["draining"] == 1)
        assert seat.client.lost is None
        await seat.release()


async def test_a_lost_host_fails_its_own_sandboxes_only_and_is_replaced_for_the_waiters():
    async with backend(max_hosts=2, slots_per_host=2, health_interval=0.1) as made:
        sandboxes = [await made.open(SandboxSpec()) for _ in range(4)]
        waiting = asyncio.create_task(made.open(SandboxSpec()))
        assert await eventually(lambda: made.pool.stats().waiting == 1)
        lost_host = made.engine.hosts[0]
        lost_host.kill()
        # No slot was given back: a host without an agent serves no sandbox, and is replaced.
        async with await asyncio.wait_for(waiting, 60) as other:
            assert (await other.exec("echo new")).output == "new\n"
        assert lost_host.destroyed
        lost = 0
        for sandbox in sandboxes:
            try:
                assert (await sandbox.exec("echo fine")).output == "fine\n"
            except SandboxLostError:
                lost += 1
            await sandbox.aclose()
        assert lost == 2
        assert made.pool.stats().lost == 1
        for path in made.root.glob("*-*"):  # files of a killed agent; a real backend removes them
            await asyncio.create_subprocess_exec("rm", "-rf", str(path))
            assert await eventually(lambda path=path: not path.exists())


async def test_a_slot_that_cannot_be_ended_retires_its_host(monkeypatch):
    """hermes-agent's defect: the result of a reset was ignored."""
    async with backend(max_hosts=1, slots_per_host=4) as made:
        one, other = await made.open(SandboxSpec()), await made.open(SandboxSpec())
        end = AgentSlot.aclose

        async def fail(self):
            await end(self)
            raise BackendError("a slot of a shared agent cannot be closed: processes cannot be killed")

        with monkeypatch.context() as patch:
            patch.setattr(AgentSlot, "aclose", fail)
            with pytest.raises(BackendError, match="cannot be killed"):
                await one.aclose()
        made._open.pop(one.id)
        (made.root / "leases" / f"{one.id}.json").unlink()  # it stays, for `sandboxes gc`
        assert made.pool.stats().free == 0
        waiting = asyncio.create_task(made.open(SandboxSpec()))
        assert await eventually(lambda: made.pool.stats().waiting == 1)
        assert (await other.exec("echo still")).output == "still\n"
        await other.aclose()
        async with await asyncio.wait_for(waiting, 60) as third:
            assert (await third.exec("echo new")).output == "new\n"
        assert [host.destroyed for host in made.engine.hosts] == [True, False]


async def test_a_late_request_to_a_closed_slot_does_not_reach_the_next_one():
    """hermes-agent's defect: a late reset deleted the files of the next owner."""
    async with backend(max_hosts=1, slots_per_host=1) as made:
        old = await made.open(SandboxSpec())
        slot = old.slot
        await old.aclose()
        async with await made.open(SandboxSpec()) as new:
            await new.write_file("mine", "new")
            client = new.slot.client
            assert client is slot.client
            assert new.slot.number != slot.number
            with pytest.raises(SandboxLostError):
                await slot.request({"op": "exec", "command": "rm -rf *"})
            gone = {"slot": slot.number, "state_dir": None, "cwd": None}
            with pytest.raises(SandboxLostError, match="not open"):
                await client.request({"op": "write", "path": "mine", **gone}, b"old")
            with pytest.raises(Exception, match=str(slot.number)):
                await client.request({"op": "reset", **gone})
            await client.request({"op": "close", **gone})
            assert (await new.exec("cat mine; pwd")).output == f"new{new.workspace}\n"
            assert old.workspace != new.workspace


async def test_closing_the_pool_reports_hosts_that_could_not_be_ended():
    async with slot_pool(max_hosts=2, slots_per_host=1, idle_timeout=0) as (pool, engine):
        seat = await pool.acquire("key", engine.make, 9, request())
        engine.hosts[0].stuck = "the engine does not answer"
        await seat.release()
        assert await eventually(lambda: sum(pool.stats().hosts.values()) == 0)
        with pytest.raises(BackendError, match="1 host of pool 'engine' could not be ended: the engine does not"):
            await pool.aclose()


async def test_closing_the_pool_reports_what_an_interrupted_start_has_left():
    async with slot_pool(max_hosts=1) as (pool, engine):
        begun = asyncio.Event()

        async def make():
            host = await engine.make()
            host.stuck = "the engine does not answer"

            async def start_agent():
                begun.set()
                await asyncio.Event().wait()

            host.start_agent = start_agent
            return host

        waiting = asyncio.create_task(pool.acquire("key", make, 9, request()))
        await begun.wait()
        with pytest.raises(BackendError, match=r"1 host of pool 'engine' could not be ended: .*does not answer"):
            await pool.aclose()
        with pytest.raises(BackendError, match="being closed"):
            await waiting


async def test_a_cancelled_close_forgets_no_host():
    """Its hosts were removed from the table, and never ended."""
    async with slot_pool(max_hosts=2, slots_per_host=1, min_hosts=2) as (pool, engine):
        await (await pool.acquire("key", engine.make, 9, request())).release()
        assert await eventually(lambda: pool.stats().hosts["ready"] == 2)
        going, gate = asyncio.Event(), asyncio.Event()
        stop_all = engine.hosts[0].stop_all

        async def slow():
            going.set()
            await gate.wait()
            await stop_all()

        engine.hosts[0].stop_all = slow
        closing = asyncio.create_task(pool.aclose())
        await going.wait()
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert pool.stats().hosts["closing"] >= 1
        gate.set()
        await pool.aclose()
        assert engine.alive == []


async def test_a_pool_can_be_used_again_after_it_was_closed():
    async with slot_pool(max_hosts=1) as (pool, engine):
        await pool.aclose()
        await release_all(start_acquiring(pool, engine, 1))
        await pool.aclose()
        await pool.aclose()
        assert engine.alive == []


async def test_waiting_and_idleness_are_measured_by_the_monotonic_clock(monkeypatch):
    """The wall clock is set back; no deadline, idle time or health check depends on it."""
    async with slot_pool(max_hosts=1, slots_per_host=1, health_interval=0.05, idle_timeout=30) as (pool, engine):
        seat = await pool.acquire("key", engine.make, 9, request())
        monkeypatch.setattr("time.time", lambda: 0.0)
        pool.options.acquire_timeout = 0.1
        with pytest.raises(SlotUnavailableError):
            await pool.acquire("key", engine.make, 9, request())
        await seat.release()
        assert pool.stats().hosts["ready"] == 1
