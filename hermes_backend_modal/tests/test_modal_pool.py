"""Several rollouts in one sandbox, from a pool: what they share, what they must not, how it grows and shrinks."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hermes_backend_modal.backend import ModalBackend
from hermes_backend_modal.options import ModalOptions
from hermes_core.contracts.errors import SandboxLostError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_pool import SlotPool, SlotUnavailableError
from hermes_sandbox import LeaseBook

pytestmark = pytest.mark.component("bwrap")
SPEC = SandboxSpec(isolation="container+slot", network="none")


def _backend(standin: Any, tmp_path: Path, **options: Any) -> ModalBackend:
    made = ModalBackend(ModalOptions(**{**standin.options, "min_sandboxes": 0, **options}))
    made.lease_dir = tmp_path
    return made


def _pool_sandboxes(standin: Any, backend: ModalBackend) -> list[dict[str, Any]]:
    return standin.running(hermes_pool=backend.handle(SPEC, "x")["pool"])


async def test_slots_share_a_sandbox_and_have_users_of_their_own(standin, tmp_path):
    backend = _backend(standin, tmp_path)
    async with await backend.open(SPEC) as one, await backend.open(SPEC) as other:
        assert len(_pool_sandboxes(standin, backend)) == 1
        found = {(await sandbox.exec("id -u; stat -c '%a %u' .; umask")).output for sandbox in (one, other)}
        assert found == {"20001\n700 20001\n0077\n", "20002\n700 20002\n0077\n"}
        await one.write_file("secret", b"mine", mode=0o666)
        await one.exec("sleep 600 & echo $! > pid")
        pid = (await one.read_file("pid")).decode().strip()
        attempts = [f"cat {one.workspace}/secret", f"ls {Path(one.workspace).parent}", f"kill -9 {pid}", "kill -9 1"]
        for attempt in attempts:
            assert (await other.exec(f"{attempt} </dev/null 2>/dev/null")).exit_code != 0, attempt
    await backend.aclose()
    assert _pool_sandboxes(standin, backend) == []
    assert LeaseBook(tmp_path).read() == ([], [])


async def test_the_next_slot_finds_nothing_of_the_one_before(standin, tmp_path):
    backend = _backend(standin, tmp_path)
    leave = "for d in /tmp /var/tmp /dev/shm; do mkdir $d/note; echo note > $d/note/f; done; ipcmk -M 4096 -Q -S 2"
    look = "ls -A /tmp /var/tmp /dev/shm | grep note; tail -qn +2 /proc/sysvipc/*"
    async with await backend.open(SPEC) as one:
        assert (await one.exec(leave)).exit_code == 0
    async with await backend.open(SPEC) as other:
        assert len(_pool_sandboxes(standin, backend)) == 1
        assert (await other.exec(look)).output == ""
    await backend.aclose()


async def test_trajectories_more_than_slots_all_finish_within_the_bounds(standin, tmp_path):
    backend = _backend(standin, tmp_path, slots_per_sandbox=2, max_sandboxes=2)
    most = 0

    async def one(number: int) -> str:
        nonlocal most
        async with await backend.open(SPEC) as sandbox:
            most = max(most, len(_pool_sandboxes(standin, backend)))
            return (await sandbox.exec(f"echo {number}")).output

    assert await asyncio.gather(*map(one, range(10))) == [f"{number}\n" for number in range(10)]
    assert most == 2
    await backend.aclose()


async def test_a_pool_that_is_full_says_so_in_time(standin, tmp_path):
    backend = _backend(standin, tmp_path, slots_per_sandbox=1, max_sandboxes=1)
    async with await backend.open(SPEC):
        assert isinstance(backend.host_pool, SlotPool)
        # Only now: the first one's time included the start of its sandbox.
        backend.host_pool.options.acquire_timeout = 0.1
        with pytest.raises(SlotUnavailableError):
            await asyncio.wait_for(backend.open(SPEC), 60)
    await backend.aclose()
    assert LeaseBook(tmp_path).read() == ([], [])


async def test_a_sandbox_that_ends_takes_its_slots_and_the_next_gets_another(standin, tmp_path):
    backend = _backend(standin, tmp_path)
    first, second = [await backend.open(SPEC) for _ in range(2)]
    (found,) = _pool_sandboxes(standin, backend)
    call = asyncio.create_task(first.exec("sleep 600"))
    await second.exec("true")
    standin.ask("end", sandbox=found["id"], status=3)
    with pytest.raises(SandboxLostError, match="has ended"):
        await asyncio.wait_for(call, 60)
    async with await backend.open(SPEC) as third:
        assert (await third.exec("echo fresh")).output == "fresh\n"
    await asyncio.gather(first.aclose(), second.aclose())
    await backend.aclose()
    assert _pool_sandboxes(standin, backend) == []


async def test_a_sandbox_in_the_second_half_of_its_lifetime_accepts_no_new_rollout(standin, tmp_path):
    backend = _backend(standin, tmp_path)
    backend.admitting = 0.0
    first, second = [await backend.open(SPEC) for _ in range(2)]
    assert len(_pool_sandboxes(standin, backend)) == 2
    for sandbox in (first, second):
        assert (await sandbox.exec("echo here")).output == "here\n"
        await sandbox.aclose()
    await backend.aclose()


async def test_the_pool_s_limits_are_the_options(standin, tmp_path):
    backend = _backend(standin, tmp_path, min_sandboxes=1, max_sandboxes=3, slots_per_sandbox=4, acquire_timeout=7)
    assert isinstance(backend.host_pool, SlotPool)
    options = backend.host_pool.options
    assert (options.min_hosts, options.max_hosts, options.slots_per_host, options.acquire_timeout) == (1, 3, 4, 7)
    await backend.aclose()
