"""How a shell that serves a sandbox limits the processes of commands, and how it reports that."""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from plain_support import PATH, PlainBackend, PlainHost

from hermes_core.contracts.errors import SandboxRefusedError
from hermes_core.contracts.sandbox import Sandbox, SandboxSpec
from hermes_sandbox.backends import AgentStream, shell_command
from hermes_sandbox.protocol.agent_process import AgentProcess
from hermes_testing.users import free_users

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="commands have users of their own only under root")
_CROWD = "exec dash -c 'i=0; while [ $i -lt 60 ]; do sleep 120 & i=$((i + 1)); echo $i; done'"
"""Starts up to sixty processes, each of which ends by itself.

dash gives up as soon as one cannot be started, so that their number does not depend on time; bash would wait.
"""
_users = itertools.count(free_users(100))
"""Users without any other processes on this machine."""


class Host(PlainHost):
    """A directory of this machine for another user's commands."""

    fields: Mapping[str, Any] = {}
    owner: int | None = None
    """The user of the shell itself."""

    def slot_fields(self) -> Mapping[str, Any]:
        return self.fields

    async def start_shell(self) -> AgentStream:
        argv = shell_command(shell=self.shell)
        self.process = await AgentProcess.start(argv, environment={"PATH": PATH}, uid=self.owner)
        return self.process.stream


class Backend(PlainBackend):
    """Its sandboxes use the settings `fields` and a shell of user `owner`."""

    fields: Mapping[str, Any] = {}
    owner: int | None = None

    async def create(self, spec: SandboxSpec, sandbox_id: str) -> Host:
        host = Host(self.root / sandbox_id, self.shell)
        host.fields, host.owner = self.fields, self.owner
        for folder in [host.workspace] if self.owner is None else [host.workspace, host.state_dir]:
            uid = self.fields.get("uid", self.owner)
            if uid is not None:
                os.chown(folder, uid, uid)
        return host


@pytest.fixture
def root() -> Iterator[Path]:
    """A folder that every user can enter."""
    with tempfile.TemporaryDirectory(prefix="hermes-plain-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def uid() -> int:
    """A user that no other test has: killed processes still count until this machine's first process reaps them."""
    return next(_users)


@asynccontextmanager
async def _open(
    root: Path, shell: str, pids: int | None = None, *, owner: int | None = None, **fields: Any
) -> AsyncIterator[Sandbox]:
    backend = Backend(root / "places", shell)
    backend.lease_dir = root / "leases"
    # The tests' backend declares no limits. The backend's own number of processes works without a declaration.
    backend.pids = 20
    backend.fields, backend.owner = fields, owner
    backend.refuse = lambda _spec: None
    try:
        async with await backend.open(SandboxSpec(pids=pids)) as box:
            yield box
    finally:
        await backend.aclose()


async def _count_started(box: Sandbox) -> int:
    crowd = await box.exec(_CROWD, timeout=60)
    return int(crowd.stdout.split()[-1])


@pytest.fixture
def sleepers() -> Iterator[Callable[[int, int], None]]:
    """Starts processes of a user, which end with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(uid: int, count: int) -> None:
        started.extend(subprocess.Popen(["sleep", "60"], user=uid, group=uid, cwd="/") for _ in range(count))

    yield start
    for process in started:
        process.kill()
        process.wait()


@needs_root
@pytest.mark.parametrize("shell", ["dash", "bash"])
async def test_commands_of_a_user_of_their_own_stay_at_their_number(root: Path, uid: int, shell: str) -> None:
    async with _open(root, shell, uid=uid, gid=uid) as box:
        assert box.provenance["limits"]["pids"] == "20 of its user, by RLIMIT_NPROC"
        assert 10 < await _count_started(box) <= 20
        # The limit does not apply to the serving shell.
        assert (await box.exec("echo on")).stdout == b"on\n"


@needs_root
async def test_neither_half_of_the_limit_can_be_raised_by_a_command(root: Path, uid: int) -> None:
    async with _open(root, "dash", uid=uid, gid=uid) as box:
        assert (await box.exec("ulimit -S -p; ulimit -H -p")).output == "20\n20\n"
        assert (await box.exec("ulimit -p 21")).exit_code != 0


@needs_root
async def test_a_task_s_own_number_goes_before_the_backend_s(root: Path, uid: int) -> None:
    async with _open(root, "dash", 40, uid=uid, gid=uid) as box:
        assert box.provenance["limits"]["pids"] == "40 of its user, by RLIMIT_NPROC"
        assert 25 < await _count_started(box) <= 40


@needs_root
@pytest.mark.parametrize("others", [0, 1, 30])
async def test_what_others_have_of_the_same_user_is_left_out_of_account(
    root: Path, uid: int, sleepers: Callable[[int, int], None], others: int
) -> None:
    sleepers(uid, others)
    async with _open(root, "dash", uid=uid, gid=uid, shared_user=True) as box:
        assert box.provenance["limits"]["pids"] == "20 more than its user had, by RLIMIT_NPROC"
        assert 10 < await _count_started(box) <= 21


@needs_root
async def test_a_place_with_a_bound_of_its_own_is_left_alone(root: Path, uid: int) -> None:
    async with _open(root, "dash", uid=uid, gid=uid, processes=0) as box:
        assert "pids" not in box.provenance.get("limits", {})
        assert await _count_started(box) == 60


@needs_root
async def test_where_nothing_holds_it_is_said_and_a_task_that_asks_for_it_is_refused(root: Path) -> None:
    async with _open(root, "dash") as box:
        assert box.provenance["limits"]["pids"].startswith("none: ")
    with pytest.raises(SandboxRefusedError, match="limit pids cannot be enforced here") as caught:
        async with _open(root, "dash", 40):
            pass
    assert "Python" in (caught.value.hint or "")


@needs_root
@pytest.mark.parametrize("others", [0, 15])
async def test_commands_that_are_the_shell_s_own_user_are_held_and_the_shell_is_not(
    root: Path, uid: int, sleepers: Callable[[int, int], None], others: int
) -> None:
    sleepers(uid, others)
    async with _open(root, "dash", owner=uid) as box:
        assert box.provenance["limits"]["pids"] == "20 more than its user had, by RLIMIT_NPROC"
        # The shell needs some of them to collect output.
        assert 10 < await _count_started(box) <= 20
        assert (await box.exec("echo on")).stdout == b"on\n"


def _statuses() -> Iterator[str]:
    for path in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            yield path.read_text()


@needs_root
@pytest.mark.skipif(shutil.which("su") is None, reason="there is no su")
async def test_a_user_s_number_holds_by_way_of_su_too(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = root / "tools"
    tools.mkdir()
    for program in Path("/usr/bin").iterdir():
        if program.name != "setpriv":
            (tools / program.name).symlink_to(program)
    monkeypatch.setattr("hermes_sandbox.posix_shell.source._PATH", str(tools))
    # A user that `su` knows by name and that has no processes.
    busy = {int(line.split()[1]) for text in _statuses() for line in text.splitlines() if line.startswith("Uid:")}
    user = next(entry for entry in pwd.getpwall() if entry.pw_uid and entry.pw_uid not in busy | {65_534})
    async with _open(root, "dash", uid=user.pw_uid, gid=user.pw_gid, shared_user=True) as box:
        assert box.provenance["limits"]["pids"] == "20 more than its user had, by RLIMIT_NPROC"
        assert 10 < await _count_started(box) <= 21
