"""What every test of every package shares: tests that need a real component say so and are skipped without it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import hypothesis
import pytest

# A slow or shared machine is no failure; in CI hypothesis' own profile for it, with fixed examples, stays the parent.
hypothesis.settings.register_profile("repository", parent=hypothesis.settings.default, deadline=None)
hypothesis.settings.load_profile("repository")

# Seconds; a daemon that hangs is as absent as one that refuses.
PROBE_TIMEOUT: Final = 30


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the first test of each module and every so manieth of the others, where HERMES_TEST_SHARE says which.

    For runs that ask whether a package's tests can run at all, beside one that runs all of them.
    """
    share = int(os.environ.get("HERMES_TEST_SHARE", "1"))
    if share <= 1:
        return
    first = {item.path: item for item in reversed(items)}
    kept = [item for item in items if first[item.path] is item or zlib.crc32(item.name.encode()) % share == 0]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
    items[:] = kept


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test marked `component(name)` where that component does not really work, with what was seen."""
    for marker in item.iter_markers("component"):
        for name in marker.args:
            reason = _reason(item.config, name)
            if reason is not None:
                pytest.skip(f"component {name}: {reason}")


def _reason(config: pytest.Config, name: str) -> str | None:
    """Return why a component is absent, or None; every component is tried at most once a process."""
    if name not in PROBES:
        raise pytest.UsageError(
            f"component({name!r}) is unknown; conftest.py has probes for {', '.join(sorted(PROBES))}"
        )
    seen = config.stash.setdefault(_SEEN, {})
    if name not in seen:
        seen[name] = PROBES[name]()
    return seen[name]


_SEEN: Final = pytest.StashKey[dict[str, str | None]]()


def _tried(*command: str) -> str | None:
    """Run a command that only works when the component does; return what went wrong."""
    program = shutil.which(command[0])
    if program is None:
        return f"{command[0]} is not installed"
    try:
        result = subprocess.run(
            [program, *command[1:]], capture_output=True, text=True, timeout=PROBE_TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        return f"{command[0]} did not answer within {PROBE_TIMEOUT} s"
    if result.returncode == 0:
        return None
    said = (result.stderr.strip() or result.stdout.strip() or "nothing").splitlines()[-1]
    return f"{command[0]} exited with {result.returncode}: {said}"


def _chromium() -> str | None:
    program = next(filter(shutil.which, ("chromium", "chromium-browser", "google-chrome")), None)
    if program is None:
        return "chromium is not installed"
    with tempfile.TemporaryDirectory() as profile:
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
        return _tried(program, *flags, f"--user-data-dir={profile}", "--dump-dom", "about:blank")


def _sshd() -> str | None:
    # It refuses to be called by a relative name, and its folder is not on every user's PATH.
    program = shutil.which("sshd", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin")
    if program is None or shutil.which("ssh-keygen") is None:
        return "sshd and ssh-keygen are not installed (Debian: openssh-server)"
    with tempfile.TemporaryDirectory() as folder:
        key = f"{folder}/host"
        failed = _tried("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
        if failed is not None:
            return failed
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        return _tried(program, "-t", "-f", os.devnull, "-h", key, "-o", "UsePAM=no")


def _apptainer() -> str | None:
    # Its tests may have a prefix of their own, see scripts/setup_apptainer.sh.
    search = f"{os.environ.get('HERMES_TEST_APPTAINER', '')}:{os.environ.get('PATH', os.defpath)}"
    program = shutil.which("apptainer", path=search) or shutil.which("singularity", path=search)
    if program is None:
        return "neither apptainer nor singularity is on PATH or in HERMES_TEST_APPTAINER"
    return _tried(program, "--version")


def _slurm() -> str | None:
    # The daemons live in sbin, which is not on every user's PATH.
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin"
    programs = ("slurmctld", "slurmd", "srun", "salloc", "squeue", "munged")
    absent = [name for name in programs if shutil.which(name, path=path) is None]
    if absent:
        return f"not installed: {', '.join(absent)} (Debian: slurmctld slurmd slurm-client munge)"
    return None if os.geteuid() == 0 else "slurmd and munged are started as root"


_MODAL: Final = ("MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET")
PROBES: Final[Mapping[str, Callable[[], str | None]]] = MappingProxyType(
    {
        "docker": lambda: _tried("docker", "version", "--format", "{{.Server.Version}}"),
        # A namespace of its own is what kernels and containers refuse; --version would not show it.
        "bwrap": lambda: _tried("bwrap", "--unshare-all", "--dev-bind", "/", "/", "true"),
        "apptainer": _apptainer,
        "chromium": _chromium,
        "sshd": _sshd,
        "modal": lambda: None if all(map(os.environ.get, _MODAL)) else f"{' and '.join(_MODAL)} are not set",
        # Its address is all that tells of a cluster; what is wrong with one that is named, the tests say.
        "nomad": lambda: None if os.environ.get("NOMAD_ADDR") else "NOMAD_ADDR is not set",
        "slurm": _slurm,
    }
)
