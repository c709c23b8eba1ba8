"""Connections that break, hang or lead through others, and callers that are killed: never a hang, no leftovers."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from sshd_server import SshServer

from hermes_backend_ssh.backend import SshBackend
from hermes_backend_ssh.options import SshOptions
from hermes_core.contracts.errors import BackendError, SandboxLostError, SandboxRefusedError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_sandbox import LeaseBook, SandboxReclaimer
from hermes_testing.registries import isolated_registry
from hermes_testing.watching import eventually, processes_here, sleep_token

pytestmark = pytest.mark.component("sshd")


@pytest.fixture
def machine(own_sshd, tmp_path):
    """Create a backend with its sandboxes in a directory of the test."""

    def make(**options):
        root = tmp_path / "root"
        root.mkdir(exist_ok=True)
        backend = SshBackend(SshOptions(**{**own_sshd.options, "root_dir": str(root), **options}))
        backend.lease_dir = tmp_path / "leases"
        return backend

    return make


@pytest.fixture
def open_root():
    """A directory that the unprivileged user inside bubblewrap reaches, as it does not reach tmp_path."""
    with tempfile.TemporaryDirectory(prefix="hermes-test-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


async def begin_command(sandbox, token):
    call = asyncio.create_task(sandbox.exec(f"sleep {token}"))
    assert await eventually(lambda: processes_here(token) != [])
    return call


async def test_a_dropped_connection_fails_the_calls_at_once(own_sshd, machine, tmp_path):
    backend, token = machine(), sleep_token()
    sandbox = await backend.open(SandboxSpec())
    call = await begin_command(sandbox, token)
    own_sshd.signal_sessions(signal.SIGKILL)
    with pytest.raises(SandboxLostError):
        await asyncio.wait_for(call, 60)
    with pytest.raises(SandboxLostError):
        await sandbox.read_file("anything")
    # The agent has ended by itself; closing finds the directory through a new connection.
    assert await eventually(lambda: processes_here(token) == [])
    await asyncio.wait_for(sandbox.aclose(), 60)
    assert list((tmp_path / "root").iterdir()) == []
    await backend.aclose()


@pytest.mark.component("sshd", "bwrap")
async def test_a_dropped_connection_is_made_again_where_the_files_are_still_there(own_sshd, machine, open_root):
    backend, token = machine(root_dir=str(open_root)), sleep_token()
    sandbox = await backend.open(SandboxSpec(isolation="bwrap", network="none"))
    await sandbox.exec("echo kept >f; export A=1")
    call = await begin_command(sandbox, token)
    own_sshd.signal_sessions(signal.SIGKILL)
    with pytest.raises(SandboxLostError):
        await asyncio.wait_for(call, 60)
    assert "Files of the workspace" in await asyncio.wait_for(sandbox.recover(0), 60)
    assert (await sandbox.exec("cat f; echo ${A-unset}")).output == "kept\nunset\n"
    assert await eventually(lambda: processes_here(token) == [])
    await backend.aclose()
    assert list(open_root.iterdir()) == []


async def test_a_dropped_connection_is_not_made_again_where_not_all_that_ran_can_be_found(own_sshd, machine):
    backend = machine()
    sandbox = await backend.open(SandboxSpec())
    call = await begin_command(sandbox, sleep_token())
    own_sshd.signal_sessions(signal.SIGKILL)
    with pytest.raises(SandboxLostError):
        await asyncio.wait_for(call, 60)
    assert await asyncio.wait_for(sandbox.recover(0), 60) is None
    await backend.aclose()


async def test_an_upload_into_a_dropped_connection_fails(own_sshd, machine):
    backend = machine()
    sandbox = await backend.open(SandboxSpec())
    await sandbox.exec("mkfifo pipe")
    upload = asyncio.create_task(sandbox.write_file("big", bytes(256 << 20)))
    await asyncio.sleep(0)
    own_sshd.signal_sessions(signal.SIGKILL)
    with pytest.raises(SandboxLostError):
        await asyncio.wait_for(upload, 60)
    await asyncio.wait_for(backend.aclose(), 60)


async def test_a_machine_that_stops_answering_is_lost_after_the_patience(own_sshd, machine, tmp_path):
    backend = machine()
    sandbox = await backend.open(SandboxSpec())
    # Only now: a machine that is merely busy must not be taken for silent while it opens the sandbox.
    sandbox.slot.client._rest(1.0)
    own_sshd.signal_sessions(signal.SIGSTOP)
    with pytest.raises(SandboxLostError, match="silent"):
        await asyncio.wait_for(sandbox.exec("echo hi"), 60)
    # The session that answers again is cleaned up; the stopped one must not make it hang.
    await asyncio.wait_for(sandbox.aclose(), 60)
    assert list((tmp_path / "root").iterdir()) == []
    own_sshd.signal_sessions(signal.SIGCONT)
    await backend.aclose()


async def test_a_machine_that_has_gone_for_good_leaves_the_lease(own_sshd, machine, tmp_path):
    backend = machine()
    sandbox = await backend.open(SandboxSpec())
    own_sshd.stop()
    with pytest.raises(SandboxLostError):
        await asyncio.wait_for(sandbox.exec("echo hi"), 60)
    with pytest.raises(BackendError, match="nothing listens"):
        await asyncio.wait_for(sandbox.aclose(), 60)
    (lease,), _ = LeaseBook(tmp_path / "leases").read()
    own_sshd.start()
    await backend.reclaim(lease.handle)
    assert list((tmp_path / "root").iterdir()) == []


@pytest.mark.parametrize("slots", [1, 64])
async def test_an_agent_that_is_killed_from_outside_leaves_nothing(own_sshd, machine, tmp_path, slots):
    backend, token = machine(slots_per_agent=slots), sleep_token()
    sandbox = await backend.open(SandboxSpec())
    call = await begin_command(sandbox, token)
    for agent in own_sshd.agents():
        os.kill(agent, signal.SIGKILL)
    with pytest.raises(SandboxLostError):
        await asyncio.wait_for(call, 60)
    await sandbox.aclose()
    assert await eventually(lambda: processes_here(token) == [])
    assert list((tmp_path / "root").iterdir()) == []
    await backend.aclose()


_CALLER = """
import asyncio, json, sys
from pathlib import Path
from hermes_backend_ssh.backend import SshBackend
from hermes_backend_ssh.options import SshOptions
from hermes_core.contracts.sandbox import SandboxSpec

