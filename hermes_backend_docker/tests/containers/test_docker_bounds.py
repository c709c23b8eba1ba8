"""Process limits of a container and its slots, and commands that exceed them."""

from __future__ import annotations

import asyncio
import dataclasses
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest
import pytest_asyncio

from hermes_backend_docker.backend import DockerBackend
from hermes_backend_docker.containers.ownership import POOL, container_name
from hermes_backend_docker.engine.client import Engine, EngineFacts
from hermes_backend_docker.engine.failures import EngineError
from hermes_backend_docker.options import DockerOptions
from hermes_core.contracts.errors import SandboxRefusedError
from hermes_core.contracts.sandbox import IsolationLevel, SandboxSpec
from hermes_testing.watching import eventually, fill_with_processes

pytestmark = pytest.mark.component("docker")
Made = Callable[..., DockerBackend]


def _ask(isolation: IsolationLevel, pids: int | None = None) -> SandboxSpec:
    return SandboxSpec(isolation=isolation, network="none", pids=pids)


@pytest_asyncio.fixture
async def new_backend(image: str, tmp_path: Path) -> AsyncIterator[Made]:
    """Makes backends with the small image and further options."""
    backends: list[DockerBackend] = []

    def make(**options: int) -> DockerBackend:
        backend = DockerBackend(DockerOptions(image=image, pull="never", **options))
        backend.lease_dir = tmp_path / "leases"
        backends.append(backend)
        return backend

    yield make
    for backend in backends:
        await backend.aclose()


async def _docker_output(*words: str) -> list[str]:
    ran = await asyncio.to_thread(subprocess.run, ["docker", *words], capture_output=True, text=True, check=True)
    return ran.stdout.split()


async def _containers(backend: DockerBackend) -> list[str]:
    pool = backend.handle(_ask("container+slot"), "x")["pool"]
    return await _docker_output("ps", "-aq", "--filter", f"label={POOL}={pool}")


async def _bound(container: str) -> int:
    (limit,) = await _docker_output("inspect", "--format", "{{.HostConfig.PidsLimit}}", container)
    return int(limit)


@pytest.mark.parametrize(("pids", "bound"), [(None, 1025), (40, 41)])
async def test_a_container_of_its_own_has_room_for_its_number_and_its_agent(
    backend: DockerBackend, pids: int | None, bound: int
) -> None:
    async with await backend.open(_ask("container", pids)) as box:
        assert await _bound(container_name(box.id)) == bound
        assert box.provenance["limits"]["pids"] == str(bound - 1)


@pytest.mark.parametrize(("pids", "bound"), [(None, 3 * 1024 + 16), (40, 3 * 40 + 16)])
async def test_a_shared_container_has_room_for_the_numbers_of_all_slots_and_its_agent(
    new_backend: Made, pids: int | None, bound: int
) -> None:
    backend = new_backend(slots_per_container=3)
    async with await backend.open(_ask("container+slot", pids)) as box:
        (container,) = await _containers(backend)
        assert await _bound(container) == bound
        assert box.provenance["limits"]["pids"] == f"{pids or 1024} of its user, by RLIMIT_NPROC"


async def test_the_option_is_the_limit_of_sandboxes_without_one(new_backend: Made) -> None:
    backend = new_backend(pids=50, slots_per_container=2)
    async with await backend.open(_ask("container")) as box:
        assert await _bound(container_name(box.id)) == 51
    async with await backend.open(_ask("container+slot")) as box:
        (container,) = await _containers(backend)
        assert await _bound(container) == 116
        assert (await box.exec("ulimit -S -u; ulimit -H -u")).output == "50\n50\n"


async def test_slots_share_a_container_with_those_of_the_same_number(backend: DockerBackend) -> None:
    asks = [_ask("container+slot", pids) for pids in (None, 1024, 40, 40)]
    for ask, containers in zip(asks, (1, 1, 2, 2), strict=True):
        await backend.open(ask)
        assert len(await _containers(backend)) == containers


async def test_a_slot_that_is_full_leaves_the_others_and_the_agent_their_processes(backend: DockerBackend) -> None:
    ask = _ask("container+slot", 40)
    async with await backend.open(ask) as one, await backend.open(ask) as other:
        assert await fill_with_processes(one, 200) == 40
        assert await fill_with_processes(other, 20) == 21
        # The kernel looks at what a user has before the agent's own process becomes that user's.
        await one.processes.start("exec sleep 60")
        full = await one.exec("echo no")
        assert (full.exit_code, full.output) == (254, "bash: fork: Resource temporarily unavailable\n")
        assert (await other.exec("echo $(echo room)")).output == "room\n"
        # Calls that need no process of the slot still work.
        await one.write_file("kept", b"1")
        await one.renew()
        assert (await one.exec("echo $(cat kept)")).output == "1\n"


