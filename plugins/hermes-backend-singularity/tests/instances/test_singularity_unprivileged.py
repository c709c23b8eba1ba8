"""The backend for a caller that is not root: everything runs in user namespaces of the user nobody."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import pytest
import small_images

pytestmark = pytest.mark.component("apptainer")
NOBODY = 65534

_CALLER = """
import asyncio, json, sys
from pathlib import Path
from hermes_backend_singularity.backend import SingularityBackend, SingularityOptions
from hermes_core.contracts.errors import BackendError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_testing.separation import require_separation
from hermes_testing.socket_ways import openings_in

options, place = json.loads(sys.argv[1]), Path(sys.argv[2])

async def refused(backend, **fields):
    try:
        await backend.check(SandboxSpec(network="none", **fields))
    except BackendError as error:
        return f"{type(error).__name__}: {error}"

async def main():
    options.update(cache_dir=place / "cache", scratch_dir=place / "scratch")
    backend = SingularityBackend(SingularityOptions(**options))
    backend.lease_dir = place / "leases"
    found = {}
    await backend.check(SandboxSpec(network="none"))
    async with await backend.open(SandboxSpec(network="none")) as box:
        found["uid"] = box.provenance["uid"]
        status = await box.exec("grep -hE '^(CapEff|CapBnd|NoNewPrivs):' /proc/self/status")
        found["privileges"] = status.output.split()
        await require_separation(box)
        await box.write_file("kept", b"1")
        await box.exec("kill -9 -1 1 $PPID; for p in /proc/[0-9]*; do kill -9 ${p#/proc/}; done", timeout=10)
        found["survived"] = (await box.exec("cat kept")).output
        found["nested"] = (await box.exec("unshare -U true")).exit_code
        found["openings"] = await openings_in(box, place)
        found["interfaces"] = (await box.exec("tail -n +3 /proc/net/dev | cut -d: -f1")).output.split()
        await box.freeze()
        found["frozen"] = (await box.exec("cat kept && touch new")).exit_code
    async with await backend.open(SandboxSpec(network="none", pids=40)) as box:
        found["bound"] = box.provenance["limits"]["pids"]
        crowd = await box.processes.start("for i in {1..60}; do sleep 60 & done")
        found["crowd"], clock = "", asyncio.get_running_loop().time
        end = clock() + 50  # on a busy machine it takes its time until there are so many
        while "unavailable" not in found["crowd"] and clock() < end:
            found["crowd"] = (await box.processes.read(crowd.id)).data.decode()
            await asyncio.sleep(0.02)
        await box.renew()
        found["room"] = (await box.exec("echo $(echo room)")).output
    found["memory"] = await refused(backend, memory_mb=64)
    found["disk"] = await refused(backend, disk_mb=64)
    found["plain"] = await refused(backend, image=sys.argv[3])
    await backend.aclose()
    found["left"] = [str(path) for path in (place / "scratch").iterdir()]
    backend = SingularityBackend(SingularityOptions(**options, memory_limit="per_process"))
    backend.lease_dir = place / "leases"
    async with await backend.open(SandboxSpec(network="none", memory_mb=512)) as box:
        found["too much"] = (await box.exec("python3 -c 'bytearray(600 << 20)'")).exit_code
    await backend.aclose()
    print(json.dumps(found))

asyncio.run(main())
"""


def _python() -> str:
    """Return a Python of this version that the user nobody can start; skip the test if there is none."""
    for candidate in (sys.executable, f"/usr/bin/python{sys.version_info[0]}.{sys.version_info[1]}"):
        done = _as_nobody([candidate, "-c", "import hermes_backend_singularity.backend"], home="/")
        if done is not None and done.returncode == 0:
            return candidate
    pytest.skip("no Python of this version that the user nobody can start, with this package")


def _as_nobody(argv, *, home):
    environment = {
        "HOME": home,
        "USER": "nobody",
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": ":".join([*sys.path, sysconfig.get_path("purelib")]),
    }
    try:
        return subprocess.run(
            argv, capture_output=True, text=True, check=False, user=NOBODY, group=NOBODY, extra_groups=[],
            env=environment, cwd="/", timeout=100,
        )  # fmt: skip
    except PermissionError:
        return None


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_user_s_sandbox_is_separated_and_says_what_it_cannot_limit(image):
    python = _python()
    # Only root can enter the test's own directory.
    place = tempfile.mkdtemp()
    os.chown(place, NOBODY, NOBODY)
    try:
        options = {"program": small_images.program(), "image": image, "workspace": "/work"}
        argv = [python, "-c", _CALLER, json.dumps(options), place, f"docker-archive:{_readable(place)}"]
        done = _as_nobody(argv, home=place)
        assert done.returncode == 0, done.stderr
    finally:
        shutil.rmtree(place)
    found = json.loads(done.stdout)
    assert found["uid"] == NOBODY
    assert found["privileges"] == ["CapEff:", "0" * 16, "CapBnd:", "0" * 16, "NoNewPrivs:", "1"]
    assert (found["survived"], found["interfaces"], found["left"]) == ("1", ["lo"], [])
    assert found["openings"] == []
    assert found["nested"] != 0
    assert found["frozen"] != 0
    assert found["bound"] == "40 more than its user had, by RLIMIT_NPROC"
    assert "Resource temporarily unavailable" in found["crowd"]
    assert found["room"] == "room\n"
    assert "memory_mb cannot be enforced here" in found["memory"]
    assert "disk_mb cannot be enforced here" in found["disk"]
    assert "has no python3" in found["plain"]
    assert found["too much"] == 1


def _readable(place: str) -> Path:
    copy = Path(place, "plain.tar")
    shutil.copy(small_images.archive(), copy)
    copy.chmod(0o644)
    return copy
