"""A process that can open no further descriptor: what it is told, and that it still cleans up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest
import sandbox_support
from sandbox_support import LEVELS, require

# In a process of its own, since the limit is the process's. `fill` leaves none of the descriptors.
HEAD = textwrap.dedent(
    """
    import asyncio, contextlib, errno, json, os, resource, sys, time
    from pathlib import Path
    from hermes_core.contracts.errors import BackendError
    from hermes_core.contracts.sandbox import SandboxSpec
    from hermes_sandbox.local.backend import LocalBackend, LocalOptions
    from sandbox_support import agent_of

    root, level = Path(sys.argv[1]), sys.argv[2]
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
    taken = []

    def fill(spare=0):
        try:
            while True:
                taken.append(os.dup(0))
        except OSError as error:
            assert error.errno == errno.EMFILE
        free(spare)

    def free(count):
        for _ in range(count):
            os.close(taken.pop())

    def opened():
        return len(os.listdir("/proc/self/fd")) - len(taken)

    async def main():
        backend = LocalBackend(LocalOptions(root_dir=root))
        backend.lease_dir = root / "leases"
        async with await backend.open(SandboxSpec(isolation=level)) as warm:
            await warm.exec("true")
        found = {"before": opened()}
        await test(backend, found)
        free(len(taken))
        end = time.monotonic() + 60
        while opened() != found["before"] and time.monotonic() < end:
            await asyncio.sleep(0.02)
        found["after"] = opened()
        found["left"] = [path.name for path in root.iterdir() if path.name != "leases"]
        found["leases"] = [path.name for path in (root / "leases").iterdir()]
        print(json.dumps(found))
    """
)
OPEN_WITH_NONE = """
async def test(backend, found):
    fill()
    found["errors"] = []
    for spare in range(12):
        try:
            async with await backend.open(SandboxSpec(isolation=level)):
                free(8)
        except BackendError as error:
            found["errors"].append([error.message, error.hint])
        free(1)
"""
CLOSE_WITH_NONE = """
async def test(backend, found):
    sandbox = await backend.open(SandboxSpec(isolation=level))
    await sandbox.exec("setsid sleep 300 & sleep 300 & mkdir -p a/b; chmod 500 a")
    if how == "killed":
        with contextlib.suppress(BackendError):
            os.kill(agent_of(sandbox.id), 9)
            await sandbox.exec("sleep 300")
    fill()
    await sandbox.aclose()
"""


@pytest.fixture
def place():
    with tempfile.TemporaryDirectory(prefix="hermes-test-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def run(place, level, body):
    require(level)
    argv = [sys.executable, "-W", "error", "-c", f"{HEAD}\n{body}\nasyncio.run(main())", str(place), level]
    folders = [str(Path(sandbox_support.__file__).parent), *sys.path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=180, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["left"], found["leases"]) == ([], [])
    assert found["after"] == found["before"]
    return found


@pytest.mark.parametrize("level", LEVELS)
def test_opening_says_what_to_type_and_leaves_nothing(place, level):
    found = run(place, level, OPEN_WITH_NONE)
    assert len(found["errors"]) >= 3
    for message, hint in found["errors"]:
        assert "Too many open files" in message
        assert hint.startswith("ulimit -n")


@pytest.mark.parametrize("how", ["alive", "killed"])
@pytest.mark.parametrize("level", LEVELS)
def test_closing_succeeds_without_any(place, level, how):
    run(place, level, f"how = {how!r}\n{CLOSE_WITH_NONE}")
