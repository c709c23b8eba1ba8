"""What the sandbox tests share: a backend of a test's own, and a look at the processes of this machine."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
import uuid
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

import pytest

from hermes_core.contracts.sandbox import SandboxSpec
from hermes_sandbox.local import LocalBackend, LocalOptions, belongs_to, read_marker, read_table
from hermes_testing.users import free_users

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
    """Return the living processes that carry the sandbox's marker, and its agent, seen from outside."""
    return [pid for pid in read_table() if belongs_to(pid, sandbox_id)]


def agent_of(sandbox_id: str) -> int:
    """Return the agent's process, seen from outside; inside bubblewrap nothing can reach it."""
    table = read_table()
    # None: an agent shows its marker to root only, not to its own user.
    pids = [pid for pid in table if belongs_to(pid, sandbox_id) and read_marker(pid) in {None, f"{sandbox_id}.0"}]
    return next((pid for pid in pids if table[pid].parent in pids), pids[0])


async def wait_until_gone(pid: int, seconds: float = 60.0) -> bool:
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
