"""Failures outside a sandbox do not affect it, and a silent peer is reported in time."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import aiohttp
import pytest
from nomad_backends import Backends
from nomad_standin import StandIn

from hermes_core.contracts.errors import BackendError, HermesError, SandboxLostError
from hermes_core.contracts.sandbox import Sandbox, SandboxSpec
from hermes_pool import SlotPool
from hermes_sandbox import LeaseBook
from hermes_sandbox.backends import AgentSandbox, AgentSlot
from hermes_testing.watching import eventually

pytestmark = pytest.mark.component("bwrap")
SLOT = SandboxSpec(isolation="container+slot", network="none")
ALONE = SandboxSpec(isolation="container", network="none")


def _allocation(sandbox: Sandbox) -> str:
    return str(sandbox.provenance["allocation"]["id"])


@pytest.mark.parametrize(
    ("fault", "said", "hint"),
    [
        ({"token": "another"}, "403 Permission denied", "NOMAD_TOKEN"),
        ({"node_memory": 100}, r"cannot place sandbox-\d+ .* too little memory", "options cpu and memory"),
        ({"missing_images": ["hermes:1"]}, "image hermes:1 cannot be pulled", "auth"),
        ({"restart_loop": True}, "was restarted too often", "nomad alloc logs"),
        ({"unknown_key": "pids_limit"}, 'No argument or block type is named "pids_limit"', "docker_config"),
        ({"exec_status": 500}, "refuses exec in allocation", None),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
async def test_what_keeps_containers_from_being_added_is_said_at_its_time_and_leaves_those_that_run_alone(
    standin: StandIn, backends: Backends, fault: dict[str, Any], said: str, hint: str | None
) -> None:
    backend = backends(slots_per_container=1)
    async with await backend.open(SLOT) as running:
        pool = backend.host_pool
        assert isinstance(pool, SlotPool)
        standin.faults(**fault)
        pool.options.acquire_timeout = 300.0
        waiting = asyncio.ensure_future(backend.open(SLOT))
        assert await eventually(lambda: pool.stats().last_failure is not None, seconds=60)
        pool.options.acquire_timeout = 0.2
        with pytest.raises(HermesError, match=said) as caught:
            async with asyncio.timeout(60):
                await backend.open(SLOT)
        assert hint is None or hint in (caught.value.hint or "")
        # The time is that of the queue, in which nothing moved.
        with pytest.raises(HermesError, match=said):
            await asyncio.wait_for(waiting, 60)
        assert (await running.exec("echo on")).output == "on\n"
        pool.options.acquire_timeout = 300.0
        waiting = asyncio.ensure_future(backend.open(SLOT))
        standin.faults()
        # After the repair it continues by itself.
        async with await asyncio.wait_for(waiting, 120) as second:
            assert (await second.exec("echo second")).output == "second\n"
    await backend.aclose()
    assert LeaseBook(backends.leases).read() == ([], [])


async def test_a_nomad_that_stops_answering_is_said_at_its_time_and_those_that_run_go_on(
    standin: StandIn, backends: Backends
) -> None:
    backend = backends(slots_per_container=1)
    async with await backend.open(SLOT) as running:
        pool = backend.host_pool
        assert isinstance(pool, SlotPool)
        standin.faults(delay=300.0)
        backend.api._timeout = 2.0
        waiting = asyncio.ensure_future(backend.open(SLOT))
        assert await eventually(lambda: pool.stats().last_failure is not None, seconds=60)
        pool.options.acquire_timeout = 0.2
        with pytest.raises(HermesError, match=r"Nomad at \S+ did not answer \w+ /v1/\S+ within 2 s") as caught:
            async with asyncio.timeout(60):
                await backend.open(SLOT)
        assert "nomad server members" in (caught.value.hint or "")
        # Its connection survives every change of the servers.
        assert (await running.exec("echo on")).output == "on\n"
        standin.faults()
        backend.api._timeout = pool.options.acquire_timeout = 60.0
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        async with await backend.open(SLOT) as second:
            assert (await second.exec("echo second")).output == "second\n"
    await backend.aclose()
    assert LeaseBook(backends.leases).read() == ([], [])


@pytest.mark.parametrize("skew", [-86_400.0, 86_400.0], ids=["behind", "ahead"])
async def test_a_server_whose_clock_is_a_day_off_changes_nothing(
    standin: StandIn, backends: Backends, skew: float
) -> None:
    standin.faults(skew=skew)
    backend = backends(slots_per_container=1)
    async with await backend.open(SLOT) as first, await backend.open(SLOT) as second:
        (job, *_) = standin.tell("jobs").values()
        assert abs(job["SubmitTime"] / 1e9 - time.time()) > 80_000
        # Leases use the holder's clock, and a job is judged by its owner, not its age.
        leases = LeaseBook(backends.leases).read()[0]
        assert len(leases) == 3
        assert not any(lease.is_overdue for lease in leases)
        assert all(abs(lease.created - time.time()) < 3600 for lease in leases)
        assert await backends().sweep() == []
        # The newest allocation of a group is the one of the highest index, whenever that was.
        await asyncio.to_thread(standin.order, "evict", _allocation(first))
        with pytest.raises(SandboxLostError):
            await asyncio.wait_for(first.exec("sleep 600"), 60)
        async with await backend.open(SLOT) as third:
            assert (await third.exec("echo fresh")).output == "fresh\n"
        assert (await second.exec("echo on")).output == "on\n"
    await backend.aclose()
    assert LeaseBook(backends.leases).read() == ([], [])


async def test_a_stream_that_falls_silent_is_given_up_in_time_with_its_allocation_and_the_others_go_on(
    standin: StandIn, backends: Backends
) -> None:
    backend = backends()
    lost = await backend.open(SLOT)
    other = backends(sandbox_job_id="another")
    async with await other.open(SLOT) as healthy:
        standin.faults(mute=True)
        assert isinstance(lost, AgentSandbox)
        assert isinstance(lost.slot, AgentSlot)
        lost.slot.client._rest(2.0)
        with pytest.raises(SandboxLostError, match="has been silent for") as caught:
            await asyncio.wait_for(lost.exec("echo unheard"), 60)
        assert f"allocation {_allocation(lost)} on node" in str(caught.value)
        assert f"of Nomad at {standin.address}" in str(caught.value)
        standin.faults()
        assert (await healthy.exec("echo on")).output == "on\n"
        # The next sandbox is elsewhere: that container accepts no new one.
        async with await backend.open(SLOT) as fresh:
            assert _allocation(fresh) != _allocation(lost)
    await lost.aclose()


async def test_an_agent_that_does_not_answer_at_its_start_is_named_with_its_allocation(
    standin: StandIn, backends: Backends
) -> None:
    standin.faults(mute=True)
    backend = backends(setup_timeout=0.5, acquire_timeout_s=120.0)
    with pytest.raises(BackendError, match=r"the agent in allocation \S+ on node \S+ of Nomad at \S+ did not start"):
        await asyncio.wait_for(backend.open(SLOT), 120)
    standin.faults()
    await backend.aclose()
    assert LeaseBook(backends.leases).read() == ([], [])


async def test_two_callers_of_one_job_name_have_separate_jobs_and_neither_ends_the_others(
    standin: StandIn, backends: Backends
) -> None:
    callers = [backends(purge_job_on_start=True, slots_per_container=1) for _ in range(2)]
    opened = await asyncio.gather(*(caller.open(SLOT) for caller in callers for _ in range(2)))
    jobs = standin.tell("jobs")
    assert sorted(jobs) == sorted(f"atropos-sandbox-agent-env-{caller.run_id}" for caller in callers)
    assert [len(job["TaskGroups"]) for job in jobs.values()] == [2, 2]
    await asyncio.gather(*(sandbox.aclose() for sandbox in opened[:2]))
    await callers[0].aclose()
    assert list(standin.tell("jobs")) == [f"atropos-sandbox-agent-env-{callers[1].run_id}"]
    for sandbox in opened[2:]:
        assert (await sandbox.exec("echo on")).output == "on\n"
        await sandbox.aclose()


async def test_a_job_that_somebody_else_has_purged_is_made_again_for_the_next(
    standin: StandIn, backends: Backends
) -> None:
    backend = backends()
    lost = await backend.open(SLOT)
    call = asyncio.ensure_future(lost.exec("sleep 600"))
    ((name, _),) = standin.tell("jobs").items()
    await backends().api.deregister(name, purge=True)
    with pytest.raises(SandboxLostError):
        await asyncio.wait_for(call, 60)
    async with await backend.open(SLOT) as fresh:
        assert (await fresh.exec("echo fresh")).output == "fresh\n"
        assert list(standin.tell("jobs")) == [name]
    await lost.aclose()


async def test_a_job_that_somebody_else_has_changed_is_put_back_with_the_next_container(
    standin: StandIn, backends: Backends
) -> None:
    backend = backends(slots_per_container=1)
    async with await backend.open(SLOT) as first:
        ((name, job),) = standin.tell("jobs").items()
        await backend.api.register({"ID": name, "Name": name, "TaskGroups": job["TaskGroups"], "Meta": {"by": "me"}})
        async with await backend.open(SLOT) as second:
            (changed,) = standin.tell("jobs").values()
            assert changed["Meta"]["hermes_run"] == backend.run_id
            for sandbox in (first, second):
                assert (await sandbox.exec("echo on")).output == "on\n"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/jobs?prefix=a&namespace=default&stale=true", None),
        ("GET", "/v1/job/x/allocations?all=true", None),
        ("POST", "/v1/jobs", {"Job": {"ID": "x", "TaskGroups": []}, "EnforceIndex": True}),
        ("POST", "/v1/jobs", {"Job": {"ID": "x", "TaskGroups": [{"RestartPolicy": {"RenderTemplates": True}}]}}),
        ("PUT", "/v1/jobs", {"Job": {}}),
        ("DELETE", "/v1/job/x?purge=true&global=true", None),
    ],
)
async def test_the_stand_in_fails_on_unknown_requests(standin: StandIn, method: str, path: str, body: Any) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, standin.address + path, data=None if body is None else json.dumps(body)) as answer,
    ):
        assert answer.status == 500
    assert standin.tell("errors") != []
    standin.forget()


async def test_the_stand_in_closes_an_exec_that_is_sent_an_unknown_frame(standin: StandIn, backends: Backends) -> None:
    backend = backends()
    async with await backend.open(SLOT) as sandbox:
        url = f"{standin.address}/v1/client/allocation/{_allocation(sandbox)}/exec"
        query = {"task": "sandbox", "tty": "false", "command": '["cat"]'}
        async with aiohttp.ClientSession() as session, session.ws_connect(url, params=query) as websocket:
            await websocket.send_str('{"tty_size":{"height":1,"width":1}}')
            assert [message.data async for message in websocket] == []
            assert websocket.close_code == 1011

    async def was_stated() -> bool:
        return any("tty_size" in said for said in await asyncio.to_thread(standin.tell, "errors"))

    assert await eventually(was_stated, seconds=60)
    standin.forget()
