"""Measure what backend `local` would cost as a link: `python -m benchmarks.sandboxes.local_over_link` prints JSON.

The backends for other machines (ssh, slurm, ray) start programs through a `Link`. A link of subprocesses makes a
backend for this machine in a hundred lines, without control groups or disk limits. This opens a sandbox, runs a
command and closes the sandbox with `local` and with that backend, in turn. CPU is that of this process and of all that
it started and that has ended, so it is not given for a shared agent, which continues. `--write` keeps the result
in local_over_link.json and the lines of docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import platform
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.readme_marks import between, print_results
from hermes_core.contracts.errors import BackendError
from hermes_core.contracts.sandbox import IsolationLevel, SandboxSpec
from hermes_core.specs import BackendSpec
from hermes_sandbox.backends import ENVIRONMENT, AgentBackend, AgentStream
from hermes_sandbox.local import AgentProcess, LocalBackend, LocalOptions
from hermes_sandbox.remote import CompletedCommand, Link, MachineBackend, MachineOptions

RESULTS = Path(__file__).with_name("local_over_link.json")
PAGE = Path(__file__).parents[2] / "docs/benchmarks.md"
BEGIN = "<!-- link figures: begin, written by benchmarks/sandboxes/local_over_link.py -->"
END = "<!-- link figures: end -->"
LEVELS: tuple[IsolationLevel, ...] = ("none", "bwrap")
SHARED = 64


class LocalProgram:
    """A program of this machine, as a link gives it."""

    def __init__(self, process: AgentProcess) -> None:
        self._process = process
        self.over = False

    @property
    def stream(self) -> AgentStream:
        """Its standard input and output."""
        return self._process.stream

    async def wait(self, seconds: float) -> bool:
        """End it after so many seconds; True if it ended by itself, and well."""
        well = self.over or await self._process.end(seconds)
        self.over = True
        return well


class SubprocessLink:
    """A link to this machine."""

    name = "this machine"
    alive = True

    async def run(self, command: str, data: bytes = b"", *, timeout: float) -> CompletedCommand:
        """Run a program to its end."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", command, stdin=pipe, stdout=pipe, stderr=pipe, env=dict(ENVIRONMENT)
        )
        output, complaint = await asyncio.wait_for(process.communicate(data), timeout)
        return CompletedCommand(process.returncode or 0, output, complaint.decode(errors="replace").strip())

    async def start(self, command: str) -> LocalProgram:
        """Start a program that talks to the caller."""
        return LocalProgram(await AgentProcess.start(("/bin/sh", "-c", command), environment=ENVIRONMENT))

    async def aclose(self) -> None:
        """Do nothing: its programs end with their input."""


class LinkBackend(MachineBackend):
    """Sandboxes of this machine through a link."""

    declaration: ClassVar[BackendSpec] = BackendSpec(
        name="local_over_link",
        summary="Processes of this machine through a link of subprocesses.",
        target="benchmarks.sandboxes.local_over_link:LinkBackend",
        isolation=LEVELS,
        networks=frozenset({"none"}),
        limits=frozenset({"file_size", "pids"}),
    )

    async def connect(self) -> Link:
        """Return a link."""
        return SubprocessLink()

    @contextlib.asynccontextmanager
    async def reach(self, handle: Mapping[str, Any]) -> AsyncIterator[Sequence[Link]]:
        """Provide a link."""
        del handle
        yield (SubprocessLink(),)

    def address(self) -> Mapping[str, Any]:
        """Do nothing: there is one machine."""
        return {}


def spent() -> float:
    """Return the CPU seconds of this process and of its children that have ended."""
    found = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in found)


async def visit(backend: AgentBackend, level: IsolationLevel) -> tuple[float, float]:
    """Open a sandbox, run a command, close the sandbox; returns milliseconds of CPU and of the clock."""
    cpu, clock = spent(), time.perf_counter()
    async with await backend.open(SandboxSpec(isolation=level)) as sandbox:
        result = await sandbox.exec("echo hi")
    if result.output != "hi\n":
        raise AssertionError(f"expected 'hi', got {result.output!r}")
    return (spent() - cpu) * 1000, (time.perf_counter() - clock) * 1000


def options(kind: type[MachineOptions | LocalOptions], shared: int, root: Path) -> Any:
    """Return either backend's options; both have the same two."""
    return kind.model_validate({"root_dir": str(root), "slots_per_agent": shared})


async def compare(level: IsolationLevel, shared: int, rounds: int, root: Path) -> dict[str, Any]:
    """Visit both in turn, after one visit each: a shared agent is there from then on."""
    sides: dict[str, AgentBackend] = {
        "local": LocalBackend(options(LocalOptions, shared, root)),
        "link": LinkBackend(options(MachineOptions, shared, root)),
    }
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    try:
        for backend in sides.values():
            backend.lease_dir = root / "leases"
            await visit(backend, level)
        for _ in range(rounds):
            for name, backend in sides.items():
                took[name].append(await visit(backend, level))
    finally:
        for backend in sides.values():
            await backend.aclose()
    cpu = {name: statistics.median(row[0] for row in rows) for name, rows in took.items()}
    clock = {name: statistics.median(row[1] for row in rows) for name, rows in took.items()}
    found = {**{f"{name}_ms": round(value, 2) for name, value in clock.items()}, "ratio": ratio(clock)}
    if shared > 1:
        return found
    return {**found, **{f"{name}_cpu_ms": round(value, 2) for name, value in cpu.items()}, "cpu_ratio": ratio(cpu)}


def ratio(found: Mapping[str, float]) -> float:
    """Return how many times as much the link takes."""
    return round(found["link"] / found["local"], 2)


async def measure(rounds: int) -> dict[str, Any]:
    """Return one row for each kind of sandbox."""
    report: dict[str, Any] = {"python": platform.python_version(), "cores": os.cpu_count(), "rounds": rounds}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        os.chmod(folder, 0o755)  # noqa: PTH101 - at start; what runs inside bubblewrap is another user
        for level in LEVELS:
            for shared in (1, SHARED) if level == "none" else (1,):
                name = f"{level}, {'a shared agent' if shared > 1 else 'an agent each'}"
                try:
                    report[name] = await compare(level, shared, rounds, root)
                except BackendError as error:
                    report[name] = {"skipped": error.message}
    return report


def sentence(report: Mapping[str, Any]) -> str:
    """Return what the page says of it."""
    rows = (f"- {name}: {found['ratio']:g} times as long" for name, found in report.items() if "ratio" in str(found))
    return "\n".join(("Opening a sandbox, one command in it and closing it, through a link:", "", *rows))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100, help="sandboxes of each kind and side (%(default)s)")
    parser.add_argument("--write", action="store_true", help="keep the result in local_over_link.json")
    arguments = parser.parse_args()
    report = asyncio.run(measure(arguments.rounds))
    update = partial(between, begin=BEGIN, end=END, text=sentence(report))
    print_results(report, write=arguments.write, results=RESULTS, page=PAGE, with_figures=update)
    return 0


if __name__ == "__main__":
    sys.exit(main())
