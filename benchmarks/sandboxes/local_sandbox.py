"""Measure the cost of a sandbox.

`python -m benchmarks.sandboxes.local_sandbox` prints JSON, ratios of one run side by side.

Latency of a command in a warm, state-keeping session against a bare `bash -c` started by the same asyncio program, and
the memory that a command printing 200 MB takes in the caller and in the agent.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from hermes_core.contracts.errors import BackendError
from hermes_core.contracts.sandbox import Sandbox, SandboxSpec
from hermes_sandbox.local import LocalBackend, belongs_to, read_table

COMMANDS = {"builtin": "true", "fork": "/bin/true"}
TARGETS = {"latency_ratio": 2.5, "growth_mb": 5.0}
PRINTED = 200 << 20


async def bare(command: str) -> None:
    process = await asyncio.create_subprocess_exec(
        "bash", "-c", command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    await process.communicate()


async def timed(call: Callable[[], Awaitable[object]]) -> float:
    started = time.perf_counter()
    await call()
    return (time.perf_counter() - started) * 1000


async def latencies(level: str, rounds: int, backend: LocalBackend) -> dict[str, Any]:
    async with await backend.open(SandboxSpec(isolation=level)) as sandbox:  # type: ignore[arg-type]  # a word of the CLI
        await sandbox.exec("export A=1 B=2; f() { echo f; }; cd /tmp")
        found = {}
        for name, command in COMMANDS.items():
            ours, theirs = [], []
            for _ in range(rounds):
                # In turn, so that load affects both.
                ours.append(await timed(lambda: sandbox.exec(command)))  # noqa: B023 - called at once
                theirs.append(await timed(lambda: bare(command)))  # noqa: B023 - called at once
            mine, reference = statistics.median(ours), statistics.median(theirs)
            found[name] = {
                "session_ms": round(mine, 3),
                "bare_bash_ms": round(reference, 3),
                "ratio": round(mine / reference, 2),
            }
        return found


def resident_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def agent_of(sandbox: Sandbox) -> int:
    """Return the agent's process: the last of the chain of launchers that belong to the sandbox."""
    return max(pid for pid in read_table() if belongs_to(pid, sandbox.id))


async def growth(level: str, backend: LocalBackend) -> dict[str, Any]:
    async with await backend.open(SandboxSpec(isolation=level)) as sandbox:  # type: ignore[arg-type]  # a word of the CLI
        await sandbox.exec("seq 50000")
        gc.collect()
        pids = {"caller": os.getpid(), "agent": agent_of(sandbox)}
        before = {name: resident_mb(pid) for name, pid in pids.items()}
        peak = dict(before)
        call = asyncio.create_task(sandbox.exec(f"head -c {PRINTED} /dev/zero"))
        started = time.perf_counter()
        while not call.done():
            await asyncio.sleep(0.002)
            peak = {name: max(peak[name], resident_mb(pid)) for name, pid in pids.items()}
        result = await call
        return {
            "seconds": round(time.perf_counter() - started, 2),
            "omitted_bytes": result.omitted_bytes,
            **{f"{name}_growth_mb": round(peak[name] - before[name], 2) for name in pids},
        }


def met(found: dict[str, Any]) -> bool:
    """Tell whether one level reaches its targets; one that cannot run here does not count."""
    if "skipped" in found:
        return True
    ratios = [row["ratio"] for row in found["latency"].values()]
    printing = found["printing_200_mb"]
    grown = max(printing["caller_growth_mb"], printing["agent_growth_mb"])
    return bool(max(ratios) <= TARGETS["latency_ratio"] and grown <= TARGETS["growth_mb"])


async def measure(rounds: int) -> dict[str, Any]:
    backend = LocalBackend()
    with tempfile.TemporaryDirectory() as leases:
        backend.lease_dir = Path(leases)
        report: dict[str, Any] = {"machine": {"python": platform.python_version(), "cpus": os.cpu_count()}}
        for level in ("none", "bwrap"):
            try:
                await backend.check(SandboxSpec(isolation=level))
            except BackendError as error:
                report[level] = {"skipped": error.message}
                continue
            latency = await latencies(level, rounds, backend)
            report[level] = {"latency": latency, "printing_200_mb": await growth(level, backend)}
    report["targets"] = TARGETS
    report["met"] = all(met(report[level]) for level in ("none", "bwrap"))
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300, help="calls per kind (%(default)s)")
    parser.add_argument("--out", type=Path, help="write the JSON here as well")
    arguments = parser.parse_args()
    text = json.dumps(asyncio.run(measure(arguments.rounds)), indent=2)
    print(text)
    if arguments.out:
        arguments.out.write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
