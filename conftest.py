"""What every test of every package shares: tests that need a real component say so and are skipped without it."""

from __future__ import annotations

import gc
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import warnings
import zlib
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Final

import hypothesis
import pytest

# A slow or shared machine is no failure; in CI hypothesis' own profile for it, with fixed examples, stays the parent.
hypothesis.settings.register_profile("repository", parent=hypothesis.settings.default, deadline=None)
hypothesis.settings.load_profile("repository")

# Seconds; a daemon that hangs is as absent as one that refuses. A busy machine takes its time.
PROBE_TIMEOUT: Final = 120


TIERS: Final = Path(__file__).with_name("tests") / "tiers.toml"


# Before xdist, which writes the group into a test's name.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what belongs to a slower tier, and keep the share of the tests that HERMES_TEST_SHARE asks for."""
    table = tomllib.loads(TIERS.read_text(encoding="utf-8")) if TIERS.exists() else {}
    for item in items:
        _mark(item, table)
    _keep_share(config, items)


def _mark(item: pytest.Item, table: Mapping[str, Mapping[str, Sequence[str]]]) -> None:
    """Give a test the mark of its tier, as tests/tiers.toml explains, and of its group there."""
    tier = _tier(item, table)
    if tier == "fast":
        return
    item.add_marker(tier)
    group = next((name for name, patterns in table.get("groups", {}).items() if _fits(item, patterns)), None)
    # What is deep and shares nothing is spread over all workers.
    if group or tier == "components":
        item.add_marker(pytest.mark.xdist_group(group or item.path.stem))


def _tier(item: pytest.Item, table: Mapping[str, Mapping[str, Sequence[str]]]) -> str:
    level = table.get("backend_level", {})
    if _fits(item, table.get("fast", {}).get("tests", ())):
        return "fast"
    if _fits(item, level.get("classes", ())):
        test = getattr(item, "function", None)
        own = ".".join(getattr(test, "__module__", "").split(".")[-2:]) in level["suites"]
        return "components" if own or getattr(test, "__name__", "") in level["tests"] else "deep"
    for tier in ("components", "deep"):
        if _fits(item, table.get(tier, {}).get("tests", ())):
            return tier
    if item.get_closest_marker("slow"):
        return "deep"
    return "components" if item.get_closest_marker("component") else "fast"


def _fits(item: pytest.Item, patterns: Sequence[str]) -> bool:
    """Tell whether a pattern holds for a test, which is its file's name and what stands behind that in its id."""
    name = item.path.name + item.nodeid[item.nodeid.find("::") :]
    return bool(patterns) and _expression(tuple(patterns)).match(name) is not None


@lru_cache
def _expression(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """Return what fits one of the patterns, to its end or to that of a name."""
    either = "|".join(re.escape(pattern).replace(r"\*", ".*") for pattern in patterns)
    return re.compile(rf"(?:{either})(?:\Z|(?=::|\[))", re.DOTALL)


def _keep_share(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the first fast test of each module and every so manieth of all; of share 0 the first alone.

    For runs that ask whether a package's tests can run at all, beside one that runs all of them.
    """
    share = int(os.environ.get("HERMES_TEST_SHARE", "1"))
    if share == 1:
        return
    slower = ("components", "deep")
    first = {item.path: item for item in reversed(items) if not any(map(item.get_closest_marker, slower))}
    kept = {
        item
        for item in items
        if first.get(item.path) is item or (share and zlib.crc32(item.name.encode()) % share == 0)
    }
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


_BEGAN: Final = pytest.StashKey[float]()
_FAILED: Final = pytest.StashKey[bool]()
_ENDED_ITS_WORKER: Final = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note a failure, of the class too: its tests may share an event loop and what lives in it."""
    report = yield
    if report.failed:
        for node in (item, item.getparent(pytest.Class)):
            if node is not None:
                node.stash[_FAILED] = True
    return report


def _has_failed(item: pytest.Item) -> bool:
    nodes = (item, item.getparent(pytest.Class))
    return any(node.stash.get(_FAILED, False) for node in nodes if node is not None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Collect what a test has left when its fixtures are down, so that a leak fails the test that leaked."""
    if _has_failed(item):
        # That its event loop cannot be closed either is no second failure, and what it left no leak.
        warnings.filterwarnings("default", "An exception occurred during teardown of an asyncio.Runner", RuntimeWarning)
        return (yield)
    done = yield
    # A look at everything takes as long as some tests: after those, what is young has to do.
    everything = _ends_a_module(item, nextitem) or time.monotonic() - item.stash[_BEGAN] > 0.5
    leaks = _collect_garbage(2 if everything else 1)
    if leaks:
        pytest.fail("the test left resources open:\n" + "\n".join(leaks), pytrace=False)
    return done


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, bool, bool]:
    """Collect what a failure's traceback kept alive, in silence: it is no fault of the test that comes next."""
    item.stash[_BEGAN] = time.monotonic()
    note = _note_of(item)
    if note is not None:
        try:
            note.touch(exist_ok=False)  # follows no link that somebody else has put there
        except FileExistsError:
            item.stash[_ENDED_ITS_WORKER] = True
    hook_result = yield
    if note is not None:
        note.unlink(missing_ok=True)
    if _has_failed(item):
        for name in ("last_exc", "last_type", "last_value", "last_traceback"):
            vars(sys).pop(name, None)
        with warnings.catch_warnings(action="ignore"):
            _collect_garbage(2)
    if _ends_a_module(item, nextitem):
        gc.freeze()  # what lives now is not looked at again
    return hook_result


def _note_of(item: pytest.Item) -> Path | None:
    """Return the file that is there while a worker of xdist runs a test.

    A test that hangs ends its worker, and of a group that was handed out whole xdist hands out all that was not over to
    the next worker, the test that hung with it.
    """
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if run is None:
        return None
    return Path(tempfile.gettempdir(), f"pytest-{run}-{zlib.crc32(item.nodeid.encode()):08x}")


def _ends_a_module(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    return nextitem is None or nextitem.path != item.path


def _collect_garbage(generation: int) -> list[str]:
    """Collect garbage, and return the errors of finalizers, which no code can catch."""
    said: list[str] = []
    hook = sys.unraisablehook
    sys.unraisablehook = lambda raised: said.append(f"{raised.object!r}: {raised.exc_value!r}")
    try:
        gc.collect(generation)
    finally:
        sys.unraisablehook = hook
    return said


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test marked `component(name)` where that component does not really work, with what was seen."""
    if item.stash.get(_ENDED_ITS_WORKER, False):
        pytest.fail("a worker ended in this test, which is not repeated", pytrace=False)
    for marker in item.iter_markers("component"):
        for name in marker.args:
            reason = _reason(item.config, name)
            if reason is not None:
                pytest.skip(skip_reason(name, reason))


def skip_reason(name: str, seen: str) -> str:
    """Return why a test of a component is skipped; .ci/allowed_skips.txt knows these texts."""
    return f"component {name}: {seen}"


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
