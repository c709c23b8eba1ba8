"""Measure what the start of a local sandbox costs: `python -m benchmarks.sandboxes.start` prints JSON.

One start is: open, one command, closed. Its processor time is that of the caller and that of all processes which it has
started, read when they have ended. Beside it, in the same run: a bare `bash -c true`, a bare Python that ends at once,
and `bwrap … bash -c true`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import resource
import statistics
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
TARGETS = {"children_ms": {"none": 20.0, "bwrap": 25.0}}

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


async def measure(rounds: int) -> dict[str, Any]:
    """Measure both levels and the anchors; what cannot run here says why."""
    report: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as leases:
        backend = LocalBackend()
        backend.lease_dir = Path(leases)
        starts: dict[str, Start] = {str(level): sandbox_start(backend, level) for level in LEVELS}
        starts |= {name: process_start(argv) for name, argv in ANCHORS.items()}
        for name, start in starts.items():
            try:
                report[name] = await cost(start, rounds)
                report[name]["starts_per_second"] = await starts_per_second(start, rounds * 4)
            except (BackendError, OSError) as error:
                report[name] = {"skipped": str(error)}
        await backend.aclose()
    limits = TARGETS["children_ms"]
    return {
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "starts": report,
        "targets": TARGETS,
        "met": all(report[level].get("children_ms", 0.0) <= limit for level, limit in limits.items()),
    }


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--rounds", type=int, default=60, help="starts of each kind (%(default)s)")
    print(json.dumps(asyncio.run(measure(parser.parse_args().rounds)), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
