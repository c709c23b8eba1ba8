"""What a cancelled creation has made by then: removed, or left to its lease."""

from __future__ import annotations

import asyncio

import pytest

from hermes_core.contracts.errors import BackendError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_core.specs import BackendSpec
from hermes_sandbox.backend.base import AgentBackend
from hermes_sandbox.backend.hosts.host import SandboxHost
from hermes_sandbox.leases.book import LeaseBook


class Place(SandboxHost):
    """A place that is made, and can or cannot be removed."""

    def __init__(self, *, stays):
        self.stays = stays

    async def start_agent(self):
        raise AssertionError("it was cancelled before")

    async def stop_all(self):
        """End nothing."""

    async def destroy(self):
        if self.stays:
            raise self.stays


class Slow(AgentBackend):
    """Makes a place that is there only when the caller has been cancelled."""

    declaration = BackendSpec(name="slow", summary="Slow.", target="x:Y", isolation=("none",))

    def __init__(self, *, stays):
        super().__init__()
        self.stays = stays
        self.begun, self.go = asyncio.Event(), asyncio.Event()

    async def create(self, spec, sandbox_id):
        del spec, sandbox_id
        self.begun.set()
        await self.go.wait()
        return Place(stays=self.stays)


ERRORS = [BackendError("the engine does not answer"), OSError(5, "the disk"), TimeoutError("no answer"), None]


@pytest.mark.parametrize("stays", ERRORS, ids=repr)
@pytest.mark.parametrize("times", [1, 2])
async def test_a_lease_goes_with_its_place_and_the_cancellation_stays_one(tmp_path, stays, times):
    """The lease went, whether the place did or not: nobody knew of it any more.

    Twice is what a loop does that is closed: it cancels every task, those of the caller and those of the backend.
    """
    backend = Slow(stays=stays)
    backend.lease_dir = tmp_path
    opening = asyncio.ensure_future(backend.open(SandboxSpec()))
    await backend.begun.wait()
    inner = [task for task in asyncio.all_tasks() if "make_sandbox" in repr(task.get_coro())]
    for task in [opening, *inner][:times]:
        task.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
    backend.go.set()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert len(LeaseBook(tmp_path).read()[0]) == (stays is not None)
