"""Several sandboxes in one container: what they share, and what they must not."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from hermes_backend_docker.backend import DockerBackend
from hermes_backend_docker.containers.ownership import POOL, container_name
from hermes_backend_docker.options import DockerOptions
from hermes_core.contracts.errors import BackendError, SandboxLostError, SandboxRefusedError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_sandbox import LeaseBook
from hermes_sandbox.backends import AgentSandbox as Sandbox
from hermes_sandbox.backends import first_uid
from hermes_testing.separation import require_separation

pytestmark = pytest.mark.component("docker")


def _ask(**fields: Any) -> SandboxSpec:
    return SandboxSpec(isolation="container+slot", network="none", **fields)


def _pool_containers(handle: str) -> list[str]:
    asked = ["docker", "ps", "-aq", "--filter", f"label={POOL}={handle}"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()


async def _user(sandbox: Sandbox) -> int:
    return int((await sandbox.exec("id -u")).output)


def _pool(backend: DockerBackend) -> str:
    return str(backend.handle(_ask(), "x")["pool"])


@pytest_asyncio.fixture
async def two(backend: DockerBackend) -> AsyncIterator[tuple[Sandbox, Sandbox]]:
    async with await backend.open(_ask()) as one, await backend.open(_ask()) as other:
        yield one, other


async def test_slots_share_a_container_and_have_users_of_their_own(
    backend: DockerBackend, two: tuple[Sandbox, Sandbox]
) -> None:
    one, other = two
    assert len(await asyncio.to_thread(_pool_containers, _pool(backend))) == 1
    first, second = sorted([await _user(sandbox) for sandbox in two])
    found = {(await sandbox.exec("id -u; stat -c '%a %u' .; umask")).output for sandbox in two}
    assert found == {f"{uid}\n700 {uid}\n0077\n" for uid in (first, second)}
    assert second == first + 1
    assert one.workspace != other.workspace
    assert list(one.provenance["lacks"]) == ["private_tmp"]
    assert one.provenance["limits"]["pids"] == "1024 of its user, by RLIMIT_NPROC"


async def test_a_slot_cannot_read_signal_or_trace_another_one(two: tuple[Sandbox, Sandbox]) -> None:
    one, other = two
    await require_separation(other)
    await one.write_file("secret", b"mine", mode=0o666)
    await one.exec("sleep 600 & echo $! > pid; (umask; echo also > /tmp/mine)")
    pid = (await one.read_file("pid")).decode().strip()
    attempts = [
        f"cat {one.workspace}/secret",
        f"ls {one.workspace}",
        f"ls {Path(one.workspace).parent}",
        f"kill -9 {pid}",
        f"cat /proc/{pid}/environ",
        f"ls /proc/{pid}/fd",
        f"ls /proc/{pid}/cwd/",
        "cat /tmp/mine",
        "rm /tmp/mine",
        f"touch {one.workspace}/x",
        "kill -9 1",
    ]
    for attempt in attempts:
        assert (await other.exec(f"{attempt} </dev/null 2>/dev/null")).exit_code != 0, attempt
    await other.exec("kill -9 -1")
    assert (await one.exec("kill -0 $(cat pid) && cat secret")).output == "mine"
    for path in (f"{one.workspace}/secret", "link"):
        await other.exec(f"ln -sf {one.workspace}/secret link")
        with pytest.raises(PermissionError):
            await other.read_file(path)


async def test_a_slot_that_closes_takes_its_processes_and_files_with_it(
    backend: DockerBackend, two: tuple[Sandbox, Sandbox]
) -> None:
    one, other = two
    gone = await backend.open(_ask())
    uid = await _user(gone)
    await gone.exec("setsid sleep 600 & trap '' TERM; mkdir -p a/b; chmod 0 a/b; (sleep 600 &) ; touch f")
    await gone.aclose()
    found = await other.exec(f"grep -l '^Uid:.{uid}' /proc/[0-9]*/status 2>/dev/null")
    assert found.output == ""
    left = await asyncio.to_thread(
        subprocess.run,
        ["docker", "exec", *_pool_containers(_pool(backend)), "ls", str(Path(one.workspace).parent)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert sorted(left.stdout.split()) == sorted(Path(sandbox.workspace).name for sandbox in two)


async def test_a_user_s_number_is_never_given_to_another_slot_of_a_container(backend: DockerBackend) -> None:
    seen = []
    for _ in range(3):
        async with await backend.open(_ask()) as sandbox:
            await sandbox.exec("echo left > /tmp/left-$(id -u)")
            seen.append(await _user(sandbox))
    assert seen == [seen[0], seen[0] + 1, seen[0] + 2]


async def test_containers_have_users_of_their_own_where_the_engine_shows_them_all(backend: DockerBackend) -> None:
    """The kernel counts a user's processes over all containers."""
    assert first_uid("a" * 16, few=False) != first_uid("b" * 16, few=False)
    assert first_uid("a" * 16, few=True) == first_uid("b" * 16, few=True) == 20000
    assert all(0 < first_uid(f"{number:016x}", few=False) < 2**31 - 2**15 for number in range(0, 2**64, 2**50 + 7))


