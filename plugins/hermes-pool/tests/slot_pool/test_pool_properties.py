"""Properties of the queue under random arrivals, releases, cancellations, failing and lost hosts."""

from __future__ import annotations

import asyncio
import random

import pytest
from virtual_time import run_in_virtual_time

from hermes_core.contracts.errors import BackendError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_pool import PoolOptions
from hermes_pool.slot_pool.slot_queue import SlotQueue
from hermes_sandbox.backends import SandboxHost, SlotOffer

LIMITS = {"one image": 3, "another": 2}


class Client:
    """An agent that answers until it is lost."""

    lost = None

    async def request(self, _fields):
        return {}, b""

    async def aclose(self):
        return None


class Host(SandboxHost):
    """A host without processes, which is unhealthy while the test says so."""

    complaint = None

    def __init__(self, world):
        self.world, self.client = world, Client()
        world.hosts.append(self)

    async def start_agent(self):
        return self.client

    async def examine(self):
        if self.complaint:
            raise BackendError(self.complaint)

    async def stop_all(self):
        return None

    async def destroy(self):
        await asyncio.sleep(self.world.chance.random())
        self.world.hosts.remove(self)


class Request:
    """A request for a slot that requires nothing of the agent."""

    def __init__(self, rollout_id):
        self.spec = SandboxSpec(rollout_id=rollout_id)

    async def greet(self, client, *, marker):
        return client


class World:
    """Several backends that fail at random, the callers that want slots of them, and a record of the waiters."""

    def __init__(self, seed, *, is_failing):
        self.chance = random.Random(seed)
        self.is_failing = is_failing
        self.hosts = []
        self.down = set()
        self.waiting = {}
        self.served, self.refused, self.turn = 0, [], 0
        members = self.chance.randint(1, 3)
        options = PoolOptions(
            max_hosts=self.chance.randint(1, 3),
            slots_per_host=3,
            acquire_timeout=60,
            start_timeout=100,
            idle_timeout=self.chance.choice([0, 5, 100]),
            quarantine=20,
        )
        names = [f"m{number}" for number in range(members)]
        self.queue = SlotQueue(options, name="pool", members=names, load=lambda: 0.0, chance=self.chance)

    def offer(self, member, key):
        async def make_host():
            await asyncio.sleep(self.chance.choice([0, 1, 5]))
            if self.is_failing and (member in self.down or self.chance.random() < 0.1):
                raise BackendError(f"member {member} is down")
            if self.is_failing and self.chance.random() < 0.05:
                await asyncio.sleep(10**4)
            return Host(self)

        return self.queue.fleets[member], SlotOffer(key, make_host, LIMITS[key])

    async def use(self, turn, key, members, rollout_id, *, again):
        """Wait for a slot of some members, some of which make their offers late, and hold it for a while."""
        waiter = self.queue.enter(Request(rollout_id))
        late = [member for member in members[1:] if self.chance.random() < 0.2]
        at_once = [member for member in members if member not in late]
        if not again:
            self.waiting[turn] = (key, set(at_once))
        self.queue.offer(waiter, dict(self.offer(member, key) for member in at_once))
        later = [
            asyncio.get_running_loop().call_later(1, self.offer_late, waiter, turn, key, member) for member in late
        ]
        try:
            seat = await self.queue.take(waiter)
            if not again:
                self.require_first(turn, key, waiter.kind.member)
        finally:
            self.waiting.pop(turn, None)
            for handle in later:
                handle.cancel()
        self.served += 1
        try:
            await asyncio.sleep(self.chance.expovariate(0.2))
            if rollout_id is not None and not again:
                await self.use(-1, key, members, rollout_id, again=True)
        finally:
            await seat.release()

    def offer_late(self, waiter, turn, key, member):
        if turn in self.waiting:
            self.waiting[turn][1].add(member)
        self.queue.offer(waiter, dict([self.offer(member, key)]))

    def require_first(self, turn, key, member):
        """Require that no earlier waiter could have got the slot."""
        older = [
            other for other, (wants, may) in self.waiting.items() if other < turn and wants == key and member in may
        ]
        assert older == []

    async def arrive(self, turn):
        await asyncio.sleep(self.chance.uniform(0, 60))
        members = self.chance.sample(range(len(self.queue.fleets)), self.chance.randint(1, len(self.queue.fleets)))
        rollout_id = f"r{turn}" if self.chance.random() < 0.3 else None
        self.turn += 1
        using = asyncio.create_task(
            self.use(self.turn, self.chance.choice([*LIMITS]), members, rollout_id, again=False)
        )
        if self.chance.random() < 0.15:
            await asyncio.sleep(self.chance.uniform(0, 10))
            using.cancel()
        try:
            await using
        except asyncio.CancelledError:
            pass
        except BackendError as error:
            self.refused.append(error)

    async def harm(self):
        """Lose hosts, make others unhealthy, and take a whole member down for a while."""
        while True:
            await asyncio.sleep(self.chance.uniform(1, 10))
            for host in self.hosts:
                if self.chance.random() < 0.1:
                    host.client.lost = "its agent is gone"
                host.complaint = "the disk is full" if self.chance.random() < 0.1 else None
            self.down = {self.chance.randrange(len(self.queue.fleets))} if self.chance.random() < 0.3 else set()

    async def watch(self):
        while True:
            self.require_bounds()
            await asyncio.sleep(0.2)

    def require_bounds(self):
        for fleet in self.queue.fleets:
            assert len(fleet.hosts) <= self.queue.options.max_hosts
            for host in fleet.hosts:
                # Slots above the limit are second slots of trajectories.
                rollouts = [seat.rollout_id for seat in host.seats.values() if seat.rollout_id is not None]
                assert len(host.seats) <= 2 * host.limit
                assert rollouts or len(host.seats) <= host.limit
            for kind in fleet.kinds.values():
                # No waiter waits while a slot is free that could serve it.
                assert kind.first is None or kind.best(further=kind.first.has_slot) is None


async def run_world(seed, *, is_failing):
    world = World(seed, is_failing=is_failing)
    others = [asyncio.create_task(world.watch())]
    if is_failing:
        others.append(asyncio.create_task(world.harm()))
    await asyncio.gather(*(world.arrive(turn) for turn in range(60)))
    for task in others:
        task.cancel()
    for ended in await asyncio.gather(*others, return_exceptions=True):
        assert isinstance(ended, asyncio.CancelledError), ended
    queue = world.queue
    assert (queue.waiting, queue.stats().used, queue._lines) == (0, 0, {})
    assert [fleet.holders for fleet in queue.fleets] == [{}] * len(queue.fleets)
    if not is_failing:
        assert world.refused == []
        assert world.served > 40
    await queue.aclose()
    assert world.hosts == []


@pytest.mark.parametrize("is_failing", [False, True], ids=["all is well", "much fails"])
def test_in_any_order_of_events_no_waiter_is_passed_over_or_forgotten_and_no_bound_is_exceeded(is_failing):
    for seed in range(15):
        run_in_virtual_time(run_world(seed, is_failing=is_failing))