async def main(options, leases, token):
    backend = SshBackend(SshOptions(**json.loads(options)))
    backend.lease_dir = Path(leases)
    sandbox = await backend.open(SandboxSpec())
    await sandbox.exec(f"setsid sleep {token} & echo begun")
    print("begun", flush=True)
    await sandbox.exec("sleep 600")

asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_killed_caller_leaves_no_process_and_reclaim_removes_the_rest(machine, tmp_path):
    token = sleep_token()
    backend = machine()
    options = backend.options.model_dump_json(exclude={"password", "passphrase"})
    command = [sys.executable, "-c", _CALLER, options, str(tmp_path / "leases"), token]
    caller = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert caller.stdout is not None
    assert await asyncio.to_thread(caller.stdout.readline) == b"begun\n"
    caller.kill()
    caller.communicate()
    # Its connection is closed, so the agent ends everything by itself.
    assert await eventually(lambda: processes_here(token) == [])
    book = LeaseBook(tmp_path / "leases")
    (lease,), _ = book.read()
    assert lease.owner() == "dead"
    # Processes with the mark that were started later end with the directory.
    survivor = subprocess.Popen(
        ["sleep", token], env={"PATH": os.environ["PATH"], "HERMES_SANDBOX": f"{lease.sandbox_id}.7"}
    )
    collected = await SandboxReclaimer(book, isolated_registry("hermes_backend_ssh.plugin")).collect(backends=())
    assert (collected.removed, collected.failed) == ([lease.sandbox_id], {})
    assert survivor.wait(60) == -signal.SIGKILL
    assert list((tmp_path / "root").iterdir()) == []
    await backend.reclaim(lease.handle)  # nothing to remove is success


async def test_reclaim_deletes_only_sandboxes(machine, tmp_path):
    keep = tmp_path / "keep"
    keep.mkdir()
    backend = machine()
    handle = {**backend.handle(SandboxSpec(), "0" * 16), "root": str(keep)}
    with pytest.raises(BackendError, match="nothing was deleted"):
        await backend.reclaim(handle)
    assert keep.is_dir()


@pytest.fixture
def inner_sshd(tmp_path):
    """A second machine, behind the first."""
    server = SshServer(tmp_path / "inner").start()
    yield server
    server.stop()


def through(own_sshd, inner_sshd, known_hosts, **jump):
    known_hosts.write_text(own_sshd.known_hosts.read_text() + inner_sshd.known_hosts.read_text())
    return SshOptions(**{**inner_sshd.options, "known_hosts": known_hosts, "jump": [{**own_sshd.login, **jump}]})


async def test_a_jump_host(own_sshd, inner_sshd, tmp_path):
    backend = SshBackend(through(own_sshd, inner_sshd, tmp_path / "known"))
    async with await backend.open(SandboxSpec()) as sandbox:
        assert (await sandbox.exec("echo there")).output == "there\n"
        await sandbox.write_file("big", bytes(range(256)) * 8192)
        assert await sandbox.read_file("big") == bytes(range(256)) * 8192
        assert len(own_sshd.sessions()) > 0
    await backend.aclose()


async def test_the_jump_host_s_key_is_checked_too(own_sshd, inner_sshd, tmp_path):
    options = through(own_sshd, inner_sshd, tmp_path / "known")
    (tmp_path / "known").write_text(inner_sshd.known_hosts.read_text())
    with pytest.raises(SandboxRefusedError, match=f"127.0.0.1\\]:{own_sshd.port} is unknown"):
        await SshBackend(options).check(SandboxSpec())


async def test_a_jump_host_that_does_not_reach_the_machine(own_sshd, inner_sshd, tmp_path):
    options = through(own_sshd, inner_sshd, tmp_path / "known")
    inner_sshd.stop()
    with pytest.raises(BackendError, match=r"the jump host before .* does not reach it"):
        await SshBackend(options).check(SandboxSpec())
