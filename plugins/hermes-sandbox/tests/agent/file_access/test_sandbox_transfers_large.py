"""Large files, copied by a process that may not hold them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from copied_trees import require_holes

SPARSE = 1 << 30
DENSE = 200 << 20
ROOM = 48 << 20
"""Bytes a process may grow by while it copies; a copy has a window of 2 MB at either end, threads have stacks."""

PROGRAM = """
import asyncio, json, os, resource, sys
from pathlib import Path
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_sandbox.agent.processes import read_marker, read_table
from hermes_sandbox.local.backend import LocalBackend, LocalOptions

def status(pid, field):
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(lines[field].split()[0]) << 10

async def main(root, room):
    backend = LocalBackend(LocalOptions(root_dir=root))
    backend.lease_dir = root / "leases"
    (root / "small").write_bytes(b"x" * 4_000_000)
    async with await backend.open(SandboxSpec()) as sandbox:
        await sandbox.upload(root / "small", "small")
        await sandbox.download("small", root / "small")
        (agent,) = [pid for pid in read_table() if (read_marker(pid) or "").startswith(sandbox.id)]
        limits = {}
        for pid in (os.getpid(), agent):
            limit = status(pid, "VmData") + room
            resource.prlimit(pid, resource.RLIMIT_DATA, (limit, limit))
        there = await sandbox.upload(root / "source", "copy")
        back = await sandbox.download("copy", root / "back")
        stat = await sandbox.exec("stat -c '%s %b %B' copy")
    await backend.aclose()
    print(json.dumps([there.sha256, back.sha256, there.bytes, stat.output]))

asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
"""


# What is killed is the process itself, by itself, when a part of the file is there: no clock decides how much.
KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_sandbox.agent.file_access.unpacking import Unpacker
from hermes_sandbox.local.backend import LocalBackend, LocalOptions

def write_and_die(self, piece):
    write(self, piece)
    if any(place.startswith(sys.argv[1] + "/target/") for place in opened()):
        os.kill(os.getpid(), signal.SIGKILL)

def opened():
    for fd in os.listdir("/proc/self/fd"):
        try:
            if os.fstat(int(fd)).st_size:
                yield os.readlink(f"/proc/self/fd/{fd}")
        except OSError:  # what they were listed with
            continue

write, Unpacker.data = Unpacker.data, write_and_die

async def main(root):
    backend = LocalBackend(LocalOptions(root_dir=root / "sandboxes"))
    backend.lease_dir = root / "leases"
    async with await backend.open(SandboxSpec()) as sandbox:
        await sandbox.exec("head -c 8000000 /dev/zero >large")
        await sandbox.download("large", root / "target" / "large")

asyncio.run(main(Path(sys.argv[1])))
"""


def test_a_caller_killed_in_the_middle_leaves_no_part_of_a_file(root):
    for name in ("sandboxes", "target"):
        (root / name).mkdir()
    argv = [sys.executable, "-c", KILLED, str(root)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert list((root / "target").iterdir()) == []


def copy(root):
    argv = [sys.executable, "-c", PROGRAM, str(root), str(ROOM)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    sums = subprocess.run(["sha256sum", root / "source", root / "back"], capture_output=True, text=True, check=True)
    there, back, size, stat = json.loads(done.stdout)
    assert {there, back} == {line.split()[0] for line in sums.stdout.splitlines()}
    assert size == (root / "source").stat().st_size
    return [int(number) for number in stat.split()]


@pytest.fixture
def root(tmp_path):
    yield tmp_path
    for name in ("source", "back"):
        (tmp_path / name).unlink(missing_ok=True)


def make_sparse(path: Path) -> None:
    with path.open("wb") as file:
        for position in (0, 300 << 20, (300 << 20) + 4096, 700 << 20):
            file.seek(position)
            file.write(b"data" * 1024)
        file.truncate(SPARSE)


def test_a_sparse_gigabyte_is_copied_in_little_memory_and_stays_sparse(root):
    require_holes(root)
    make_sparse(root / "source")
    size, blocks, unit = copy(root)
    assert size == SPARSE
    assert blocks * unit < 1 << 20
    assert (root / "back").stat().st_blocks * 512 < 1 << 20


def test_a_file_far_larger_than_the_memory_of_either_end_is_copied(root):
    with (root / "source").open("wb") as file:
        for number in range(DENSE >> 20):
            file.write(number.to_bytes(4, "big") * (1 << 18))
    size, _, _ = copy(root)
    assert size == DENSE
