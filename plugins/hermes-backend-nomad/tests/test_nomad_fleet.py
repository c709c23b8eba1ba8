"""The groups of a job: concurrent changes are registered together, and every failure leaves the job unchanged."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from hermes_backend_nomad.failures import ContainerStartError, NomadAnswerError, NomadSilentError
from hermes_backend_nomad.fleet import Fleet


class _Nomad:
    """Runs every group at once and records its registrations."""

    def __init__(self) -> None:
        self.registered: list[list[str]] = []
        self.purged = 0
        self.looks = 0
        self.unseen: Exception | None = None
        self.refused: Exception | None = None
        self.answering = asyncio.Event()
        self.answering.set()
        self.status = "running"

    async def register(self, job: Mapping[str, Any]) -> Mapping[str, Any]:
        self.registered.append([group["Name"] for group in job["TaskGroups"]])
        await self.answering.wait()
        if self.refused is not None:
            raise self.refused
        return {"EvalCreateIndex": len(self.registered)}

    async def deregister(self, _job_id: str, *, purge: bool) -> None:
        self.purged += purge

    async def evaluations(self, _job_id: str) -> list[Any]:
        return []

    async def allocations(self, job_id: str, *, after: int = 0) -> tuple[list[Any], int]:
        self.looks += 1
        if self.unseen is not None:
            raise self.unseen
        fields = {"NodeName": "n", "JobID": job_id, "DesiredStatus": "run", "ClientStatus": self.status}
        listed = [
            {"TaskGroup": name, "CreateIndex": 1, "ID": f"of-{name}", "TaskStates": None, **fields}
            for name in self.registered[-1]
        ]
        await asyncio.sleep(0)
        return listed, len(self.registered)


class _Leases:
    def __init__(self) -> None:
        self.held = 0
        self.taken = 0

    async def take(self) -> None:
        self.held += 1
        self.taken += 1

    async def give_up(self) -> None:
        self.held -= 1


@pytest.fixture
def nomad() -> _Nomad:
    return _Nomad()


@pytest.fixture
def leases() -> _Leases:
    return _Leases()


@pytest.fixture
def fleet(nomad: _Nomad, leases: _Leases) -> Fleet:
    fleet = Fleet(nomad, "job", lambda groups: {"TaskGroups": groups}, start_timeout=60.0, purge=True)
    fleet.begin, fleet.end = leases.take, leases.give_up
    return fleet


async def _start(fleet: Fleet) -> str:
    name = fleet.next_name()
    allocation = await fleet.start({"Name": name}, image="i")
    assert allocation["ID"] == f"of-{name}"
    return name


async def test_what_many_ask_for_while_nomad_answers_one_is_registered_at_once(fleet: Fleet, nomad: _Nomad) -> None:
    nomad.answering.clear()
    starts = [asyncio.ensure_future(_start(fleet)) for _ in range(8)]
    while not nomad.registered:
        await asyncio.sleep(0)
    nomad.answering.set()
    names = await asyncio.gather(*starts)
    assert len(set(names)) == 8
    assert len(nomad.registered) <= 2
    assert set(nomad.registered[-1]) == set(names)
    await asyncio.gather(*(fleet.stop(name) for name in names))
    assert len(nomad.registered) <= 2
    assert nomad.purged == 1


async def test_the_job_has_its_lease_from_before_its_first_group_until_after_its_last(
    fleet: Fleet, nomad: _Nomad, leases: _Leases
) -> None:
    first, second = await _start(fleet), await _start(fleet)
    await fleet.stop(first)
    assert (leases.held, nomad.registered[-1]) == (1, [second])
    await fleet.stop(second)
    await fleet.stop(second)
    assert (leases.held, leases.taken, nomad.purged) == (0, 1, 1)
    await fleet.stop(await _start(fleet))
    assert (leases.held, leases.taken, nomad.purged) == (0, 2, 2)


async def test_a_refusal_leaves_no_job_and_no_lease(fleet: Fleet, nomad: _Nomad, leases: _Leases) -> None:
    nomad.refused = NomadAnswerError("no", status=403)
    with pytest.raises(NomadAnswerError):
        await _start(fleet)
    assert (leases.held, leases.taken, nomad.purged) == (0, 1, 0)


async def test_a_group_that_is_refused_later_leaves_the_others(fleet: Fleet, nomad: _Nomad, leases: _Leases) -> None:
    first = await _start(fleet)
    nomad.refused = NomadAnswerError("too large", status=500)
    with pytest.raises(NomadAnswerError):
        await _start(fleet)
    nomad.refused = None
    third = await _start(fleet)
    assert (nomad.registered[-1], leases.held) == ([first, third], 1)


async def test_what_may_have_been_registered_unheard_is_taken_back(
    fleet: Fleet, nomad: _Nomad, leases: _Leases
) -> None:
    nomad.refused = NomadSilentError("no answer")
    with pytest.raises(NomadSilentError):
        await _start(fleet)
    assert (nomad.purged, leases.held) == (1, 0)


async def test_a_start_that_is_cancelled_takes_its_group_back(fleet: Fleet, nomad: _Nomad, leases: _Leases) -> None:
    nomad.status = "pending"
    start = asyncio.ensure_future(_start(fleet))
    while not nomad.registered:
        await asyncio.sleep(0)
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert (nomad.purged, leases.held) == (1, 0)


async def test_a_container_that_does_not_run_in_time_is_taken_out(fleet: Fleet, nomad: _Nomad) -> None:
    first = await _start(fleet)
    nomad.status = "pending"
    fleet._start_timeout = 0.3
    with pytest.raises(ContainerStartError, match=r"sandbox-2 of job job did not start within 0\.3 s"):
        await _start(fleet)
    assert nomad.registered[-1] == [first]


async def test_many_that_start_together_are_looked_at_together(fleet: Fleet, nomad: _Nomad) -> None:
    """Each start polled by itself and got the allocations of all: hundreds of requests a second."""
    nomad.status = "pending"
    starts = [asyncio.create_task(fleet.start({"Name": f"g{number}"}, image="i")) for number in range(200)]
    while nomad.looks < 5:
        await asyncio.sleep(0)
    before = nomad.looks
    nomad.status = "running"
    allocations = await asyncio.gather(*starts)
    assert sorted(found["ID"] for found in allocations) == sorted(f"of-g{number}" for number in range(200))
    assert nomad.looks - before <= 2


async def test_who_starts_while_others_are_looked_at_is_looked_at_too(fleet: Fleet, nomad: _Nomad) -> None:
    nomad.status = "pending"
    first = asyncio.create_task(_start(fleet))
    while nomad.looks < 2:
        await asyncio.sleep(0)
    second = asyncio.create_task(_start(fleet))
    while len(nomad.registered) < 2:
        await asyncio.sleep(0)
    nomad.status = "running"
    assert await asyncio.gather(first, second)


async def test_one_failed_query_is_not_a_failed_start(
    fleet: Fleet, nomad: _Nomad, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All starting groups failed, and the pool counted each as a failure in a row."""
    monkeypatch.setattr("hermes_backend_nomad.fleet._SLOWEST_LOOK", 0)
    nomad.status = "pending"
    starts = [asyncio.create_task(_start(fleet)) for _ in range(8)]
    while nomad.looks < 2:
        await asyncio.sleep(0)
    nomad.unseen, seen = NomadSilentError("no answer"), nomad.looks
    while nomad.looks < seen + 2:
        await asyncio.sleep(0)
    nomad.unseen, nomad.status = None, "running"
    assert await asyncio.gather(*starts)


async def test_who_waits_for_a_start_when_all_is_ended_is_told(fleet: Fleet, nomad: _Nomad) -> None:
    nomad.status = "pending"
    start = asyncio.create_task(_start(fleet))
    while nomad.looks < 2:
        await asyncio.sleep(0)
    await fleet.aclose()
    with pytest.raises(ContainerStartError, match="is being ended"):
        await start


async def test_what_fails_while_it_looks_is_told_to_all_and_the_next_looks_again(
    fleet: Fleet, nomad: _Nomad, monkeypatch: pytest.MonkeyPatch
) -> None:
    nomad.status = "pending"
    starts = [asyncio.create_task(_start(fleet)) for _ in range(3)]
    while nomad.looks < 2:
        await asyncio.sleep(0)
    monkeypatch.setattr("hermes_backend_nomad.fleet._SLOWEST_LOOK", 0)
    nomad.unseen = NomadSilentError("no answer")
    assert [type(end) for end in await asyncio.gather(*starts, return_exceptions=True)] == [NomadSilentError] * 3
    nomad.unseen, nomad.status = None, "running"
    await _start(fleet)
