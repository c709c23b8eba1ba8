"""Process limits of a container and its slots, and commands that exceed them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from nomad_backends import Backends
from nomad_standin import StandIn

from hermes_core.contracts.errors import SandboxRefusedError
from hermes_core.contracts.sandbox import IsolationLevel, SandboxSpec
from hermes_testing.watching import fill_with_processes

pytestmark = pytest.mark.component("bwrap")
_SINGULARITY: dict[str, Any] = {
    "driver": "singularity",
    "singularity_program": str(Path(__file__).parent / "support" / "fake_apptainer.py"),
    "singularity_image": "/images/small.sif",
}


def _ask(isolation: IsolationLevel = "container+slot", pids: int | None = None) -> SandboxSpec:
    return SandboxSpec(isolation=isolation, network="none", pids=pids)


def _bounds(standin: StandIn) -> list[int]:
    """Return the registered config of each container."""
    groups = [group for job in standin.tell("jobs").values() for group in job["TaskGroups"]]
    return [group["Tasks"][0]["Config"]["pids_limit"] for group in groups]


@pytest.mark.parametrize(
    ("isolation", "pids", "bound"),
    [
        ("container+slot", None, 3 * 1024 + 16),
        ("container+slot", 40, 3 * 40 + 16),
        ("container", None, 1024 + 16),
        ("container", 40, 40 + 16),
    ],
)
async def test_a_container_has_room_for_the_numbers_of_its_slots_and_for_its_agent(
    standin: StandIn, backends: Backends, isolation: IsolationLevel, pids: int | None, bound: int
) -> None:
    async with await backends(slots_per_container=3).open(_ask(isolation, pids)) as box:
        assert _bounds(standin) == [bound]
        assert box.provenance["limits"]["pids"] == f"{pids or 1024} of its user, by RLIMIT_NPROC"


async def test_slots_share_a_container_with_those_of_the_same_number(standin: StandIn, backends: Backends) -> None:
    backend = backends(pids=50, slots_per_container=2)
    opened = [await backend.open(_ask(pids=pids)) for pids in (None, 50, 40)]
    assert _bounds(standin) == [116, 96]
    found = [(await box.exec("ulimit -S -u; ulimit -H -u")).output.split() for box in opened]
    assert found == [["50", "50"], ["50", "50"], ["40", "40"]]


async def test_a_slot_that_is_full_leaves_the_others_and_the_agent_their_processes(backends: Backends) -> None:
    backend = backends()
    async with await backend.open(_ask(pids=40)) as one, await backend.open(_ask(pids=40)) as other:
        assert await fill_with_processes(one, 200) == 40
        assert await fill_with_processes(other, 20) == 21
        # The kernel looks at what a user has before the agent's own process becomes that user's.
        await one.processes.start("exec sleep 60")
        full = await one.exec("echo no")
        assert (full.exit_code, full.output) == (254, "bash: fork: Resource temporarily unavailable\n")
        assert (await other.exec("echo $(echo room)")).output == "room\n"
        await one.renew()
        assert (await one.exec("echo $(echo room)")).output == "room\n"


async def test_where_all_slots_are_full_the_agent_still_has_its_head_room(backends: Backends) -> None:
    backend = backends(slots_per_container=2)
    async with await backend.open(_ask(pids=24)) as one, await backend.open(_ask(pids=24)) as other:
        assert [await fill_with_processes(box, 200) for box in (one, other)] == [24, 24]
        await one.freeze()
        assert (await one.exec("touch new; echo $(echo room)")).stdout == b"room\n"
        await other.processes.start("exec sleep 60")
        assert (await other.exec("echo no")).exit_code == 254


async def test_what_has_forked_as_often_as_it_may_goes_with_its_slot(backends: Backends) -> None:
    backend = backends()
    async with await backend.open(_ask()) as other:
        box = await backend.open(_ask())
        assert await fill_with_processes(box, 3000) == 1024
        (uid,) = (await other.exec("id -u")).output.split()
        async with asyncio.timeout(60):
            await box.aclose()
        left = await other.exec("cat /proc/[0-9]*/status | grep '^Uid:'")
        assert {line.split()[1] for line in left.output.splitlines()} <= {"0", uid}


async def test_slots_whose_users_other_containers_have_too_share_one_limit(
    standin: StandIn, backends: Backends
) -> None:
    backend = backends(first_uid=20_000, slots_per_container=3)
    async with await backend.open(_ask()) as box:
        assert _bounds(standin) == [3 * 1024 + 16]
        assert box.provenance["limits"]["pids"] == f"{3 * 1024 + 16} for all slots together"
        assert (await box.exec("ulimit -u")).output != "1024\n"
    with pytest.raises(SandboxRefusedError, match="option first_uid") as caught:
        await backend.open(_ask(pids=40))
    assert "--isolation container" in (caught.value.hint or "")
    async with await backend.open(_ask("container", 40)) as box:
        assert _bounds(standin)[-1] == 43
        assert box.provenance["limits"]["pids"] == "40"


async def test_by_raw_exec_it_is_said_what_bounds_them_and_a_number_that_nothing_holds_is_refused(
    backends: Backends,
) -> None:
    backend = backends(**_SINGULARITY)
    async with await backend.open(_ask("container")) as box:
        found = box.provenance["limits"]["pids"]
        assert found.startswith(("none: ", "1024, by cgroup", "1024 more than its user had"))
    if found.startswith("none"):
        with pytest.raises(SandboxRefusedError, match="limit pids cannot be enforced here"):
            await backend.open(_ask("container", 64))
    else:
        async with await backend.open(_ask("container", 64)) as box:
            assert box.provenance["limits"]["pids"] == found.replace("1024", "64")
