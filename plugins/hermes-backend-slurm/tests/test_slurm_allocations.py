"""An existing allocation is used and not released; a new one is requested and released."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace

import pytest
from slurm_backends import backend_on, wait_for_a_reason

from hermes_backend_slurm.backend import SlurmBackend
from hermes_backend_slurm.options import SlurmOptions
from hermes_core.contracts.errors import BackendError, SandboxRefusedError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_pool import PoolOptions, SlotPool
from hermes_sandbox.remote import MachineBackend
from hermes_testing.watching import eventually

pytestmark = pytest.mark.component("slurm")


async def wait_until_gone(cluster):
    return await eventually(lambda: cluster.jobs() == [] and cluster.steps() == [])


async def test_a_new_allocation_is_requested_on_first_use_and_released(slurm, tmp_path):
    backend = backend_on(slurm, tmp_path, nodes=2, slots_per_agent=2)
    assert slurm.jobs() == []
    boxes = await asyncio.gather(*(backend.open(SandboxSpec()) for _ in range(4)))
    assert len(slurm.jobs()) == 1
    # Each node has one agent, which is one step, with two of the four sandboxes.
    assert Counter(box.provenance["node"] for box in boxes) == {"n1": 2, "n2": 2}
    assert len(slurm.steps()) == 2
    answers = await asyncio.gather(*(box.exec(f"echo {n} > f; cat f") for n, box in enumerate(boxes)))
    assert [answer.output for answer in answers] == ["0\n", "1\n", "2\n", "3\n"]
    await backend.aclose()
    assert await wait_until_gone(slurm)
    assert list((tmp_path / "root").iterdir()) == []
    assert list((tmp_path / "leases").iterdir()) == []


async def test_an_existing_allocation_is_used_and_not_released(slurm, tmp_path):
    with slurm.allocation(2) as job:
        backend = backend_on(slurm, tmp_path, job_id=job)
        async with await backend.open(SandboxSpec()) as box:
            assert box.provenance["job_id"] == job
            assert slurm.jobs() == [job]
        await backend.aclose()
        assert await eventually(lambda: slurm.steps() == [])
        assert slurm.jobs() == [job]
    assert await wait_until_gone(slurm)


async def test_a_member_of_backend_pool_keeps_the_pool_that_it_was_given(monkeypatch):
    """The member replaced it by its own pool, so that the bounds of backend `pool` had no effect."""
    backend, given = SlurmBackend(SlurmOptions()), SlotPool(PoolOptions(), name="the pool's")
    backend.host_pool = given
    monkeypatch.setattr(backend, "allocation", _two_nodes)
    monkeypatch.setattr(MachineBackend, "open", _open_nothing)
    await backend.open(SandboxSpec())
    assert backend.host_pool is given


async def _two_nodes():
    return SimpleNamespace(nodes=("n1", "n2"))


async def _open_nothing(_backend, _spec):
    return None


async def test_with_one_slot_per_agent_each_sandbox_is_a_step_and_nodes_are_used_evenly(slurm, tmp_path):
    with slurm.allocation(2) as job:
        backend = backend_on(slurm, tmp_path, job_id=job, slots_per_agent=1)
        boxes = [await backend.open(SandboxSpec()) for _ in range(4)]
        assert Counter(box.provenance["node"] for box in boxes) == {"n1": 2, "n2": 2}
        assert len(slurm.steps()) == 4
        await backend.aclose()
        assert await eventually(lambda: slurm.steps() == [])


def test_the_environment_names_an_allocation_and_null_requests_another(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert SlurmOptions.model_validate({}).job_id == "7"
    assert SlurmOptions.model_validate({"job_id": None}).job_id is None


def test_a_configuration_is_the_same_file_wherever_the_commands_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SLURM_CONF", "etc/slurm.conf")
    assert SlurmOptions.model_validate({}).conf == tmp_path / "etc/slurm.conf"
    assert SlurmOptions.model_validate({"conf": "mine.conf"}).conf == tmp_path / "mine.conf"


async def test_the_requested_properties_reach_slurm(slurm, tmp_path):
    wishes = {"partition": "short", "time": "1", "cpus_per_node": 2, "memory_mb_per_node": 64}
    backend = backend_on(slurm, tmp_path, nodes=2, extra_args=("--comment=ours",), **wishes)
    allocation = await backend.allocation()
    shown = slurm.call("squeue", "-h", "-j", allocation.job_id, "-o", "%P|%l|%C|%m|%k|%D").stdout.strip()
    assert shown == "short|1:00|4|64M|ours|2"
    await backend.aclose()
    assert await wait_until_gone(slurm)


async def test_a_job_that_waits_too_long_is_withdrawn_with_slurm_s_reason(slurm, tmp_path, monkeypatch):
    wait_for_a_reason(slurm, monkeypatch)
    with slurm.allocation(2, "--partition=queue"):
        backend = backend_on(slurm, tmp_path, queue_timeout=0.4, partition="queue", nodes=2)
        reason = r"within 0\.4 s: job \d+ is PENDING \((Resources|Priority)\)"
        with pytest.raises(BackendError, match=reason) as late:
            await backend.check(SandboxSpec())
        assert "queue_timeout" in str(late.value)
        assert await eventually(lambda: len(slurm.jobs()) == 1)
        await backend.aclose()
    assert await wait_until_gone(slurm)


async def test_waiters_share_one_job_and_the_last_to_be_cancelled_withdraws_it(slurm, tmp_path):
    with slurm.allocation(2, "--partition=queue"):
        backend = backend_on(slurm, tmp_path, partition="queue", nodes=2)
        waiting = [asyncio.ensure_future(backend.open(SandboxSpec())) for _ in range(3)]
        assert await eventually(lambda: len(slurm.jobs()) == 2)
        for each in waiting[:2]:
            each.cancel()
        await asyncio.wait(waiting[:2])
        assert len(slurm.jobs()) == 2
        waiting[2].cancel()
        await asyncio.wait(waiting)
        assert all(each.cancelled() for each in waiting)
        assert await eventually(lambda: len(slurm.jobs()) == 1)
        await backend.aclose()
    assert await wait_until_gone(slurm)


async def test_a_cancellation_while_salloc_starts_leaves_no_job(slurm, tmp_path):
    """salloc was killed, and the job that it had submitted by then stayed in the queue."""
    with slurm.allocation(2, "--partition=queue"):
        backend = backend_on(slurm, tmp_path, partition="queue", nodes=2)
        waiting = asyncio.ensure_future(backend.allocation())
        for _ in range(3):
            await asyncio.sleep(0)
        # The event loop is blocked meanwhile, so for the loop the program is still starting.
        for _ in range(1000):
            if len(slurm.jobs()) == 2:
                break
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await eventually(lambda: len(slurm.jobs()) == 1)
        await backend.aclose()
    assert await wait_until_gone(slurm)


async def test_closing_while_the_job_waits_withdraws_it(slurm, tmp_path):
    with slurm.allocation(2, "--partition=queue"):
        backend = backend_on(slurm, tmp_path, partition="queue", nodes=2)
        waiting = asyncio.ensure_future(backend.open(SandboxSpec()))
        assert await eventually(lambda: len(slurm.jobs()) == 2)
        await backend.aclose()
        assert await eventually(lambda: len(slurm.jobs()) == 1)
        with pytest.raises(BackendError, match="closed while"):
            await waiting
    assert await wait_until_gone(slurm)


async def test_an_allocation_that_has_ended_is_refused(slurm, tmp_path):
    with slurm.allocation(1) as job:
        pass
    with pytest.raises(SandboxRefusedError, match=f"allocation {job} cannot be used"):
        await backend_on(slurm, tmp_path, job_id=job).check(SandboxSpec())
    with pytest.raises(SandboxRefusedError, match="allocation 999999 cannot be used"):
        await backend_on(slurm, tmp_path, job_id="999999").check(SandboxSpec())
