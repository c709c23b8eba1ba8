"""A backend whose sandboxes share hosts: one agent, many slots."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest
from sandbox_support import UID, processes_of, wait_until_gone

from hermes_core.contracts.errors import BackendError, SandboxLostError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_core.specs import BackendSpec
from hermes_sandbox.backend.hosts.shared_hosts import SharedHost, SharedHostPool
from hermes_sandbox.backend.hosts.slot_host import SlotHost
from hermes_sandbox.backends import AgentBackend, AgentStream, SandboxHost
from hermes_sandbox.protocol.agent_process import AgentProcess
from hermes_sandbox.protocol.bootstrap import PYTHON_FLAGS
from hermes_testing.watching import begin


class Folder(SandboxHost):
    def __init__(self, log):
        self.environment = {"PATH": "/usr/bin:/bin"}
        self.log = log
        self.process = None

    async def start_agent(self) -> AgentStream:
        self.log.append("start")
        self.process = await AgentProcess.start(
            ["/usr/bin/env", "python3", *PYTHON_FLAGS], environment=dict(os.environ)
        )
        return self.process.stream

    async def stop_all(self) -> None:
        if self.process is not None:
            self.process.stream.writer.close()
            await self.process.end(60)
            self.process = None

    async def destroy(self) -> None:
        self.log.append("destroy")


class Pool(AgentBackend):
    declaration = BackendSpec(name="pool", summary="Shared folders.", target="nowhere:Pool")

    def __init__(self, root, *, limit=2, idle=0.0):
        super().__init__()
        self.root, self.limit, self.log = root, limit, []
        self.lease_dir = root / "leases"
        self.host_pool = self.agents = SharedHostPool(idle=idle)
        self.hosts = []

    async def make_host(self):
        self.hosts.append(Folder(self.log))
        return self.hosts[-1]

    async def create(self, spec, sandbox_id):
        def describe(_host, number):
            own = {"uid": UID + number, "gid": UID + number} if os.geteuid() == 0 else {}
            workspace = f"{self.root}/{sandbox_id}-{number}"
            # Not in /tmp, where an agent that is killed leaves it.
            return {"workspace": workspace, "state_dir": f"{workspace}/.state", "own_directory": True, **own}

        return SharedHost(self.agents, spec.image, self.make_host, limit=self.limit, describe=describe)


@pytest.fixture
async def pool():
    # Not tmp_path: its parents are closed to the users of slots.
    with tempfile.TemporaryDirectory(prefix="hermes-test-") as folder:
        Path(folder).chmod(0o755)
        made = Pool(Path(folder))
        yield made
        await made.aclose()
        assert [path.name for path in made.root.iterdir() if path.name != "leases"] == []


async def test_a_host_is_shared_up_to_its_limit_and_ends_with_its_last_sandbox(pool):
    boxes = await asyncio.gather(*(pool.open(SandboxSpec()) for _ in range(5)))
    assert pool.log == ["start"] * 3
    outputs = await asyncio.gather(*(box.exec("echo $PWD $HOME") for box in boxes))
    assert [result.output for result in outputs] == [f"{box.workspace} {box.workspace}\n" for box in boxes]
    for box in boxes:
        await box.aclose()
    assert pool.log == ["start"] * 3 + ["destroy"] * 3


async def test_renewing_one_sandbox_leaves_its_neighbour_alone(pool):
    one, other = await pool.open(SandboxSpec()), await pool.open(SandboxSpec())
    await other.exec("export X=1; sleep 300 & disown")
    await one.exec("export X=2; touch kept; sleep 300 & disown")
    waiting = await begin(one, "sleep 300")
    await one.renew()
    with pytest.raises(SandboxLostError):
        await waiting
    assert (await one.exec("echo ${X-gone} $(ls)")).output == "gone begun kept\n"
    assert (await other.exec("echo $X; jobs; pgrep -c -U $(id -u) sleep")).output.startswith("1\n")


async def test_a_host_that_is_lost_fails_its_own_sandboxes_only(pool):
    one, two, three = [await pool.open(SandboxSpec()) for _ in range(3)]
    await one.exec("(setsid sleep 300 >/dev/null 2>&1 & echo $! >pid)")
    pid = int(await one.read_file("pid"))
    os.kill(pool.hosts[0].process.pid, signal.SIGKILL)
    for box in (one, two):
        with pytest.raises(SandboxLostError):
            await box.exec("true")
        with pytest.raises(SandboxLostError):
            await box.renew()
    assert (await three.exec("echo fine")).output == "fine\n"
    four = await pool.open(SandboxSpec())
    assert (await four.exec("echo new")).output == "new\n"
    for box in (one, two, three, four):
        await box.aclose()
    os.kill(pid, signal.SIGKILL)  # without a PID namespace, what a killed agent has lost lives on
    assert await wait_until_gone(pid)
    for path in pool.root.glob("*-*"):
        await asyncio.to_thread(shutil.rmtree, path)


async def test_an_unused_host_waits_for_the_next_sandbox(pool):
    pool.agents.idle = 60.0
    for _ in range(3):
        async with await pool.open(SandboxSpec()) as box:
            await box.exec("true")
    assert pool.log == ["start"]
    await pool.aclose()
    assert pool.log == ["start", "destroy"]


async def test_an_opening_that_is_cancelled_keeps_no_seat(pool):
    for turns in (0, 1, 2, 3, 5, 8, 13, 40, 200):
        opening = asyncio.create_task(pool.open(SandboxSpec()))
        for _ in range(turns):  # of the loop, so that no machine is too fast for it
            await asyncio.sleep(0)
        if not opening.cancel():
            await (await opening).aclose()
            break
        with pytest.raises(asyncio.CancelledError):
            await opening
    assert pool.log.count("destroy") == pool.log.count("start")
    assert processes_of("nothing") == []


async def test_a_host_that_cannot_be_made_fails_everybody_who_waits_and_is_forgotten(pool):
    async def fail():
        raise OSError(28, "No space left on device")

    pool.make_host, kept = fail, pool.make_host
    results = await asyncio.gather(*(pool.open(SandboxSpec()) for _ in range(2)), return_exceptions=True)
    assert all("No space left" in str(result) for result in results)
    pool.make_host = kept
    async with await pool.open(SandboxSpec()) as box:
        assert (await box.exec("echo fine")).output == "fine\n"


class Stuck(Folder):
    """A host whose agent does not start, and which cannot be removed."""

    def __init__(self, log, *, hangs=False):
        super().__init__(log)
        self.hangs = hangs
        self.removing, self.gate = asyncio.Event(), asyncio.Event()

    async def start_agent(self) -> AgentStream:
        if self.hangs:
            self.log.append("start")
            await asyncio.Event().wait()
        raise BackendError("the agent did not start")

    async def destroy(self) -> None:
        self.removing.set()
        if self.hangs:
            await self.gate.wait()
        raise BackendError("the engine does not answer")


async def test_what_is_left_of_a_host_that_did_not_start_is_logged_and_told_at_the_end(pool, caplog):
    async def make_stuck():
        return Stuck(pool.log)

    pool.make_host = make_stuck
    with pytest.raises(BackendError, match="the agent did not start"):
        await pool.open(SandboxSpec())
    told = "the unfinished host cannot be removed: the engine does not answer"
    assert f"a shared host is left over: {told}" in caplog.messages
    with pytest.raises(BackendError, match=f"1 shared hosts could not be removed: {told}"):
        await pool.aclose()


async def test_a_host_that_is_cancelled_twice_as_it_starts_still_tells_what_is_left_of_it(pool):
    """The error of its removal was the cause of a cancellation, and went unnoticed."""
    stuck, host = Stuck(pool.log, hangs=True), SlotHost(1)

    async def make_stuck():
        return stuck

    beginning = asyncio.create_task(host.begin(make_stuck, None))
    while pool.log != ["start"]:
        await asyncio.sleep(0)
    beginning.cancel()
    await stuck.removing.wait()
    beginning.cancel()
    await asyncio.sleep(0)
    stuck.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await beginning
    assert host.complaint == "the unfinished host cannot be removed: the engine does not answer"
