"""Pools whose members are clusters: Slurm beside this machine, and Ray; what a killed caller leaves is collected."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from run_engines import task

from hermes_core.contracts.errors import SandboxLostError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_sandbox import LeaseBook, SandboxReclaimer
from hermes_testing import isolated_registry
from hermes_testing.watching import eventually, processes_here, sleep_token

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
IMAGE = "hermes-test:2"
PLUGINS = (
    "hermes_pool.plugin",
    *(f"hermes_backend_{name}.plugin" for name in ("docker", "ssh", "slurm", "ray")),
)
SLURM = pytest.mark.component("slurm")


def support(package, module):
    """Import what a backend's own tests start their engine with."""
    sys.path.append(str(ROOT / "plugins" / package / "tests" / "support"))
    return importlib.import_module(module)


@pytest.fixture(autouse=True)
def _outside(monkeypatch):
    """Whoever runs the tests may do so in an allocation of their own."""
    for name in ("SLURM_JOB_ID", "SLURM_CONF"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def slurm():
    cluster = support("hermes-backend-slurm", "slurm_cluster").SlurmCluster().start()
    yield cluster
    cluster.stop()


@pytest.fixture(scope="module")
def ray(tmp_path_factory):
    # A process has one connection; that of the backend's own tests, if they have run here, is made again afterwards.
    framework = pytest.importorskip("ray")
    theirs = framework.get_runtime_context().gcs_address if framework.is_initialized() else None
    framework.shutdown()
    cluster = support("hermes-backend-ray", "ray_cluster").RayCluster.shared(tmp_path_factory.getbasetemp())
    yield cluster
    framework.shutdown()
    cluster.close()
    if theirs is not None:
        framework.init(theirs, log_to_driver=False, logging_level="ERROR")


@pytest.fixture
def root(tmp_path):
    """The directory of all sandboxes, which is empty in the end."""
    folder = tmp_path / "root"
    folder.mkdir()
    yield folder
    assert list(folder.iterdir()) == []


def mixed_pool(slurm, root):
    """This machine and the two nodes of a Slurm."""
    nodes = {"conf": str(slurm.conf), "job_id": None, "nodes": 2, "queue_timeout": 60, "root_dir": str(root)}
    members = [
        {"backend": "local", "options": {"slots_per_agent": 4, "root_dir": str(root)}},
        {"backend": "slurm", "options": nodes},
    ]
    return {"backends": members, "max_hosts": 2, "slots_per_host": 2, "acquire_timeout": 60}


def of_ray(ray, root):
    """The nodes of a Ray cluster."""
    return {
        "backend": "ray",
        "options": {"address": ray.address, "root_dir": str(root), "pool": {"max_hosts": 2}},
        "max_hosts": 2,
        "slots_per_host": 2,
        "acquire_timeout": 60,
    }


@pytest.fixture(scope="module")
def docker():
    build = ROOT / "hermes_backend_docker" / "tests" / "support" / "build_image.sh"
    known = subprocess.run(["docker", "image", "inspect", IMAGE], capture_output=True, check=False)
    if known.returncode:
        subprocess.run([build, IMAGE], check=True, capture_output=True)


@pytest.fixture(scope="module")
def ssh(tmp_path_factory):
    server = support("hermes-backend-ssh", "sshd_server").SshServer(tmp_path_factory.mktemp("ssh") / "sshd").start()
    yield server
    server.stop()


def of_docker(_docker, _root):
    """Containers of this machine's engine, each shared by two users."""
    options = {"image": IMAGE, "pull": "never"}
    return {"backend": "docker", "options": options, "max_hosts": 2, "slots_per_host": 2, "acquire_timeout": 60}


def of_ssh(ssh, root):
    """A machine by ssh, beside this one."""
    members = [
        {"backend": "local", "options": {"slots_per_agent": 2, "root_dir": str(root)}},
        {"backend": "ssh", "options": {**ssh.options, "root_dir": "/tmp"}},
    ]
    return {"backends": members, "max_hosts": 1, "slots_per_host": 2, "acquire_timeout": 60}


@pytest.fixture
async def pool(tmp_path, root):
    """Makes the backend `pool` as a run does; it is closed in the end, and no lease is left."""
    made = []

    def make(options):
        backend = isolated_registry(*PLUGINS).create("backend", "pool", options)
        backend.lease_dir = tmp_path / "leases"
        made.append(backend)
        return backend

    yield make
    for backend in made:
        await backend.aclose()
    assert LeaseBook(tmp_path / "leases").read() == ([], [])


def member_of(sandbox):
    return sandbox.provenance["member"]


async def echo_in_sandbox(backend, number):
    async with await backend.open(SandboxSpec()) as sandbox:
        return (await sandbox.exec(f"echo {number}")).output, member_of(sandbox)


@SLURM
async def test_sandboxes_go_to_this_machine_and_to_the_nodes_of_a_slurm(pool, slurm, root, tmp_path):
    """Without a `check` before: who opens the first sandbox there gets the allocation, and leases name its nodes."""
    backend = pool(mixed_pool(slurm, root))
    sandboxes = await asyncio.gather(*(backend.open(SandboxSpec()) for _ in range(8)))
    assert sorted(map(member_of, sandboxes)) == ["local#1"] * 4 + ["slurm#2"] * 4
    there = [sandbox for sandbox in sandboxes if member_of(sandbox) == "slurm#2"]
    assert {sandbox.provenance["node"] for sandbox in there} == {"n1", "n2"}
    leases = {lease.sandbox_id: lease for lease in LeaseBook(tmp_path / "leases").read()[0]}
    for sandbox in there:
        lease = leases[sandbox.id]
        assert (lease.backend, lease.handle["job_id"]) == ("slurm", sandbox.provenance["job_id"])
        assert set(lease.handle["nodes"]) == {"n1", "n2"}
    answers = await asyncio.gather(*(sandbox.exec("echo $((6*7))") for sandbox in sandboxes))
    assert {answer.output for answer in answers} == {"42\n"}
    for sandbox in sandboxes:
        await sandbox.aclose()
    await backend.aclose()
    assert await eventually(lambda: slurm.jobs() == [], seconds=60)


@SLURM
async def test_more_trajectories_than_slots_finish_on_both(pool, slurm, root):
    backend = pool(mixed_pool(slurm, root))
    await backend.check(SandboxSpec())
    answers = await asyncio.wait_for(asyncio.gather(*(echo_in_sandbox(backend, n) for n in range(24))), 120)
    assert [output for output, _ in answers] == [f"{n}\n" for n in range(24)]
    assert {member for _, member in answers} == {"local#1", "slurm#2"}


@SLURM
async def test_an_allocation_that_ends_costs_its_own_sandboxes_and_the_next_name_the_new_one(
    pool, slurm, root, tmp_path
):
    backend = pool(mixed_pool(slurm, root))
    sandboxes = await asyncio.gather(*(backend.open(SandboxSpec()) for _ in range(8)))
    (job,) = slurm.jobs()
    slurm.call("scancel", job)
    answers = await asyncio.wait_for(
        # Whatever takes how long: what is there ends with the allocation only.
        asyncio.gather(
            *(
                sandbox.exec("sleep 3; echo fine" if member_of(sandbox) == "local#1" else "sleep 600")
                for sandbox in sandboxes
            ),
            return_exceptions=True,
        ),
        120,
    )
    for sandbox, answer in zip(sandboxes, answers, strict=True):
        if member_of(sandbox) == "local#1":
            assert getattr(answer, "output", answer) == "fine\n"
        else:
            assert isinstance(answer, SandboxLostError)
        await asyncio.wait_for(sandbox.aclose(), 60)
    again = await asyncio.wait_for(asyncio.gather(*(backend.open(SandboxSpec()) for _ in range(8))), 120)
    jobs = {sandbox.provenance["job_id"] for sandbox in again if member_of(sandbox) == "slurm#2"}
    assert len(jobs) == 1
    assert jobs != {job}
    leases = {lease.sandbox_id: lease for lease in LeaseBook(tmp_path / "leases").read()[0]}
    assert {leases[one.id].handle["job_id"] for one in again if member_of(one) == "slurm#2"} == jobs
    for sandbox in again:
        await sandbox.aclose()


async def test_sandboxes_go_to_several_nodes_of_a_ray_cluster(pool, ray, root, tmp_path):
    backend = pool(of_ray(ray, root))
    sandboxes = await asyncio.gather(*(backend.open(SandboxSpec()) for _ in range(4)))
    assert len({sandbox.provenance["node"] for sandbox in sandboxes}) == 2
    leases = LeaseBook(tmp_path / "leases").read()[0]
    assert {(lease.backend, lease.handle["address"]) for lease in leases} == {("ray", ray.address)}
    for sandbox in sandboxes:
        assert (await sandbox.exec("echo $((6*7))")).output == "42\n"
        await sandbox.aclose()
    answers = await asyncio.wait_for(asyncio.gather(*(echo_in_sandbox(backend, n) for n in range(12))), 120)
    assert answers == [(f"{n}\n", "ray#1") for n in range(12)]


OTHERS = [
    pytest.param("docker", of_docker, {"docker#1"}, marks=pytest.mark.component("docker"), id="docker"),
    pytest.param("ssh", of_ssh, {"local#1", "ssh#2"}, marks=pytest.mark.component("sshd"), id="ssh"),
]


@pytest.mark.parametrize(("engine", "options", "members"), OTHERS)
async def test_sandboxes_share_the_places_of_other_engines(engine, options, members, request, pool, root):
    backend = pool(options(request.getfixturevalue(engine), root))
    # All slots at once: of short sandboxes one after another a fast member may serve all before another has begun.
    sandboxes = await asyncio.wait_for(asyncio.gather(*(backend.open(SandboxSpec()) for _ in range(4))), 120)
    assert {member_of(sandbox) for sandbox in sandboxes} == members
    await asyncio.gather(*(sandbox.aclose() for sandbox in sandboxes))
    answers = await asyncio.wait_for(asyncio.gather(*(echo_in_sandbox(backend, n) for n in range(8))), 120)
    assert [output for output, _ in answers] == [f"{n}\n" for n in range(8)]
    assert {member for _, member in answers} <= members
    assert backend.stats().capacity == 4


@pytest.mark.parametrize(("engine", "options", "members"), OTHERS)
async def test_what_a_killed_caller_left_on_other_engines_is_collected(
    engine, options, members, request, root, tmp_path
):
    token = sleep_token()
    ids = await kill_caller(options(request.getfixturevalue(engine), root), tmp_path / "leases", token, 4)
    assert len(members) >= 1
    assert set(ids) <= await collect_leases(tmp_path / "leases")
    assert await eventually(lambda: processes_here(token) == [], seconds=60)


CALLER = """
import asyncio, json, sys
from pathlib import Path
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_testing import isolated_registry

async def own(plugins, options, leases, token, count):
    backend = isolated_registry(*json.loads(plugins)).create("backend", "pool", json.loads(options))
    backend.lease_dir = Path(leases)
    sandboxes = await asyncio.gather(*(backend.open(SandboxSpec()) for _ in range(int(count))))
    for sandbox in sandboxes:
        await sandbox.exec(f"setsid sleep {token} >/dev/null 2>&1 & true")
    print(json.dumps([sandbox.id for sandbox in sandboxes]), flush=True)
    await asyncio.Event().wait()

asyncio.run(own(*sys.argv[1:]))
"""


async def kill_caller(options, leases, token, count):
    """Open sandboxes in a process that is killed then; returns their ids."""
    command = [sys.executable, "-c", CALLER, json.dumps(PLUGINS), json.dumps(options), str(leases), token, str(count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as caller:
        said = await asyncio.to_thread(caller.stdout.readline)
        caller.send_signal(signal.SIGKILL)
    assert said, "the caller has ended by itself"
    return json.loads(said)


async def collect_leases(leases):
    """What `sandboxes gc` does, with nothing but the leases to go by."""
    done = await SandboxReclaimer(LeaseBook(leases), isolated_registry(*PLUGINS)).collect(backends=())
    assert (done.failed, done.problems) == ({}, [])
    assert LeaseBook(leases).read() == ([], [])
    return set(done.removed)


@SLURM
async def test_what_a_killed_caller_left_on_slurm_and_here_is_collected(slurm, root, tmp_path):
    token = sleep_token()
    ids = await kill_caller(mixed_pool(slurm, root), tmp_path / "leases", token, 8)
    # The allocation ends with its caller, by itself.
    assert await eventually(lambda: slurm.jobs() == [] and slurm.steps() == [], seconds=60)
    assert set(ids) <= await collect_leases(tmp_path / "leases")
    assert await eventually(lambda: processes_here(token) == [], seconds=60)
    assert await eventually(lambda: slurm.jobs() == [], seconds=60)


async def test_what_a_killed_caller_left_on_ray_is_collected(ray, root, tmp_path):
    token = sleep_token()
    ids = await kill_caller(of_ray(ray, root), tmp_path / "leases", token, 4)
    assert await eventually(lambda: processes_here(token) == [], seconds=60)
    assert await collect_leases(tmp_path / "leases") == set(ids)


@pytest.mark.parametrize(
    ("engine", "members"),
    [pytest.param("slurm", {"local#1", "slurm#2"}, marks=SLURM), ("ray", {"ray#1"})],
    ids=["local and slurm", "ray"],
)
def test_a_run_goes_to_such_a_pool_by_its_config(engine, members, request, hermes, root, tmp_path):
    options = {"slurm": mixed_pool, "ray": of_ray}[engine](request.getfixturevalue(engine), root)
    (tmp_path / "tasks.jsonl").write_text("".join(f"{json.dumps(task(word))}\n" for word in ("one", "two", "three")))
    config = {"tasks": "tasks.jsonl", "model": "oracle", "mistake_rate": 0, "group_size": 4, "out": "out"}
    config |= {"terminal_backend": "pool", "backend_options": options, "isolation": "none", "max_concurrent": 12}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(config))
    environment = {"PATH": os.environ["PATH"], "XDG_STATE_HOME": str(tmp_path)}
    result = hermes("run", "--config", "run.yaml", env=environment)
    assert result.returncode == 0, result.stderr
    rows = [json.loads(line) for line in (tmp_path / "out" / "rollouts.jsonl").read_text().splitlines()]
    assert [row["reward"] for row in rows] == [1.0] * 12
    assert {row["provenance"]["sandbox"]["member"] for row in rows} == members
    left = hermes("sandboxes", "ps", "--json", env=environment)
    assert json.loads(left.stdout)["sandboxes"] == []
