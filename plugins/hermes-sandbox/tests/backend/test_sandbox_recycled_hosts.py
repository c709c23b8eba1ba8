"""Places for many slots with users of their own: who is let in, what ends with them, whose the directories are."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from pydantic import ValidationError
from sandbox_support import UID

from hermes_core.contracts.errors import SandboxRefusedError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_core.specs import BackendSpec
from hermes_sandbox.backend.hosts.container_host import refuse_mounted
from hermes_sandbox.backend.hosts.ownership_scripts import chown_script, make_readonly_script, shared_dir_script
from hermes_sandbox.backend.hosts.recycled_host import RecycledHost, UserSlot
from hermes_sandbox.backend.hosts.slot_uids import first_uid, slot_fields
from hermes_sandbox.backend.options import AgentOptions, CommandUser, InsidePath, parse_identity
from hermes_sandbox.backends import AgentBackend, AgentStream, SandboxHost
from hermes_sandbox.leases.book import LeaseBook
from hermes_sandbox.protocol.agent_process import AgentProcess
from hermes_sandbox.protocol.bootstrap import PYTHON_FLAGS

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: directories are given to other users")


class Worn(RecycledHost):
    """An agent of this machine."""

    def __init__(self, root: Path, log: list[str]) -> None:
        self.environment = {"PATH": "/usr/bin:/bin"}
        self.root = root
        self._log = log
        self._process: AgentProcess | None = None

    async def start_agent(self) -> AgentStream:
        argv = ["/usr/bin/env", "python3", *PYTHON_FLAGS]
        self._process = await AgentProcess.start(argv, environment=dict(os.environ))
        return self._process.stream

    async def lock(self, folder: str, identity: tuple[int, int]) -> None:
        self._log.append(f"lock {Path(folder).name} {identity}")

    async def stop_all(self) -> None:
        if self._process is not None:
            self._process.stream.writer.close()
            await self._process.end(60)
            self._process = None
            self._log.append("end")


class Wearing(AgentBackend):
    """Slots of such hosts, two uses each."""

    declaration = BackendSpec(
        name="wearing", summary="Worn hosts.", target="nowhere:Wearing", isolation=("container+slot", "container")
    )

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root, self.log, self.made = root, [], 0
        self.lease_dir = root / "leases"
        self.uid: int | None = None
        self.limit = 8
        self.retire_at: float | None = None

    async def create(self, spec: SandboxSpec, sandbox_id: str) -> UserSlot:
        def describe(host: SandboxHost, _number: int) -> Mapping[str, Any]:
            assert isinstance(host, Worn)
            fields = slot_fields(str(host.root), sandbox_id, self.uid)
            # Not all of this machine.
            return fields if self.uid is None else {**fields, "sweep": {"tops": [str(host.root)], "kept": []}}

        return UserSlot(
            self.host_pool,
            "all",
            lambda: self.make_shared_host(spec, self._make_host),
            limit=self.limit,
            describe=describe,
            provenance={"kind": "worn"},
        )

    async def _make_host(self, host_id: str) -> Worn:
        self.made += 1
        if self.made > 3:
            raise SandboxRefusedError("there are no more", hint="stop")
        self.log.append(f"leased {host_id in self.lease_ids()}")
        root = self.root / host_id
        root.mkdir()
        host = Worn(root, self.log)
        host.uses = 2
        if self.retire_at is not None:
            host.retire_at = self.retire_at
        return host

    def lease_ids(self) -> set[str]:
        leases, problems = LeaseBook(self.root / "leases").read()
        assert problems == []
        return {lease.sandbox_id for lease in leases}


SPEC = SandboxSpec(isolation="container+slot")


@pytest_asyncio.fixture
async def backend() -> AsyncIterator[Wearing]:
    """Such a backend, which leaves no lease."""
    # Not tmp_path: its parents are closed to the users of slots.
    with tempfile.TemporaryDirectory(prefix="hermes-test-") as folder:
        Path(folder).chmod(0o755)
        made = Wearing(Path(folder))
        yield made
        await made.aclose()
        assert made.lease_ids() == set()


async def test_a_host_takes_as_many_as_it_may_and_goes_with_the_last_of_them_and_its_lease(backend: Wearing) -> None:
    first, second, third = [await backend.open(SPEC) for _ in range(3)]
    assert (backend.made, backend.log) == (2, ["leased True", "leased True"])
    assert len(backend.lease_ids()) == 5
    for sandbox in (first, second, third):
        assert (await sandbox.exec("echo here")).output == "here\n"
    await first.aclose()
    await second.aclose()
    # Nobody new is to come there, so it is not kept.
    assert backend.log[2:] == ["end"]
    assert len(backend.lease_ids()) == 2
    await third.aclose()
    assert first.provenance["kind"] == "worn"


async def test_a_run_is_told_once_that_slots_share_what_lies_outside_of_their_directories(
    backend: Wearing, caplog: pytest.LogCaptureFixture
) -> None:
    async with await backend.open(SPEC) as one, await backend.open(SPEC):
        assert list(one.provenance["lacks"]) == ["private_tmp"]
    [told] = [record.getMessage() for record in caplog.records]
    assert told.startswith("backend 'wearing' lacks private_tmp at isolation 'container+slot': slots of one host share")
    assert told.endswith("Where tasks need their own: --isolation container.")


async def test_nothing_is_told_of_a_slot_that_has_its_host_to_itself(
    backend: Wearing, caplog: pytest.LogCaptureFixture
) -> None:
    backend.limit = 1
    async with await backend.open(SPEC) as one:
        assert "lacks" not in one.provenance
    assert caplog.records == []


async def test_a_host_that_is_too_old_takes_nobody_after_the_one_that_it_was_made_for(backend: Wearing) -> None:
    backend.retire_at = time.monotonic()
    opened = [await backend.open(SPEC) for _ in range(2)]
    assert backend.made == 2
    await asyncio.gather(*(sandbox.aclose() for sandbox in opened))


async def test_a_host_that_cannot_be_made_leaves_no_lease(backend: Wearing) -> None:
    backend.made = 3
    with pytest.raises(SandboxRefusedError, match="there are no more"):
        await backend.open(SPEC)
    assert backend.lease_ids() == set()


async def test_a_slot_without_a_user_of_its_own_cannot_be_made_read_only(backend: Wearing) -> None:
    async with await backend.open(SPEC) as sandbox:
        with pytest.raises(SandboxRefusedError, match="do not have their own user"):
            await sandbox.freeze()


@as_root
async def test_a_slot_with_a_user_has_its_directory_locked_by_its_host(backend: Wearing) -> None:
    backend.uid = UID
    async with await backend.open(SPEC) as sandbox:
        await sandbox.freeze()
        assert backend.log[-1] == f"lock {sandbox.id} ({UID}, {UID})"


@as_root
async def test_a_host_in_which_something_is_left_takes_nobody_new(
    backend: Wearing, caplog: pytest.LogCaptureFixture
) -> None:
    backend.uid = UID
    async with await backend.open(SPEC) as sandbox:
        shared = Path(sandbox.workspace).parent / "shared"
        shared.mkdir()
        shared.chmod(0o1777)
        await sandbox.exec(f"mkdir {shared}/point")
        mounted = ["mount", "-t", "tmpfs", "-o", f"uid={UID},size=4k", "none", f"{shared}/point"]
        subprocess.run(mounted, check=True)
    try:
        assert backend.log[-1] == "end"
        assert f"{shared}/point: Device or resource busy" in caplog.text
        async with await backend.open(SPEC):
            assert backend.made == 2
    finally:
        subprocess.run(["umount", f"{shared}/point"], check=True)


def _run(program: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-I", "-S", "-E", "-c", program]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def _mode(path: Path) -> tuple[int, int, str]:
    found = path.lstat()
    return found.st_uid, found.st_gid, oct(stat.S_IMODE(found.st_mode))


@as_root
def test_a_locked_directory_is_root_s_for_the_user_s_group_to_read_and_run(tmp_path: Path) -> None:
    top = tmp_path / "top"
    (top / "a").mkdir(parents=True)
    (top / "a" / "file").write_text("1", encoding="ascii")
    (top / "program").write_text("#!/bin/sh\n", encoding="ascii")
    (top / "program").chmod(0o700)
    outside = tmp_path / "outside"
    outside.write_text("2", encoding="ascii")
    (top / "link").symlink_to(outside)
    (top / "a").chmod(0)
    done = _run(make_readonly_script(str(top), (UID, UID)))
    assert (done.returncode, done.stderr) == (0, "")
    assert _mode(top) == _mode(top / "a") == _mode(top / "program") == (0, UID, "0o550")
    assert _mode(top / "a" / "file") == (0, UID, "0o440")
    assert _mode(outside)[:2] == (0, 0)
    assert _mode(top / "link")[:2] == (0, UID)


@as_root
def test_locking_ends_the_user_s_processes_first(tmp_path: Path) -> None:
    with subprocess.Popen(["/bin/sleep", "600"], user=UID, group=UID, extra_groups=()) as sleeping:
        assert _run(make_readonly_script(str(tmp_path), (UID, UID))).returncode == 0
        assert sleeping.wait(60) == -9


@as_root
@pytest.mark.parametrize("kind", ["missing", "link"])
def test_what_is_no_directory_of_its_own_is_not_taken_for_locked(tmp_path: Path, kind: str) -> None:
    top, other = tmp_path / "top", tmp_path / "other"
    other.mkdir()
    if kind == "link":
        top.symlink_to(other)
    done = _run(make_readonly_script(str(top), (UID, UID)))
    assert (done.returncode, done.stderr.strip()) == (1, f"{top} is no directory of its own")
    assert _mode(other)[:2] == (0, 0)


@as_root
def test_a_directory_is_given_to_a_user_but_for_what_is_kept(tmp_path: Path) -> None:
    for name in ("mine", "kept"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    assert _run(chown_script(str(tmp_path), (UID, UID), [str(tmp_path / "kept")])).returncode == 0
    owners = {path.relative_to(tmp_path).as_posix(): path.stat().st_uid for path in tmp_path.rglob("*")}
    assert owners == {"mine": UID, "mine/file": UID, "kept": 0, "kept/file": 0}


@as_root
def test_in_a_shared_directory_only_root_makes_others(tmp_path: Path) -> None:
    assert _run(shared_dir_script(str(tmp_path / "a" / "b"))).returncode == 0
    assert _mode(tmp_path / "a" / "b") == (0, 0, "0o711")


def test_hosts_have_users_of_their_own_where_they_share_a_kernel() -> None:
    assert first_uid("a" * 16) != first_uid("b" * 16)
    assert first_uid("a" * 16, few=True) == first_uid("b" * 16, few=True) == 20000
    assert all(0 < first_uid(f"{number:016x}") < 2**31 - 2**15 for number in range(0, 2**64, 2**50 + 7))


def test_a_slot_without_a_user_names_none() -> None:
    assert slot_fields("/w", "x", None) == {"workspace": "/w/x", "umask": 0o077, "own_directory": True}
    assert slot_fields("/w", "x", None, 0)["processes"] == 0
    assert slot_fields("/w", "x", 5, 7).items() >= {"uid": 5, "gid": 5, "processes": 7}.items()
    assert slot_fields("/w", "x", 5, kept=["/b", "/a"])["sweep"] == {"tops": ["/"], "kept": ["/a", "/b"]}


class Options(AgentOptions):
    user: CommandUser = "1000:1000"
    workspace: InsidePath = "/workspace"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"user": "me"}, "user: expected a numeric UID or UID:GID, or root, got 'me'"),
        ({"user": "1:2:3"}, "got '1:2:3'"),
        ({"workspace": "relative"}, "absolute path"),
        ({"workspace": "//"}, "absolute path"),
        ({"patience": 0}, "greater than 0"),
        ({"setup_timeout": -1}, "greater than 0"),
        ({"concurrent_starts": 0}, "greater than or equal to 1"),
        ({"concurrent_start": 1}, "Extra inputs"),
    ],
)
def test_options_that_cannot_work_are_refused_with_the_reason(given: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Options(**given)


@pytest.mark.parametrize(("user", "identity"), [("root", (0, 0)), ("0:5", (0, 0)), ("7", (7, 7)), ("7:8", (7, 8))])
def test_a_user_is_a_number_and_a_group(user: str, identity: tuple[int, int]) -> None:
    assert parse_identity(Options(user=user).user) == identity


def test_the_options_are_the_backend_s_times() -> None:
    class Timed(Wearing):
        def __init__(self) -> None:
            AgentBackend.__init__(self, Options(setup_timeout=7, patience=8, concurrent_starts=9))

    made = Timed()
    assert (made.setup_timeout, made.patience, made.concurrent_starts) == (7, 8, 9)


def test_what_has_something_mounted_in_it_is_not_made_read_only() -> None:
    refuse_mounted("/work", ["/workspace", "/other"])
    with pytest.raises(SandboxRefusedError, match="a volume in it cannot be read-only: /work/models"):
        refuse_mounted("/work", ["/work/models"])
