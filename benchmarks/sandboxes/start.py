"""Measure what the start of a local sandbox costs: `python -m benchmarks.sandboxes.start` prints JSON.

One start is: open, one command, closed. Its processor time is that of the caller and that of all processes which it has
started, read when they have ended. Beside it, in the same run: a bare `bash -c true`, a bare Python that ends at once,
`bwrap … bash -c true` and, where a Python with sandlock is given, its `bash -c true`. A caller with much memory is
measured too, since to start a process as another user may copy the tables of all of it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from hermes_core.contracts.errors import BackendError
from hermes_core.contracts.sandbox import IsolationLevel, SandboxSpec
from hermes_sandbox.local import LocalBackend

LEVELS: tuple[IsolationLevel, ...] = ("none", "bwrap")
BUBBLEWRAP = ("bwrap", "--ro-bind", "/", "/", "--unshare-all", "--die-with-parent", "bash", "-c", "true")
ANCHORS: Mapping[str, tuple[str, ...]] = {
    "bash": ("bash", "-c", "true"),
    "bare_python": (sys.executable, "-I", "-S", "-E", "-c", "import os; os._exit(0)"),
    "bwrap_bash": BUBBLEWRAP,
}
CONCURRENT = 64
LARGE = 1 << 30
"""Bytes of memory of a large caller."""
TARGETS = {
    "children_ms": {"none": 20.0, "bwrap": 25.0},
    "cpu_ms": {"none": 12.0},
    "starts_per_second": {"none": 120.0},
    "over_bare_python": {"none": 1.76},
}
"""The milliseconds are those of a machine on which a bare Python takes 6.8 ms; `over_bare_python` is their ratio."""

Start = Callable[[], Awaitable[object]]


def processor_seconds() -> tuple[float, float]:
    """Return the user and system seconds of this process, and of its children that have ended."""
    own, ended = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime, ended.ru_utime + ended.ru_stime


async def cost(start: Start, rounds: int) -> dict[str, float]:
    """Return milliseconds of one start, one at a time: the median of the wall time and means of processor time."""
    await start()
    own, ended = processor_seconds()
    walls = []
    for _ in range(rounds):
        began = time.perf_counter()
        await start()
        walls.append((time.perf_counter() - began) * 1000)
    own_after, ended_after = processor_seconds()
    caller, children = ((own_after - own) / rounds * 1000, (ended_after - ended) / rounds * 1000)
    return {
        "wall_ms": round(statistics.median(walls), 2),
        "caller_ms": round(caller, 2),
        "children_ms": round(children, 2),
        "cpu_ms": round(caller + children, 2),
    }


async def starts_per_second(start: Start, rounds: int) -> float:
    """Return how many start and end each second, `CONCURRENT` at a time."""
    left = iter(range(rounds))

    async def work() -> None:
        for _ in left:
            await start()

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(CONCURRENT)))
    return round(rounds / (time.perf_counter() - began), 1)


def sandbox_start(backend: LocalBackend, level: IsolationLevel) -> Start:
    """Return what opens a sandbox, runs one command in it and closes it."""

    async def start() -> None:
        async with await backend.open(SandboxSpec(isolation=level)) as sandbox:
            result = await sandbox.exec("echo hi")
            if result.output != "hi\n":
                raise AssertionError(f"expected 'hi', got {result!r}")

    return start


def process_start(argv: tuple[str, ...]) -> Start:
    """Return what starts a program and waits for its end, as simple a caller as asyncio has."""

    async def start() -> None:
        process = await asyncio.create_subprocess_exec(*argv)
        if await process.wait():
            raise BackendError(f"{argv[0]} cannot run here")

    return start


def other_user_start() -> Start:
    """Return what starts bash as another user in the way of the standard library, which forks the caller for that."""

    def run() -> int:
        return subprocess.run(["bash", "-c", "true"], user=65534, group=65534, extra_groups=[], check=False).returncode

    async def start() -> None:
        if await asyncio.to_thread(run):
            raise BackendError("bash cannot run as another user here")

    return start


async def large_caller(starts: Mapping[str, Start], rounds: int) -> dict[str, Any]:
    """Measure starts while this process has much memory; only root can start bash as another user."""
    ballast = bytearray(LARGE)
    ballast[:: resource.getpagesize()] = b"x" * len(range(0, LARGE, resource.getpagesize()))
    chosen = {**starts, **({"bash_other_user": other_user_start()} if os.geteuid() == 0 else {})}
    return {name: await cost_or_reason(start, rounds) for name, start in chosen.items()}


async def cost_or_reason(start: Start, rounds: int, *, many: int = 0) -> dict[str, Any]:
    """Measure one kind of start, `many` of them also at a time; say why it cannot run here."""
    try:
        found: dict[str, Any] = await cost(start, rounds)
        if many:
            found["starts_per_second"] = await starts_per_second(start, many)
    except (BackendError, OSError) as error:
        return {"skipped": str(error)}
    return found


def sandlock_cost(python: str | None, rounds: int) -> dict[str, Any]:
    """Measure sandlock in a Python that has it."""
    if python is None:
        return {"skipped": "no --peers-python was given"}
    program = Path(__file__).with_name("sandlock_start.py")
    done = subprocess.run([python, program, str(rounds)], capture_output=True, text=True, check=False)
    if done.returncode:
        return {"skipped": (done.stderr.strip().splitlines() or ["it ended without a word"])[-1]}
    found: dict[str, Any] = json.loads(done.stdout)
    return found


async def measure(rounds: int, peers_python: str | None) -> dict[str, Any]:
    """Measure both levels and the anchors; what cannot run here says why."""
    report: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as leases:
        backend = LocalBackend()
        backend.lease_dir = Path(leases)
        starts: dict[str, Start] = {str(level): sandbox_start(backend, level) for level in LEVELS}
        starts |= {name: process_start(argv) for name, argv in ANCHORS.items()}
        for name, start in starts.items():
            report[name] = await cost_or_reason(start, rounds, many=rounds * 4)
        report["sandlock_bash"] = sandlock_cost(peers_python, rounds)
        large = await large_caller({level: starts[level] for level in LEVELS}, rounds)
        await backend.aclose()
    for level in LEVELS:
        if "cpu_ms" in report[level]:
            report[level]["over_bare_python"] = round(report[level]["cpu_ms"] / report["bare_python"]["cpu_ms"], 2)
    return {
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "starts": report,
        "starts_of_a_large_caller": large,
        "targets": TARGETS,
        "met": not missed_targets(report),
    }


def missed_targets(report: Mapping[str, Any]) -> list[str]:
    """Return the targets that are missed; milliseconds count where they are no fault of a slower machine."""
    missed = []
    for figure in ("starts_per_second", "over_bare_python"):
        for level, limit in TARGETS[figure].items():
            found = report[level].get(figure)
            is_met = found is None or (found >= limit if figure == "starts_per_second" else found <= limit)
            missed += [] if is_met else [f"{figure} of {level}"]
    return missed


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--rounds", type=int, default=60, help="starts of each kind (%(default)s)")
    parser.add_argument("--peers-python", help="a Python that has sandlock")
    options = parser.parse_args()
    print(json.dumps(asyncio.run(measure(options.rounds, options.peers_python)), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
