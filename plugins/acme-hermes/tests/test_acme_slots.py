"""Acme's backend, written with public names only, shares its places, and is a member of a pool like any other."""

from __future__ import annotations

import asyncio
from types import MappingProxyType

import pytest

from hermes_core.contracts.errors import SandboxLostError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_sandbox import LeaseBook
from hermes_testing import BackendSuite, isolated_registry
from hermes_testing.watching import eventually

ACME = {"backend": "acme_niced", "options": {"slots": 2}}


@pytest.mark.slow
class TestNicedSlots(BackendSuite):
    plugin, component = "acme_hermes.plugin", "acme_niced"
    options = MappingProxyType({"slots": 16})


@pytest.fixture
async def pool(tmp_path):
    """Two members of Acme's, each with one host of two slots; no lease is left."""
    options = {"backends": [ACME, ACME], "max_hosts": 1, "health_interval": 0.1}
    backend = isolated_registry("hermes_pool.plugin", "acme_hermes.plugin").create("backend", "pool", options)
    backend.lease_dir = tmp_path / "leases"
    yield backend
    await backend.aclose()
    assert LeaseBook(tmp_path / "leases").read() == ([], [])


async def test_more_sandboxes_than_slots_wait_in_one_queue_over_two_members(pool):
    async def run_trajectory(number):
        async with await pool.open(SandboxSpec()) as sandbox:
            await sandbox.write_file("mine", str(number))
            return (await sandbox.exec("cat mine")).output, sandbox.provenance["member"]

    found = await asyncio.wait_for(asyncio.gather(*(run_trajectory(number) for number in range(12))), 60)
    assert [output for output, _ in found] == [str(number) for number in range(12)]
    assert {member for _, member in found} == {"acme_niced#1", "acme_niced#2"}
    assert pool.capacity(SandboxSpec()) == 4


async def test_who_waits_gets_the_slot_of_a_place_that_is_started_for_a_lost_one(pool):
    sandboxes = [await pool.open(SandboxSpec()) for _ in range(4)]
    waiting = asyncio.create_task(pool.open(SandboxSpec()))
    assert await eventually(lambda: pool.stats().waiting == 1)
    with pytest.raises(SandboxLostError):
        await sandboxes[0].exec("kill -9 $PPID; sleep 60")
    got = await asyncio.wait_for(waiting, 60)
    assert (await got.exec("echo fine")).output == "fine\n"
    for sandbox in (got, *sandboxes):
        await sandbox.aclose()
