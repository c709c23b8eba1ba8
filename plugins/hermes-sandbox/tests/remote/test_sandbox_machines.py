"""Backends for machines, on a link that is a shell of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from hermes_core.contracts.errors import BackendError, SandboxLostError, SandboxRefusedError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_core.specs import BackendSpec
from hermes_sandbox.protocol.agent_process import AgentProcess
from hermes_sandbox.remote import CompletedCommand, MachineBackend, MachineOptions
from hermes_testing.watching import eventually, processes_here, sleep_token


def state_of(pid):
    """Return the state of a process as one letter; "" if there is none."""
    with contextlib.suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


class ShellProgram:
    def __init__(self, process):
        self._process = process
        self._end = None
        self.stream = process.stream

    @property
    def over(self):
        return self._end is not None and self._end.done()

    async def wait(self, seconds):
        self._end = self._end or asyncio.ensure_future(self._process.end(seconds))
        return await self._end


class LastingProgram(ShellProgram):
    """A program that is stopped, and is not killed when its link is closed, as behind sshd."""

    over = False

    async def wait(self, seconds):
        return False

    async def has_ended(self):
        """Tell whether it has ended; kill it if not."""
        has_ended = await eventually(lambda: state_of(self._process.pid) in {"", "Z"}, seconds=5)
        await self._process.end(0)
        return has_ended


class ShellLink:
    """Runs every command in a shell of this machine."""

    program = ShellProgram

    def __init__(self, name):
        self.name = name
        self.alive = True
        self.commands = []
        self.commands_left = None
        """How many more it runs before it is lost; None for no end."""
        self.started = []

    def _require(self):
        if not self.alive:
            raise SandboxLostError("the link is lost")

    async def run(self, command, data=b"", *, timeout):
        if self.commands_left == 0:
            self.alive = False
        self._require()
        self.commands.append(command)
        if self.commands_left is not None:
            self.commands_left -= 1
        done = await asyncio.to_thread(
            subprocess.run, ["/bin/sh", "-c", command], input=data, capture_output=True, timeout=timeout, check=False
        )
        return CompletedCommand(done.returncode, done.stdout, done.stderr.decode().strip())

    async def start(self, command):
        self._require()
        program = self.program(await AgentProcess.start(["/bin/sh", "-c", command], environment={}))
        self.started.append(program)
        return program

    async def aclose(self):
        self.alive = False
        started, self.started = self.started, []
        for program in started:
            program.stream.writer.close()
            await program.wait(6)


class ShellBackend(MachineBackend):
    declaration = BackendSpec(
        name="shell",
        summary="This machine, as if it were another.",
        target="nowhere:ShellBackend",
        isolation=("none", "bwrap"),
        networks=frozenset({"none", "allowlist"}),
        limits=frozenset({"file_size"}),
        images=False,
        is_remote=True,
    )

    def __init__(self, options):
        super().__init__(options)
        self.links = []

    async def connect(self):
        self.links.append(ShellLink(f"machine {len(self.links) % 2}"))
        return self.links[-1]

    @contextlib.asynccontextmanager
    async def reach(self, handle):
        links = [ShellLink("machine 0"), ShellLink("machine 1")] if handle["machines"] else []
        yield links
        for link in links:
            await link.aclose()

    def address(self):
        return {"machines": 2}

    def provenance_of(self, link):
        return {"machine": link.name}


@pytest.fixture
def machines(tmp_path):
    root = tmp_path / "root"
    root.mkdir()

    def make(**options):
        backend = ShellBackend(MachineOptions(root_dir=str(root), **options))
        backend.lease_dir = tmp_path / "leases"
        return backend

    yield make
    assert list(root.iterdir()) == []


async def test_sandboxes_share_a_link_and_one_of_their_own_gets_another(machines):
    backend = machines()
    opened = await asyncio.gather(*(backend.open(SandboxSpec()) for _ in range(8)))
    answers = await asyncio.gather(*(box.exec(f"echo {n} > f; cat f") for n, box in enumerate(opened)))
    assert [answer.output for answer in answers] == [f"{n}\n" for n in range(8)]
    assert len(backend.links) == 1
    await backend.aclose()

    backend = machines(slots_per_agent=1)
    opened = await asyncio.gather(*(backend.open(SandboxSpec()) for _ in range(3)))
    assert len(backend.links) == 3
    assert Counter(box.provenance["machine"] for box in opened) == {"machine 0": 2, "machine 1": 1}
    await backend.aclose()
    assert not any(link.alive for link in backend.links)


@pytest.mark.component("bwrap")
async def test_bubblewrap_hides_the_machine(tmp_path):
    # In /tmp: a root of the tests becomes nobody first, who does not reach the test's own directory.
    backend = ShellBackend(MachineOptions())
    backend.lease_dir = tmp_path / "leases"
    async with await backend.open(SandboxSpec(isolation="bwrap", network="none")) as box:
        result = await box.exec("pwd; ls /; tail -n +3 /proc/net/dev | cut -d: -f1")
    assert result.output.split()[0] == "/workspace"
    assert "root" not in result.output.split()
    assert result.output.split()[-1] == "lo"
    await backend.aclose()


async def test_what_cannot_be_enforced_without_bubblewrap_is_refused(machines):
    with pytest.raises(SandboxRefusedError, match="network 'none' at isolation 'none'"):
        await machines().open(SandboxSpec(network="none"))


async def test_each_machine_is_looked_at_once(machines):
    backend = machines(slots_per_agent=1)
    for _ in range(4):
        async with await backend.open(SandboxSpec()):
            pass
    looks = [sum("/bin/bash" in command for command in link.commands) for link in backend.links]
    assert looks == [1, 1, 0, 0]
    await backend.aclose()


async def test_a_lost_link_is_replaced_to_clean_up(machines):
    backend, token = machines(slots_per_agent=1), sleep_token()
    box = await backend.open(SandboxSpec())
    await box.exec(f"setsid sleep {token} & echo")
    await backend.links[0].aclose()
    with pytest.raises(SandboxLostError):
        await box.exec("echo ghost")
    await box.aclose()
    assert len(backend.links) == 2
    assert await eventually(lambda: processes_here(token) == [])
    await backend.aclose()


async def test_a_shared_agent_that_a_command_has_stopped_is_killed_with_its_host(machines, monkeypatch):
    """A stopped agent does not see the end of its input, so it stayed on the machine, and no lease names it."""
    monkeypatch.setattr(ShellLink, "program", LastingProgram)
    backend = machines(patience=0.5)
    box = await backend.open(SandboxSpec())
    (program,) = backend.links[0].started
    with pytest.raises(SandboxLostError):
        await box.exec("kill -STOP $PPID; echo stopped")
    await box.aclose()
    await backend.aclose()
    assert await program.has_ended()


async def test_an_agent_that_cannot_be_killed_leaves_no_link_open(machines, monkeypatch):
    """The error of the kill left the link open, and kept what survived from being looked for."""
    monkeypatch.setattr(ShellLink, "program", LastingProgram)
    backend = machines(patience=0.5, slots_per_agent=1)
    box = await backend.open(SandboxSpec())
    first = backend.links[0]
    (program,) = first.started
    with pytest.raises(SandboxLostError):
        await box.exec("kill -STOP $PPID; echo stopped")

    async def refuse(*_, **__):
        raise BackendError("no further session on this connection")

    first.run = refuse
    await box.aclose()
    assert not first.alive
    await backend.aclose()
    assert await program.has_ended()


@pytest.mark.parametrize("ending", ["killed", "reclaimed"])
async def test_what_is_saved_of_a_shared_session_goes_when_the_agent_was_killed(machines, tmp_path, ending):
    backend = machines()
    box = await backend.open(SandboxSpec())
    for value in ("first", "second"):
        await box.exec(f"export KEPT={value}")
        # Beside the workspace, for one session at a time; that nothing is left there is looked for at the end.
        [state] = (tmp_path / "root").glob(f"*{box.id}.state-*/state")
        assert f'KEPT="{value}"'.encode() in state.read_bytes()
        assert state.parent.stat().st_mode & 0o777 == 0o700
        if value == "first":
            await box.renew()
    os.kill(box.slot.client.greeting["pid"], signal.SIGKILL)
    with pytest.raises(SandboxLostError):
        await box.exec("echo ghost")
    if ending == "reclaimed":
        await backend.reclaim({**backend.handle(SandboxSpec(), box.id), **backend.address()})
        assert list((tmp_path / "root").iterdir()) == []
    await box.aclose()
    await backend.aclose()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to another user")
async def test_reclaim_leaves_what_another_user_has_called_saved_state(machines, tmp_path):
    backend = machines()
    handle = dict(backend.handle(SandboxSpec(), "5" * 16))
    own, another = Path(f"{handle['root']}.state-0"), Path(f"{handle['root']}.state-1")
    for folder in (own, another):
        folder.mkdir()
    os.chown(another, 12345, 12345)
    await backend.reclaim(handle)
    assert list((tmp_path / "root").iterdir()) == [another]
    another.rmdir()


@pytest.mark.parametrize("commands", [0, 1])
async def test_reclaim_uses_another_link_when_one_is_lost_while_it_cleans(machines, tmp_path, commands):
    """While it probes the machine, and while it sweeps: the cluster node that a link led through was killed."""
    backend = machines()
    handle = {**backend.handle(SandboxSpec(), "f" * 16), **backend.address()}
    left = Path(handle["root"])
    left.mkdir()
    reach = backend.reach

    @contextlib.asynccontextmanager
    async def reach_and_lose(handle):
        async with reach(handle) as links:
            links[0].commands_left = commands
            yield links[:1]

    backend.reach = reach_and_lose
    await backend.reclaim(handle)
    assert not left.exists()
    assert [link.alive for link in backend.links] == [False]
    await backend.aclose()


async def test_reclaim_looks_on_every_machine_and_deletes_only_sandboxes(machines, tmp_path):
    backend = machines()
    handle = dict(backend.handle(SandboxSpec(), "5" * 16))
    for folder in (handle["root"], handle["root"] + ".home"):
        Path(folder).mkdir()
    await backend.reclaim({**handle, "machines": 0})  # no machine is left that could have it
    assert Path(handle["root"]).is_dir()
    await backend.reclaim(handle)
    await backend.reclaim(handle)  # nothing to remove is success
    with pytest.raises(BackendError, match="nothing was deleted"):
        await backend.reclaim({**handle, "root": str(tmp_path)})


async def test_a_machine_whose_python_is_too_old_is_refused(machines, tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 3 7\necho /usr/bin/python3.7\n")
    python.chmod(0o755)
    with pytest.raises(SandboxRefusedError, match=r"of machine 0 is Python 3\.7; 3\.8 or newer is needed"):
        await machines(python=str(python)).open(SandboxSpec())