async def test_containers_are_full_at_their_number_of_slots(image: str, tmp_path: Path) -> None:
    made = DockerBackend(DockerOptions(image=image, pull="never", slots_per_container=2))
    made.lease_dir = tmp_path
    try:
        opened = await asyncio.gather(*(made.open(_ask()) for _ in range(5)))
        assert len(_pool_containers(_pool(made))) == 3
        await asyncio.gather(*(sandbox.aclose() for sandbox in opened))
        # Those that are empty wait for the next for a while.
        async with await made.open(_ask()) as sandbox:
            assert (await sandbox.exec("echo again")).output == "again\n"
        assert len(_pool_containers(_pool(made))) == 3
    finally:
        await made.aclose()
    assert _pool_containers(_pool(made)) == []
    assert LeaseBook(tmp_path).read() == ([], [])


async def test_an_old_container_accepts_no_new_sandbox(image: str, tmp_path: Path) -> None:
    made = DockerBackend(DockerOptions(image=image, pull="never", container_ttl=1e-6))
    made.lease_dir = tmp_path
    try:
        first, second = [await made.open(_ask()) for _ in range(2)]
        assert len(_pool_containers(_pool(made))) == 2
        await first.aclose()
        assert len(_pool_containers(_pool(made))) == 1
        assert (await second.exec("echo still here")).output == "still here\n"
        await second.aclose()
        assert _pool_containers(_pool(made)) == []
    finally:
        await made.aclose()


async def test_a_container_that_goes_takes_its_slots_and_the_next_gets_another(backend: DockerBackend) -> None:
    first, second = [await backend.open(_ask()) for _ in range(2)]
    (container,) = _pool_containers(_pool(backend))
    call = asyncio.create_task(first.exec("sleep 600"))
    await second.exec("true")
    await asyncio.to_thread(subprocess.run, ["docker", "rm", "-f", container], check=True, capture_output=True)
    with pytest.raises(SandboxLostError, match="killed or removed by somebody else"):
        await asyncio.wait_for(call, 60)
    with pytest.raises(SandboxLostError):
        await second.exec("true")
    async with await backend.open(_ask()) as third:
        assert (await third.exec("echo fresh")).output == "fresh\n"
    await asyncio.gather(first.aclose(), second.aclose())


async def test_a_frozen_slot_can_be_read_and_not_written_and_is_deleted_in_the_end(
    backend: DockerBackend, two: tuple[Sandbox, Sandbox]
) -> None:
    async with await backend.open(_ask()) as frozen:
        await frozen.exec("mkdir -p a/b; echo 1 > a/b/f; ln -s /etc out; chmod 0 a/b")
        await frozen.freeze()
        assert (await frozen.exec("cat a/b/f")).output == "1\n"
        for attempt in ("echo 2 > a/b/f", "rm -f a/b/f", "touch new", "chmod 777 a", "rm -rf a"):
            assert (await frozen.exec(attempt)).exit_code != 0, attempt
        assert (await two[0].exec(f"cat {frozen.workspace}/a/b/f")).exit_code == 1
        workspace = frozen.workspace
    assert (await two[0].exec(f"stat {workspace}; stat -c %u /etc")).stdout == b"0\n"
    assert (await two[0].exec(f"stat {workspace}")).exit_code == 1


async def test_limits_of_one_slot_alone_are_refused(backend: DockerBackend) -> None:
    with pytest.raises(SandboxRefusedError, match="share its cpu, memory_mb:") as caught:
        await backend.check(_ask(memory_mb=64, cpu=1.0))
    assert "--isolation container" in (caught.value.hint or "")


