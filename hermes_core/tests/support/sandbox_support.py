"""What the sandbox tests share: a backend of a test's own, and a look at the processes of this machine."""

from __future__ import annotations

import asyncio
import grp
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import uuid
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path

import pytest

from hermes_core.contracts.sandbox import SandboxSpec
from hermes_sandbox.agent.processes import read_marker, read_table
from hermes_sandbox.local.backend import LocalBackend, LocalOptions

_HIGHEST_ID = 2_147_000_000
_FIRST_ID = 2_001_000_000
"""Above what SSSD gives to the users of a directory, and systemd to containers."""
_BLOCK = 100


def free_users(count: int = 10) -> int:
    """Return the first of so many user ids, at most 100, that nothing on this machine has, and no other test meanwhile.

    A slot that ends kills all of its user's processes, so a wrong answer kills strangers. The numbers are free as group
    ids, too. They are this process's until it ends, by a socket whose name only one process can have.
    """
    end = min(_end_of_ids("uid"), _end_of_ids("gid"))
    first = _FIRST_ID if end > _FIRST_ID + _BLOCK else end // 2
    blocks = (end - first) // _BLOCK
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    taken = [*_ids_of_processes(), *_subordinate_ids("subuid"), *_subordinate_ids("subgid")]
    for turn in range(min(blocks, 10_000)):
        start = first + (64 * os.getpid() + worker + turn) % blocks * _BLOCK
        ids = range(start, start + count)
        overlaps = any(one.start < ids.stop and ids.start < one.stop for one in taken)
        if not overlaps and not any(map(_has_a_name, ids)) and _is_ours(ids.start):
            return ids.start
    raise RuntimeError("no user ids are free on this machine")


def _end_of_ids(kind: str) -> int:
    """Return where those ids end that this user namespace has from 0 on; elsewhere there are none to give away."""
    lines = [line.split() for line in Path(f"/proc/self/{kind}_map").read_text(encoding="ascii").splitlines()]
    return min([_HIGHEST_ID, *(int(count) for inside, _, count in lines if inside == "0")])


def _ids_of_processes() -> set[range]:
    """Return the user and group ids that processes have, of whatever kind."""
    found = set()
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):  # it has ended meanwhile
            lines = status.read_text(encoding="utf-8", errors="replace").splitlines()
            ids = [line.split()[1:] for line in lines if line.startswith(("Uid:", "Gid:", "Groups:"))]
            found |= {range(int(one), int(one) + 1) for line in ids for one in line}
    return found


def _subordinate_ids(name: str) -> list[range]:
    """Return the ranges that users may give to containers of their own."""
    found = []
    with suppress(OSError):
        for line in Path("/etc", name).read_text(encoding="utf-8").splitlines():
            fields = line.split(":")
            if len(fields) == 3 and fields[1].isdigit() and fields[2].isdigit():
                found.append(range(int(fields[1]), int(fields[1]) + int(fields[2])))
    return found


def _has_a_name(number: int) -> bool:
    for look in (pwd.getpwuid, grp.getgrgid):
        with suppress(KeyError):
            look(number)
            return True
    return False


def _is_ours(number: int) -> bool:
    """Claim a number; False if another process of this machine has it."""
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0hermes-test-users-{number}")
    except OSError:
        claim.close()
        return False
    claim.detach()  # open until this process ends, and not inherited
    return True


UID = free_users()
"""The first of ten users of this process's own."""
LEVELS = ["none", pytest.param("bwrap", marks=pytest.mark.component("bwrap"))]


@cache
def why_no_bwrap() -> str | None:
    if shutil.which("bwrap") is None:
        return "bwrap is not installed"
    argv = ["bwrap", "--unshare-all", "--unshare-user", "--disable-userns", "--ro-bind", "/", "/", "true"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"bwrap does not work here: {done.stderr.strip()}"


def require(level: str) -> None:
    if level == "bwrap" and why_no_bwrap():
        pytest.skip(why_no_bwrap())


@asynccontextmanager
async def backend(**options):
    # Not tmp_path: its parents are closed to the unprivileged user that bubblewrap runs as.
    root = Path(tempfile.mkdtemp(prefix="hermes-test-"))
    root.chmod(0o755)
    made = LocalBackend(LocalOptions(root_dir=root, **options))
    made.lease_dir = root / "leases"
    try:
        yield made
    finally:
        await made.aclose()
        left = [path.name for path in root.iterdir() if path.name != "leases"]
        leases = [path.name for path in made.lease_dir.glob("*")]
        shutil.rmtree(root)
        assert not left
        assert not leases


@asynccontextmanager
async def sandbox(level="none", options=None, **fields):
    require(level)
    async with backend(**(options or {})) as made, await made.open(SandboxSpec(isolation=level, **fields)) as opened:
        yield opened


def processes_of(sandbox_id: str) -> list[int]:
    """Return the living processes that carry the sandbox's marker, seen from outside."""
    marked = ((pid, read_marker(pid)) for pid in read_table())
    return [pid for pid, marker in marked if marker is not None and marker.startswith(sandbox_id)]


def agent_of(sandbox_id: str) -> int:
    """Return the agent's process, seen from outside; inside bubblewrap nothing can reach it."""
    table = read_table()
    pids = [pid for pid in table if read_marker(pid) == f"{sandbox_id}.0"]
    return next((pid for pid in pids if table[pid].parent in pids), pids[0])


async def gone(pid: int, seconds: float = 60.0) -> bool:
    """Wait until a process has ended."""
    end = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < end:
        process = read_table().get(pid)
        if process is None:
            return True
        await asyncio.sleep(0.02)
    return False


def resident(pid: int) -> int:
    """Return the resident memory of a process in bytes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def slot_fields(workspace, **fields):
    """Return what a slot is opened with."""
    return {
        "workspace": str(workspace),
        "state_dir": str(Path(workspace, "state")),
        "bash": "/bin/bash",
        "cwd": None,
        "env": {"PATH": "/usr/bin:/bin"},
        "session": "robust",
        "lifetime": None,
        "uid": None,
        "gid": None,
        "umask": 0o022,
        "own_directory": False,
        "name": uuid.uuid4().hex[:16],
        **fields,
    }
