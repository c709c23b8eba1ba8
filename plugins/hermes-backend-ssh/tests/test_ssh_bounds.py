"""The bound on processes of sandboxes on another machine: it is that machine's agent that makes it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hermes_backend_ssh.backend import SshBackend
from hermes_backend_ssh.options import SshOptions
from hermes_core.contracts.errors import SandboxLostError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_testing.watching import eventually, processes_here, sleep_token

pytestmark = pytest.mark.component("sshd")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes control groups")


def groups_of(sandbox):
    return [top for top, _, _ in os.walk("/sys/fs/cgroup") if Path(top).name == f"hermes-sandbox-{sandbox.id}"]


@pytest.fixture(params=[1, 4], ids=["alone", "shared"])
async def backend(own_sshd, tmp_path, request):
    """A backend with one agent per sandbox, or one for all."""
    backend = SshBackend(SshOptions(**own_sshd.options, slots_per_agent=request.param, pids=40))
    backend.lease_dir = tmp_path / "leases"
    yield backend
    await backend.aclose()


async def test_a_full_sandbox_hinders_no_other_of_the_same_account(backend):
    token = sleep_token()
    async with await backend.open(SandboxSpec()) as full, await backend.open(SandboxSpec()) as other:
        await full.exec(f"(for i in {{1..60}}; do sleep {token} & done) >/dev/null 2>&1 &")
        assert await eventually(lambda: len(processes_here(token)) >= 30)
        assert len(processes_here(token)) <= 40
        assert (await other.exec("for i in {1..20}; do sleep 0 & done; wait; echo room")).output == "room\n"
        assert full.provenance["limits"]["pids"].startswith("40")
    assert processes_here(token) == []


async def test_a_task_can_ask_for_more(backend):
    async with await backend.open(SandboxSpec(pids=90)) as sandbox:
        assert sandbox.provenance["limits"]["pids"].startswith("90")
        assert (await sandbox.exec("for i in {1..70}; do sleep 9 & done; kill %{1..70}; echo room")).output == "room\n"


@as_root
async def test_a_killed_agent_leaves_neither_processes_nor_a_group(backend):
    token = sleep_token()
    sandbox = await backend.open(SandboxSpec())
    assert len(groups_of(sandbox)) == 1
    await sandbox.exec(f"(cd /; env -i setsid sleep {token} >/dev/null 2>&1 &); echo")
    assert await eventually(lambda: len(processes_here(token)) == 1)
    # A root user can make groups below.
    below = Path(groups_of(sandbox)[0], "below")
    below.mkdir()
    (below / "cgroup.procs").write_text(str(processes_here(token)[0]))
    with pytest.raises(SandboxLostError):
        await sandbox.exec("kill -9 $PPID; sleep 60")
    await sandbox.aclose()
    assert processes_here(token) == []
    assert groups_of(sandbox) == []