async def test_slots_that_are_root_are_refused(image: str) -> None:
    with pytest.raises(SandboxRefusedError, match="cannot all be root"):
        DockerBackend(DockerOptions(image=image, user="root")).refuse(_ask())


async def test_a_shared_container_is_not_removed_for_the_sake_of_one_slot(
    backend: DockerBackend, two: tuple[Sandbox, Sandbox]
) -> None:
    with pytest.raises(BackendError, match="shares container hermes-") as caught:
        await backend.reclaim(backend.handle(_ask(), two[0].id))
    assert "sandboxes kill" in (caught.value.hint or "")
    assert (await two[1].exec("echo alive")).output == "alive\n"


async def test_the_container_of_slots_has_a_lease_of_its_own(backend: DockerBackend) -> None:
    async with await backend.open(_ask()) as sandbox:
        assert backend.lease_dir is not None
        leases = LeaseBook(backend.lease_dir).read()[0]
        names = subprocess.run(["docker", "ps", "--format", "{{.Names}}"], capture_output=True, text=True, check=True)
        there = {lease.sandbox_id for lease in leases if container_name(lease.sandbox_id) in names.stdout.split()}
        assert {lease.sandbox_id for lease in leases} - there == {sandbox.id}
        assert len(there) == 1


async def test_a_slot_that_stops_all_processes_of_its_user_blocks_no_other_slot(two: tuple[Sandbox, Sandbox]) -> None:
    # It can stop a process that is its user's already and does not run its program yet; the agent waits for that.
    one, other = two
    await require_separation(one)
    stop_all = "end=$((SECONDS + 60)); while kill -0 $$; do :; done; while ((SECONDS < end)); do kill -STOP -1; done"
    await one.exec(f"({stop_all}) </dev/null >/dev/null 2>&1 &")
    for _ in range(40):
        await one.processes.start("true")
    assert (await other.exec("echo free")).output == "free\n"
    await one.renew()
    assert (await one.exec("echo free")).output == "free\n"


async def test_the_agent_reads_no_output_of_one_slot_to_another(two: tuple[Sandbox, Sandbox]) -> None:
    one, other = two
    await one.exec("head -c 200000 /dev/zero | tr '\\0' s")
    for fd in range(64):
        with contextlib.suppress(OSError, ValueError):
            assert b"sss" not in await other.read_file(f"/proc/self/fd/{fd}")


async def test_commands_give_way_to_the_agent_of_their_container_for_good(two: tuple[Sandbox, Sandbox]) -> None:
    # Thousands of them that compute would keep it from answering anybody.
    ask = "import os; print(os.sched_getscheduler(0) == os.SCHED_IDLE)"
    back = "import os; os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))"
    assert (await two[0].exec(f"python3 -c '{ask}'")).output == "True\n"
    assert "PermissionError" in (await two[0].exec(f"python3 -c '{back}'")).output


async def test_what_a_slot_has_left_anywhere_in_the_container_goes_with_it(
    backend: DockerBackend, two: tuple[Sandbox, Sandbox]
) -> None:
    """Files, shared memory, semaphores and queues; those of the others stay."""
    one, other = two
    leave = (
        "n=note-$(id -u); for d in /tmp /var/tmp /dev/shm; do mkdir -p $d/$n/a && echo note > $d/$n/f; done; "
        'ipcmk -M 4096 -Q -S 2; python3 -c "import ctypes, os; '
        "print(ctypes.CDLL(None).mq_open(b'/note-%d' % os.getuid(), os.O_CREAT, 0o600, None))\""
    )
    for sandbox in two:
        assert (await sandbox.exec(leave)).exit_code == 0
    uid = await _user(one)
    container = _pool_containers(_pool(backend))[0]
    look = "find / -xdev -user %d; find /dev/shm /dev/mqueue -user %d; grep -c ' %d ' /proc/sysvipc/*"
    assert len(_inside(container, look % (uid, uid, uid))) > 7
    await one.aclose()
    assert _inside(container, look % (uid, uid, uid)) == [f"/proc/sysvipc/{kind}:0" for kind in ("msg", "sem", "shm")]
    uid = await _user(other)
    assert len(_inside(container, look % (uid, uid, uid))) > 7


def _inside(container: str, script: str) -> list[str]:
    asked = ["docker", "exec", container, "sh", "-c", script]
    return sorted(subprocess.run(asked, capture_output=True, text=True, check=False).stdout.splitlines())
