"""The limit of an instance's processes, how it is enforced, and what happens when it is reached."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import small_images
from watched import at_work

from hermes_backend_singularity.backend import SingularityBackend
from hermes_backend_singularity.options import SingularityOptions
from hermes_core.contracts.errors import ProcessLimitError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_testing.users import free_users
from hermes_testing.watching import eventually, fill_with_processes

pytestmark = pytest.mark.component("apptainer")
_CROWD = "i=0; while [ $i -lt 60 ]; do sleep 120 & i=$((i + 1)); echo $i; done"
_BY_GROUP = r"{}, by cgroup v[12]"
_BY_USER = r"{} more than its user had, by RLIMIT_NPROC"
Made = Callable[..., SingularityBackend]


def _ask(pids: int | None = None, image: str | None = None) -> SandboxSpec:
    return SandboxSpec(isolation="container", network="none", pids=pids, image=image)


@pytest_asyncio.fixture
async def new_backend(options: dict[str, Any], tmp_path: Path) -> AsyncIterator[Made]:
    """Makes backends with the small image; for "no groups" they look for control groups in an ordinary folder."""
    backends: list[SingularityBackend] = []
    users = itertools.count(free_users())

    def make(place: str, **more: Any) -> SingularityBackend:
        # As a user that nothing else on this machine has, because all processes of the user are counted.
        found = {"cgroup": tmp_path, "user": str(next(users))} if place == "no groups" else {}
        backend = SingularityBackend(SingularityOptions(**{**options, **found, **more}))
        backend.lease_dir = tmp_path / "leases"
        backends.append(backend)
        return backend

    yield make
    for backend in backends:
        await backend.aclose()


@pytest.mark.parametrize(("place", "how"), [("groups", _BY_GROUP), ("no groups", _BY_USER)])
async def test_the_limit_of_processes_is_enforced_and_recorded_with_its_means(
    new_backend: Made, place: str, how: str
) -> None:
    backend = new_backend(place, pids=60)
    async with await backend.open(_ask()) as box:
        assert re.fullmatch(how.format(60), box.provenance["limits"]["pids"])
    async with await backend.open(_ask(40)) as box:
        assert re.fullmatch(how.format(40), box.provenance["limits"]["pids"])
        assert await fill_with_processes(box, 200) == 40
        # A limit per user also counts the agent's process that switches to that user.
        with contextlib.suppress(ProcessLimitError):
            await box.processes.start("exec sleep 60")
        full = await box.exec("echo no")
        assert (full.exit_code, full.output) == (254, "bash: fork: Resource temporarily unavailable\n")
        await box.renew()
        assert (await box.exec("echo $(echo room)")).output == "room\n"


@pytest.mark.parametrize("place", ["groups", "no groups"])
async def test_each_instance_has_its_own_number_of_processes(new_backend: Made, place: str) -> None:
    backend = new_backend(place)
    async with await backend.open(_ask(60)) as one:
        await fill_with_processes(one, 200)
        # The commands of both instances have the same user.
        async with await backend.open(_ask(60)) as other:
            assert await fill_with_processes(other, 30) == 31


@pytest.mark.parametrize("place", ["groups", "no groups"])
async def test_processes_at_their_limit_end_with_their_sandbox(new_backend: Made, tmp_path: Path, place: str) -> None:
    box = await new_backend(place).open(_ask())
    assert await fill_with_processes(box, 3000) > 900
    async with asyncio.timeout(60):
        await box.aclose()
    assert await eventually(lambda: at_work(tmp_path) == [])


@pytest.mark.parametrize(("place", "how"), [("groups", _BY_GROUP), ("no groups", _BY_USER)])
async def test_commands_that_a_shell_serves_are_limited_as_well(new_backend: Made, place: str, how: str) -> None:
    image = f"docker-archive:{small_images.archive()}"
    async with await new_backend(place).open(_ask(40, image)) as box:
        assert re.fullmatch(how.format(40), box.provenance["limits"]["pids"])
        crowd = await box.exec(_CROWD, timeout=60)
        assert int(crowd.stdout.split()[-1]) <= 43
        await box.renew()
        assert (await box.exec("echo $(echo room)")).output == "room\n"
