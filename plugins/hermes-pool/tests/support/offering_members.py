"""Members of a pool without processes, which fail, refuse or hang as a test says, and a queue over them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from hermes_core.contracts.errors import BackendError, SandboxRefusedError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_pool import PoolOptions
from hermes_pool.backend.members import Member
from hermes_pool.backend.offering import Offering
from hermes_pool.slot_pool.pool import MemberHostPool
from hermes_pool.slot_pool.slot_queue import SlotQueue
from hermes_sandbox.backends import SandboxHost, SlotOffer


class Request:
    """A request for a slot that requires nothing of the agent."""

    spec = SandboxSpec()

    async def greet(self, client, *, marker):
        return client


class Client:
    """An agent that answers."""

    lost = None

    async def request(self, _fields):
        return {}, b""

    async def aclose(self):
        return None


class Host(SandboxHost):
    """A host without processes."""

    async def start_agent(self) -> Any:
        return Client()

    async def stop_all(self):
        return None

    async def destroy(self):
        return None


@dataclass
class Answer:
    """The host with an offer that a member returns from `create`."""

    offer: SlotOffer


@dataclass
class Backend:
    """A member whose `create` and starts of hosts do what the test says."""

    creating: Any = None
    starting: Any = None
    asked: list[float] = field(default_factory=list)

    async def prepare(self, spec):
        return spec

    async def create(self, _spec, _sandbox_id):
        self.asked.append(asyncio.get_running_loop().time())
        if self.creating is not None:
            await self.creating()
        return Answer(SlotOffer("key", self.make_host, 4))

    async def make_host(self):
        if self.starting is not None:
            await self.starting()
        return Host()


def failing(message, *, after=0.0, error=BackendError):
    async def fail():
        await asyncio.sleep(after)
        raise error(message)

    return fail


def refusing(message, *, error=SandboxRefusedError):
    return failing(message, error=error)


def hanging(seconds=10**6):
    async def hang():
        await asyncio.sleep(seconds)

    return hang


async def cancel_itself():
    raise asyncio.CancelledError


class Members:
    """A queue over some members."""

    def __init__(self, *backends, **options):
        self.backends = backends
        names = [f"m{number}" for number, _ in enumerate(backends, start=1)]
        self.queue = SlotQueue(PoolOptions(**options), name="pool", members=names, load=lambda: 0.0)
        self.members = [
            Member("fake", backend, fleet) for backend, fleet in zip(backends, self.queue.fleets, strict=True)
        ]

    async def take(self):
        """Wait for a slot and give it back; return the name of the member that gave it."""
        member, seat = await self.acquire()
        await seat.release()
        return member

    async def acquire(self):
        """Wait for a slot; return the name of the member that gave it, and the slot."""
        waiter = self.queue.enter(Request())
        offering = asyncio.create_task(Offering(self.queue, self.members, waiter, Request.spec, "s", failures={}).run())
        try:
            seat = await self.queue.take(waiter)
        finally:
            offering.cancel()
        return self.members[waiter.kind.member].label, seat

    async def acquire_of(self, number):
        """Wait for a slot of one member, as its own check does."""
        own = MemberHostPool(self.queue, self.queue.fleets[number])
        return await own.acquire("key", self.backends[number].make_host, 4, Request())
