"""Jobs and containers come, are shared, and go; what a dead caller leaves is found."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from nomad_backends import Backends
from nomad_standin import StandIn

from hermes_backend_nomad.backend import NomadBackend
from hermes_core.contracts.errors import BackendError, SandboxLostError, SandboxRefusedError
from hermes_core.contracts.sandbox import Sandbox, SandboxSpec
from hermes_sandbox import LeaseBook
from hermes_testing.watching import eventually

pytestmark = pytest.mark.component("bwrap")
SLOT = SandboxSpec(isolation="container+slot", network="none")
ALONE = SandboxSpec(isolation="container", network="none")

_CALLER = """
import asyncio, sys
from hermes_backend_nomad.backend import NomadBackend
from hermes_backend_nomad.options import NomadOptions
from hermes_core.contracts.sandbox import SandboxSpec

async def main(address):
    backend = NomadBackend(NomadOptions(nomad_address=address, sandbox_image="hermes:1", slots_per_container=2))
    opened = [await backend.open(SandboxSpec(isolation="container+slot", network="none")) for _ in range(3)]
    calls = [asyncio.ensure_future(sandbox.exec("sleep 600")) for sandbox in opened]
    print(backend.run_id, flush=True)
    await asyncio.gather(*calls)

asyncio.run(main(sys.argv[1]))
"""


def _allocation(sandbox: Sandbox) -> str:
    return str(sandbox.provenance["allocation"]["id"])


async def test_a_job_has_a_group_for_each_container_and_goes_with_the_last(
    standin: StandIn, backends: Backends
) -> None:
    backend = backends(slots_per_container=2, min_containers=0, idle_timeout=0)
    first, second, third = [await backend.open(SLOT) for _ in range(3)]
    ((name, job),) = standin.tell("jobs").items()
    assert name == f"atropos-sandbox-agent-env-{backend.run_id}"
    assert [(group["Name"], group["Count"]) for group in job["TaskGroups"]] == [("sandbox-1", 1), ("sandbox-2", 1)]
    assert len({_allocation(sandbox) for sandbox in (first, second, third)}) == 2
    assert (await third.exec("echo third")).output == "third\n"
    await first.aclose()
    await second.aclose()

    async def one_left() -> bool:
        return [group["Name"] for group in standin.tell("jobs")[name]["TaskGroups"]] == ["sandbox-2"]

    # Only the idle container has ended: the sandbox in the other one continues.
    assert await eventually(one_left, seconds=60)
    assert [found["ID"] for found in standin.running()] == [_allocation(third)]
    assert (await third.exec("echo still")).output == "still\n"
    await third.aclose()

    async def no_jobs() -> bool:
        return standin.tell("jobs") == {}

    assert await eventually(no_jobs, seconds=60)
    # And comes again.
    async with await backend.open(SLOT) as fourth:
        assert (await fourth.exec("echo again")).output == "again\n"


async def test_slots_of_a_container_have_separate_users_and_no_server_to_call(
    backend: NomadBackend,
) -> None:
    async with await backend.open(SLOT) as one, await backend.open(SLOT) as other:
        assert _allocation(one) == _allocation(other)
        users = [int((await sandbox.exec("id -u")).output) for sandbox in (one, other)]
        assert users[0] != users[1]
        assert min(users) > 1 << 20
        await one.write_file("secret", b"mine", mode=0o666)
        await one.exec("sleep 600 & echo $! > pid")
        pid = (await one.read_file("pid")).decode().strip()
        for attempt in (f"cat {one.workspace}/secret", f"ls {Path(one.workspace).parent}", f"kill -9 {pid}"):
            assert (await other.exec(f"{attempt} 2>/dev/null")).exit_code != 0, attempt
        assert (await other.exec("cat /proc/net/tcp /proc/net/unix | wc -l")).output == "2\n"
        assert (await one.exec("kill -0 $(cat pid) && cat secret")).output == "mine"


async def test_containers_of_their_own_are_never_used_twice(standin: StandIn, backends: Backends) -> None:
    backend = backends(min_containers=0)
    seen = set()
    for _ in range(2):
        async with await backend.open(ALONE) as sandbox:
            seen.add(_allocation(sandbox))
            await sandbox.exec("echo left > /tmp/left")
            assert (await sandbox.exec("ls /tmp/left")).exit_code == 0
    async with await backend.open(ALONE) as sandbox:
        assert _allocation(sandbox) not in seen
        assert (await sandbox.exec("ls /tmp/left 2>/dev/null")).exit_code != 0
    assert len(seen) == 2
    assert len(standin.tell("seen")) > 0


async def test_limits_reach_nomad_as_the_driver_knows_them(standin: StandIn, backends: Backends) -> None:
    backend = backends(core_mhz=2000, docker_config={"ulimit": {"nofile": "4096"}})
    spec = SandboxSpec(isolation="container", network="none", cpu=0.5, memory_mb=300, pids=99)
    async with await backend.open(spec):
        (job,) = standin.tell("jobs").values()
        (group,) = job["TaskGroups"]
        (task,) = group["Tasks"]
        assert (task["Resources"]["CPU"], task["Resources"]["MemoryMB"]) == (1000, 300)
        config = task["Config"]
        assert (config["pids_limit"], config["cpu_hard_limit"], config["network_mode"]) == (115, True, "none")
        assert (config["cap_drop"], config["security_opt"]) == (["ALL"], ["no-new-privileges"])
        assert config["ulimit"] == {"nofile": "4096"}
        assert "privileged" not in config


async def test_what_lets_a_container_reach_its_node_is_recorded_as_weaker(backends: Backends) -> None:
    backend = backends(
        docker_config={"ulimit": {"nofile": "4096"}, "volumes": ["/srv/data:/data"], "shm_size": 1 << 20}
    )
    async with await backend.open(SLOT) as sandbox:
        assert sandbox.provenance["weaker"] == ["docker_config sets volumes"]


async def test_what_cannot_be_enforced_is_refused_before_anything_starts(standin: StandIn, backends: Backends) -> None:
    before = len(standin.tell("seen"))
    wanted = {
        "core_mhz": SandboxSpec(isolation="container", cpu=1.0),
        "share its memory_mb": SandboxSpec(isolation="container+slot", memory_mb=64),
        "disk_mb": SandboxSpec(isolation="container", disk_mb=64),
        "gvisor": SandboxSpec(isolation="gvisor"),
    }
    for said, spec in wanted.items():
        with pytest.raises(SandboxRefusedError, match=said):
            await backends().open(spec)
    singular = backends(driver="singularity", singularity_image="/images/x.sif")
    for said, spec in {
        "all have the same user": SandboxSpec(isolation="container+slot"),
        "raw_exec does not enforce memory_mb": SandboxSpec(isolation="container", memory_mb=64),
        "has one for all sandboxes": SandboxSpec(isolation="container", image="debian:12"),
    }.items():
        with pytest.raises(SandboxRefusedError, match=said):
            await singular.open(spec)
    assert len(standin.tell("seen")) == before


async def test_a_sandbox_that_is_cancelled_while_its_container_starts_leaves_nothing(
    standin: StandIn, backends: Backends
) -> None:
    standin.faults(start_delay=60)
    backend = backends(min_containers=0)
    opening = asyncio.ensure_future(backend.open(SLOT))

    async def has_jobs() -> bool:
        return bool(await asyncio.to_thread(standin.tell, "jobs"))

    assert await eventually(has_jobs, seconds=60)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await backend.aclose()
    assert standin.tell("jobs") == {}
    assert LeaseBook(backends.leases).read() == ([], [])


async def test_a_job_that_is_kept_in_the_list_is_stopped_all_the_same(standin: StandIn, backends: Backends) -> None:
    backend = backends(purge_job_on_shutdown=False)
    async with await backend.open(SLOT):
        pass
    await backend.aclose()
    ((name, job),) = standin.tell("jobs").items()
    assert (job["Stop"], job["Status"]) == (True, "dead")
    assert standin.running() == []
    await backends().api.deregister(name, purge=True)


@pytest.fixture
def killed_run(standin: StandIn, tmp_path: Path) -> str:
    """The id of a run with a killed process; its leases are below tmp_path."""
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    command = [sys.executable, "-c", _CALLER, standin.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as caller:
        assert caller.stdout is not None
        run_id = caller.stdout.readline().decode().strip()
        caller.send_signal(signal.SIGKILL)
        caller.wait(60)
    assert len(standin.running()) == 2
    return run_id


def _book(tmp_path: Path) -> LeaseBook:
    return LeaseBook(tmp_path / "hermes-core" / "sandboxes")


def _gc(tmp_path: Path) -> None:
    # The test must not remove leftovers in the machine's own temporary folder.
    (tmp_path / "tmp").mkdir()
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "TMPDIR": str(tmp_path / "tmp")}
    command = [sys.executable, "-m", "hermes_core.cli", "sandboxes", "gc"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_what_a_killed_caller_leaves_is_removed_by_gc(standin: StandIn, killed_run: str, tmp_path: Path) -> None:
    leases, problems = _book(tmp_path).read()
    assert problems == []
    assert {lease.backend for lease in leases} == {"nomad"}
    assert len(leases) == 4  # three sandboxes and their job
    _gc(tmp_path)
    assert standin.tell("jobs") == {}
    assert standin.running() == []
    assert _book(tmp_path).read() == ([], [])
    assert killed_run not in json.dumps(standin.tell("allocations"))


@pytest.mark.slow
async def test_what_a_killed_caller_leaves_is_found_without_its_leases(
    standin: StandIn, backends: Backends, killed_run: str
) -> None:
    living = backends()
    async with await living.open(SLOT) as sandbox:
        # For any name of its job.
        assert await backends(sandbox_job_id="another").sweep(remove=False) == [killed_run]
        assert len(standin.tell("jobs")) == 2
        assert await living.sweep() == [killed_run]
        # A job with a living owner stays.
        assert list(standin.tell("jobs")) == [f"atropos-sandbox-agent-env-{living.run_id}"]
        assert (await sandbox.exec("echo alive")).output == "alive\n"


@pytest.mark.slow
async def test_the_jobs_of_dead_owners_are_purged_at_the_start_on_request(
    standin: StandIn, backends: Backends, killed_run: str
) -> None:
    async with await backends().open(SLOT):
        assert len(standin.tell("jobs")) == 2
    async with await backends(purge_job_on_start=True, sandbox_job_id="another").open(SLOT):
        assert len(standin.tell("jobs")) >= 2
    assert any(name.endswith(killed_run) for name in standin.tell("jobs"))
    backend = backends(purge_job_on_start=True)
    async with await backend.open(SLOT):
        assert not any(name.endswith(killed_run) for name in standin.tell("jobs"))


async def test_a_job_that_others_use_is_not_purged_for_the_sake_of_one(backends: Backends) -> None:
    backend = backends()
    async with await backend.open(SLOT) as sandbox, await backend.open(SLOT) as other:
        with pytest.raises(BackendError, match=r"it shares job .* with others") as caught:
            await backends().reclaim(backend.handle(SLOT, sandbox.id))
        assert f"sandboxes kill {backend.run_id}" in (caught.value.hint or "")
        assert (await other.exec("echo alive")).output == "alive\n"
        # Killing the run itself ends all of it.
        (job,) = [lease for lease in LeaseBook(backends.leases).read()[0] if lease.sandbox_id == backend.run_id]
        await backends().reclaim(job.handle)
        with pytest.raises(SandboxLostError):
            await other.exec("echo dead")


async def test_a_job_that_cannot_be_purged_does_not_prevent_purging_the_others(
    monkeypatch: pytest.MonkeyPatch, backends: Backends
) -> None:
    backend = backends()
    asked: list[str] = []

    async def three_jobs(prefix: str) -> list[str]:
        return [f"{prefix}job-{number}" for number in range(3)]

    async def deregister(job: str, *, purge: bool) -> None:
        asked.append(job)
        if job == "job-0" and purge:
            raise BackendError("no")

    monkeypatch.setattr(backend, "_find_abandoned", three_jobs)
    monkeypatch.setattr(backend.api, "deregister", deregister)
    with pytest.raises(BackendError, match="no"):
        await backend.sweep()
    assert asked == ["job-0", "job-1", "job-2"]


async def test_a_job_of_another_cluster_is_not_looked_for_in_this_one(backends: Backends) -> None:
    handle = {"sandbox_id": "x", "job": "j-0123456789abcdef", "address": "http://elsewhere:4646"}
    with pytest.raises(BackendError, match="expected the Nomad at http://elsewhere:4646") as caught:
        await backends().reclaim(handle)
    assert "NOMAD_ADDR=http://elsewhere:4646" in (caught.value.hint or "")


@pytest.mark.parametrize(("variable", "word"), [("NOMAD_NAMESPACE", "apps"), ("NOMAD_REGION", "north")])
@pytest.mark.parametrize("then", ["set", "silent"])
async def test_a_job_of_another_namespace_or_region_is_not_taken_for_ended(
    monkeypatch: pytest.MonkeyPatch, backends: Backends, variable: str, word: str, then: str
) -> None:
    was_set = then == "set"
    named, silent = ({"NOMAD_ADDR": backends.address, variable: word}, {"NOMAD_ADDR": backends.address})
    for name, value in (named if was_set else silent).items():
        monkeypatch.setenv(name, value)
    handle = backends(nomad_address=None).handle(SLOT, "ab" * 8)
    monkeypatch.delenv(variable, raising=False)
    if not was_set:
        monkeypatch.setenv(variable, word)
    with pytest.raises(BackendError, match=f"of Nomad for job .*, got '{'' if was_set else word}|default'") as caught:
        await backends(nomad_address=None).reclaim(handle)
    assert f"{variable}={word if was_set else ''}" in (caught.value.hint or "")


async def test_a_frozen_slot_can_be_read_and_not_written(backend: NomadBackend) -> None:
    async with await backend.open(SLOT) as frozen, await backend.open(SLOT) as other:
        await frozen.exec("mkdir -p a/b; echo 1 > a/b/f; ln -s /etc out; chmod 0 a/b")
        await frozen.freeze()
        assert (await frozen.exec("cat a/b/f")).output == "1\n"
        for attempt in ("echo 2 > a/b/f", "rm -f a/b/f", "touch new", "chmod 777 a", "rm -rf a"):
            assert (await frozen.exec(attempt)).exit_code != 0, attempt
        assert (await other.exec(f"cat {frozen.workspace}/a/b/f 2>/dev/null")).exit_code == 1


async def test_a_hundred_kilobytes_and_what_a_url_changes_arrive_as_they_are(backend: NomadBackend) -> None:
    data = os.urandom(3_000_000)
    async with await backend.open(SLOT) as sandbox:
        await sandbox.write_file("all", data)
        assert await sandbox.read_file("all") == data
        assert (await sandbox.exec("printf '%s' 'a&b+c%41=;#\"?'")).output == 'a&b+c%41=;#"?'


async def test_a_job_that_cannot_be_ended_keeps_its_lease_until_it_can(standin: StandIn, backends: Backends) -> None:
    backend = backends()
    sandbox = await backend.open(SLOT)
    standin.faults(token="revoked")
    await sandbox.aclose()
    with pytest.raises(BackendError, match="403"):
        await backend.aclose()
    backends.made.remove(backend)
    (lease,) = LeaseBook(backends.leases).read()[0]
    assert (lease.sandbox_id, lease.handle["whole"]) == (backend.run_id, True)
    assert len(standin.tell("jobs")) == 1
    standin.faults()
    await backends().reclaim(lease.handle)
    assert standin.tell("jobs") == {}
