"""Allocations, nodes and callers that end during use cause no hang and leave nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess

import pytest
from slurm_backends import backend_on, caller_of

from hermes_backend_slurm.backend import SlurmBackend
from hermes_backend_slurm.options import SlurmOptions
from hermes_core.contracts.errors import BackendError, SandboxLostError
from hermes_core.contracts.sandbox import Recoverable, SandboxSpec
from hermes_sandbox import LeaseBook, SandboxReclaimer
from hermes_testing.registries import isolated_registry
from hermes_testing.watching import eventually, processes_here, sleep_token

pytestmark = pytest.mark.component("slurm")


async def begin_command(sandbox, token):
    call = asyncio.create_task(sandbox.exec(f"sleep {token}"))
    assert await eventually(lambda: processes_here(token) != [])
    return call


async def wait_until_gone(cluster, folder=None):
    assert await eventually(lambda: cluster.jobs() == [] and cluster.steps() == [])
    return folder is None or list((folder / "root").iterdir()) == []


async def test_a_cancelled_job_fails_the_calls_at_once_and_a_new_one_follows(slurm, tmp_path):
    backend, token = backend_on(slurm, tmp_path), sleep_token()
    box = await backend.open(SandboxSpec())
    call = await begin_command(box, token)
    first = (await backend.allocation()).job_id
    slurm.call("scancel", first)
    with pytest.raises(SandboxLostError, match="CANCELLED"):
        await asyncio.wait_for(call, 60)
    assert await eventually(lambda: processes_here(token) == [])
    async with await backend.open(SandboxSpec()) as other:
        assert other.provenance["job_id"] != first
        assert (await other.exec("echo new")).output == "new\n"
    await asyncio.wait_for(box.aclose(), 60)
    await backend.aclose()
    assert await wait_until_gone(slurm, tmp_path)


@pytest.mark.slow
async def test_the_error_names_the_time_limit_of_a_job_that_reached_it(slurm, tmp_path):
    backend = backend_on(slurm, tmp_path, time="1")
    box = await backend.open(SandboxSpec())
    job = (await backend.allocation()).job_id
    # Slurm checks the limits every half minute.
    slurm.call("scontrol", "update", f"jobid={job}", "endtime=now")
    with pytest.raises(SandboxLostError, match="DUE TO TIME LIMIT"):
        await asyncio.wait_for(box.exec("sleep 600"), 120)
    await backend.aclose()
    assert await wait_until_gone(slurm, tmp_path)


async def test_many_sandboxes_of_an_allocation_that_ended_are_removed_by_one_job(slurm, tmp_path):
    backend = backend_on(slurm, tmp_path)
    boxes = await asyncio.gather(*(backend.open(SandboxSpec()) for _ in range(6)))
    job = int((await backend.allocation()).job_id)
    for box in boxes:
        await box.exec("touch kept")
    for agent in slurm.agents():
        os.kill(agent, signal.SIGKILL)  # so that no agent deletes anything
    slurm.call("scancel", str(job))
    await asyncio.wait_for(asyncio.gather(*(box.aclose() for box in boxes)), 60)
    await backend.aclose()
    assert await wait_until_gone(slurm, tmp_path)
    with slurm.allocation(1) as following:
        # One job cleaned up, and in one the pool may have replaced the lost host meanwhile.
        assert int(following) <= job + 3


async def test_a_cancelled_allocation_of_somebody_else_is_named(slurm, tmp_path):
    with slurm.allocation(2) as job:
        backend = backend_on(slurm, tmp_path, job_id=job)
        box = await backend.open(SandboxSpec())
        slurm.call("scancel", job)
        with pytest.raises(SandboxLostError):
            await asyncio.wait_for(box.exec("sleep 600"), 60)
        await asyncio.wait_for(box.aclose(), 60)
        assert await eventually(lambda: slurm.jobs() == [])
        with pytest.raises(BackendError, match=f"allocation {job}"):
            await backend.open(SandboxSpec())
        await backend.aclose()
    assert await wait_until_gone(slurm, tmp_path)


async def test_a_command_terminated_by_another_command_reports_143_and_loses_nothing(slurm, tmp_path):
    backend = backend_on(slurm, tmp_path)
    async with await backend.open(SandboxSpec(session="live")) as box:
        result = await box.exec("sleep 60 & kill -TERM $!; wait $!")
        assert result.exit_code == 143
        assert (await box.exec("echo next")).output == "next\n"
    await backend.aclose()
    assert await wait_until_gone(slurm, tmp_path)


@pytest.mark.component("slurm", "bwrap")
async def test_an_agent_that_was_killed_is_started_again_where_its_files_are(slurm, tmp_path):
    backend = backend_on(slurm, tmp_path, root_dir="/tmp")  # user nobody has no access to the test's own folder
    async with await backend.open(SandboxSpec(isolation="bwrap", network="none")) as box:
        await box.exec("echo kept >f")
        (agent,) = slurm.agents()
        os.kill(agent, signal.SIGKILL)
        with pytest.raises(SandboxLostError):
            await asyncio.wait_for(box.exec("sleep 600"), 60)
        lost: object = box
        assert isinstance(lost, Recoverable)
        assert "Files of the workspace" in str(await asyncio.wait_for(lost.recover(0), 60))
        assert (await box.exec("cat f")).output == "kept\n"
    await backend.aclose()
    assert await wait_until_gone(slurm)


async def test_a_cancelled_step_loses_only_its_own_sandboxes(slurm, tmp_path):
    backend = backend_on(slurm, tmp_path, slots_per_agent=1)
    lost, kept = [await backend.open(SandboxSpec()) for _ in range(2)]
    # The first sandbox's step has the lowest number.
    slurm.call("scancel", min(slurm.steps(), key=lambda step: int(step.partition(".")[2])))
    with pytest.raises(SandboxLostError):
        await asyncio.wait_for(lost.exec("sleep 600"), 60)
    assert (await kept.exec("echo kept")).output == "kept\n"
    await lost.aclose()
    await backend.aclose()
    assert await wait_until_gone(slurm, tmp_path)


@pytest.mark.slow
async def test_a_node_that_dies_loses_only_its_own_sandboxes(own_slurm, tmp_path):
    backend = backend_on(own_slurm, tmp_path, nodes=2, slots_per_agent=2, patience=10.0, setup_timeout=30.0)
    boxes = await asyncio.gather(*(backend.open(SandboxSpec()) for _ in range(4)))
    own_slurm.kill_node("n2")
    answers = await asyncio.wait_for(
        asyncio.gather(*(box.exec("echo here") for box in boxes), return_exceptions=True), 60
    )
    for box, answer in zip(boxes, answers, strict=True):
        if box.provenance["node"] == "n2":
            assert isinstance(answer, SandboxLostError)
        else:
            assert getattr(answer, "output", answer) == "here\n"
    own_slurm.await_state("down*", 1)
    # New sandboxes go to the node that is left.
    async with await backend.open(SandboxSpec()) as box:
        assert box.provenance["node"] == "n1"
    # Files on the dead node cannot be removed now: an error says so, and the leases stay for later.
    closed = await asyncio.gather(*(box.aclose() for box in boxes), return_exceptions=True)
    failed = [result for result in closed if result is not None]
    assert len(failed) == 2
    assert all("on n2, which cannot be used now" in str(error) for error in failed)
    with pytest.raises(BackendError, match="on n2"):
        await backend.aclose()
    assert await wait_until_gone(own_slurm)
    own_slurm.start_node("n2")
    own_slurm.await_state("idle")
    leases, _ = LeaseBook(tmp_path / "leases").read()
    assert len(leases) == 2
    collector = SandboxReclaimer(LeaseBook(tmp_path / "leases"), isolated_registry("hermes_backend_slurm.plugin"))
    assert len((await collector.remove(leases)).removed) == 2
    assert await wait_until_gone(own_slurm, tmp_path)


async def test_a_drained_node_gets_no_new_sandboxes(own_slurm, tmp_path):
    with own_slurm.allocation(2) as job:
        backend = backend_on(own_slurm, tmp_path, job_id=job, slots_per_agent=1)
        own_slurm.call("scontrol", "update", "nodename=n1", "state=drain", "reason=test")
        boxes = [await backend.open(SandboxSpec()) for _ in range(2)]
        assert [box.provenance["node"] for box in boxes] == ["n2", "n2"]
        own_slurm.call("scontrol", "update", "nodename=n2", "state=drain", "reason=test")
        with pytest.raises(BackendError, match=f"no node of allocation {job} can be used"):
            await backend.open(SandboxSpec())
        assert (await boxes[0].exec("echo goes on")).output == "goes on\n"
        await backend.aclose()
        assert list((tmp_path / "root").iterdir()) == []


@pytest.mark.parametrize("isolation", ["none", pytest.param("bwrap", marks=pytest.mark.component("bwrap"))])
async def test_a_killed_caller_leaves_no_job_and_gc_removes_the_rest(slurm, tmp_path, isolation):
    token = sleep_token()
    own_root = {} if isolation == "none" else {"root_dir": "/tmp"}  # user nobody has no access to the test's own
    backend = backend_on(slurm, tmp_path, nodes=2, **own_root)
    caller = subprocess.Popen(caller_of(backend, token, isolation), stdout=subprocess.PIPE)
    assert caller.stdout is not None
    assert await asyncio.to_thread(caller.stdout.readline) == b"begun\n"
    assert len(slurm.jobs()) == 1
    caller.kill()
    caller.communicate()
    # salloc and the agents end at the end of their input, so what costs money needs no gc.
    assert await eventually(lambda: processes_here(token) == [])
    await wait_until_gone(slurm)
    book = LeaseBook(tmp_path / "leases")
    ids = {lease.sandbox_id for lease in book.read()[0]}
    assert len(ids) == 2
    collected = await SandboxReclaimer(book, isolated_registry("hermes_backend_slurm.plugin")).collect(backends=())
    assert (set(collected.removed), collected.failed) == (ids, {})
    assert await wait_until_gone(slurm, tmp_path)
    assert book.read() == ([], [])


async def test_a_caller_killed_in_somebody_s_allocation_leaves_its_steps_to_the_sweep(slurm, tmp_path):
    with slurm.allocation(2) as job:
        backend, token = backend_on(slurm, tmp_path, job_id=job), sleep_token()
        caller = subprocess.Popen(caller_of(backend, token), stdout=subprocess.PIPE)
        assert caller.stdout is not None
        assert await asyncio.to_thread(caller.stdout.readline) == b"begun\n"
        # A stopped agent does not notice the end of its input.
        for agent in slurm.agents():
            os.kill(agent, signal.SIGSTOP)
        caller.kill()
        caller.communicate()
        sweeper = SlurmBackend(SlurmOptions(conf=slurm.conf, job_id=job))
        found = await sweeper.sweep(remove=False)
        assert found == [f"slurm:{step}" for step in slurm.steps()] != []
        assert await sweeper.sweep() == found
        assert await eventually(lambda: slurm.steps() == [])
        assert slurm.jobs() == [job]
        book = LeaseBook(tmp_path / "leases")
        collected = await SandboxReclaimer(book, isolated_registry("hermes_backend_slurm.plugin")).collect(backends=())
        assert collected.failed == {}
        assert processes_here(token) == []
        assert list((tmp_path / "root").iterdir()) == []


async def test_the_sweep_leaves_jobs_of_living_and_unknown_owners_alone(slurm, tmp_path):
    backend = backend_on(slurm, tmp_path)
    async with await backend.open(SandboxSpec()):
        with slurm.allocation(1):
            assert await backend.sweep() == []
            assert len(slurm.jobs()) == 2
    await backend.aclose()
    assert await wait_until_gone(slurm, tmp_path)