async def test_where_all_slots_are_full_the_agent_still_has_its_head_room(new_backend: Made) -> None:
    backend, ask = new_backend(slots_per_container=2), _ask("container+slot", 24)
    async with await backend.open(ask) as one, await backend.open(ask) as other:
        assert [await fill_with_processes(box, 200) for box in (one, other)] == [24, 24]
        # A program of the engine's in the same container, and then an end of all that is the slot's.
        await one.freeze()
        assert (await one.exec("touch new; echo $(echo room)")).stdout == b"room\n"
        await other.processes.start("exec sleep 60")
        assert (await other.exec("echo no")).exit_code == 254


async def test_a_container_that_is_full_answers_and_is_emptied_by_its_agent(backend: DockerBackend) -> None:
    async with await backend.open(_ask("container", 40)) as box:
        assert await fill_with_processes(box, 200) == 40
        assert (await box.exec("echo no")).exit_code == 254
        await box.write_file("kept", b"1")
        await box.renew()
        assert (await box.exec("echo $(cat kept)")).output == "1\n"


async def test_a_container_that_is_full_can_be_made_read_only_all_the_same(backend: DockerBackend) -> None:
    async with await backend.open(_ask("container", 40)) as box:
        await box.write_file("kept", b"1")
        assert await fill_with_processes(box, 200) == 40
        await box.freeze()
        assert (await box.exec("touch new; echo $(cat kept)")).stdout == b"1\n"


async def test_a_container_without_room_for_another_program_is_emptied_before_it_is_made_read_only(
    backend: DockerBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine's own program in a container needs some threads, which may or may not fit."""
    run, asked = Engine.run, []

    async def run_in_an_empty_one(engine: Engine, container: str, argv: Sequence[str]) -> None:
        asked.append(argv)
        if len(asked) == 1:
            raise EngineError("OCI runtime exec failed: read init-p: connection reset by peer")
        assert b"sleep" not in (await box.exec("ps ax 2>/dev/null || cat /proc/[0-9]*/cmdline")).stdout
        await run(engine, container, argv)

    monkeypatch.setattr(Engine, "run", run_in_an_empty_one)
    async with await backend.open(_ask("container", 40)) as box:
        await box.exec("echo 1 >kept; setsid sleep 600 &")
        await box.freeze()
        assert (await box.exec("touch new; cat kept")).stdout == b"1\n"
    assert len(asked) == 2


@pytest.mark.parametrize("isolation", ["container", "container+slot"])
async def test_what_has_forked_as_often_as_it_may_goes_with_its_sandbox(
    backend: DockerBackend, isolation: IsolationLevel
) -> None:
    async with await backend.open(_ask("container+slot")) as other:
        box = await backend.open(_ask(isolation))
        assert await fill_with_processes(box, 3000) == 1024
        (uid,) = (await other.exec("id -u")).output.split()
        async with asyncio.timeout(60):
            await box.aclose()
        left = await other.exec("cat /proc/[0-9]*/status | grep '^Uid:'")
        assert {line.split()[1] for line in left.output.splitlines()} <= {"0", uid}
        assert (await other.exec("echo on")).output == "on\n"


async def test_slots_whose_users_other_containers_have_too_share_one_limit(
    backend: DockerBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = dataclasses.replace(await backend.engine.facts(), few_users=True)

    async def facts() -> EngineFacts:
        return found

    monkeypatch.setattr(backend.engine, "facts", facts)
    async with await backend.open(_ask("container+slot")) as box:
        assert box.provenance["limits"]["pids"] == f"{16 * 1024 + 16} for all slots together"
        assert (await box.exec("ulimit -u")).output != "1024\n"
    with pytest.raises(SandboxRefusedError, match="share its pids here") as caught:
        await backend.open(_ask("container+slot", 40))
    assert "userns-remap" in (caught.value.hint or "")


async def test_a_crowd_of_shells_in_one_slot_hits_its_number_and_not_the_next_slot_s(backend: DockerBackend) -> None:
    ask = _ask("container+slot", 40)
    async with await backend.open(ask) as one, await backend.open(ask) as other:
        crowd = await one.processes.start("for i in {1..60}; do sleep 60 & done; true")

        async def hits_the_number() -> bool:
            return b"Resource temporarily unavailable" in (await one.processes.read(crowd.id)).data

        assert await eventually(hits_the_number)
        found = await other.exec("for i in {1..20}; do sleep 60 & done; jobs -r | wc -l")
        assert found.output == "20\n"
