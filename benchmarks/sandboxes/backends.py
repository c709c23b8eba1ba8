"""Measure the cost of a sandbox with every backend.

`python -m benchmarks.sandboxes.backends` prints JSON, ratios of one run.

- A command in a warm session, `live` and `robust`, that forks (`/bin/true`) or does not (`true`), on `local`, Docker,
  Singularity and SSH, beside a bare persistent bash, a fresh `bash -c` and, for throughput with 64 sandboxes,
  `docker exec`.
- Opening a slot in a running agent, 1,000 open slots, a file of 50 MB each way.
- SWE-ReX by its own code, with `--peers-python` a Python that has it.

`--write` keeps the result in backends.json and the table of docs/benchmarks.md. Places that are absent here
(no engine, no sshd) are named.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from benchmarks.sandboxes.baselines import BareBash, docker_exec, fresh_bash, start_container, stop_container, swe_rex
from benchmarks.sandboxes.sandbox_kinds import KINDS, OpenSandboxes, apptainer_image, open_sandboxes, ssh_server
from benchmarks.sandboxes.small_image import build_if_absent

HERE = Path(__file__).parent
RESULTS = HERE / "backends.json"
FORK, BUILTIN = "/bin/true", "true"
SLOTS, CROWD, FILE_MB = 64, 1000, 50
TURN = 10
TARGETS = {
    "live_fork_over_bare_bash": 2.0,
    "live_builtin_ms": 0.5,
    "robust_fork_over_bash_c": 2.5,
    "remote_fork_over_local": 2.0,
    "live_throughput_over_docker_exec": 40.0,
    "robust_throughput_over_docker_exec": 12.0,
    "slot_open_ms": 5.0,
    "thousand_slots_mb": 120.0,
    "file_mb_per_second": 100.0,
}


async def timed(call: Callable[[], Awaitable[object]]) -> float:
    """Return milliseconds."""
    began = time.perf_counter()
    await call()
    return (time.perf_counter() - began) * 1000


async def latencies(opened: Mapping[str, OpenSandboxes], rounds: int) -> dict[str, dict[str, float]]:
    """Return the median milliseconds of a command on every side, taken in turn so that noise hits all alike.

    A turn is a handful of calls, as a rollout makes them: a single one would find every cache cold.
    """
    bare = await BareBash.start()
    sides: dict[str, Callable[[str], Awaitable[object]]] = {"bare bash": bare.run, "bash -c": fresh_bash}
    for name, sandboxes in opened.items():
        sides[name] = sandboxes.sandbox.exec
    took: dict[str, dict[str, list[float]]] = {name: {FORK: [], BUILTIN: []} for name in sides}
    for number in range(rounds // TURN + 1):
        for name, run in sides.items():
            for command in (FORK, BUILTIN):
                spent = [await timed(lambda: run(command)) for _ in range(TURN)]  # noqa: B023 - called at once
                if number:
                    took[name][command] += spent
    await bare.end()
    return {
        name: {
            "fork_ms": round(statistics.median(row[FORK]), 3),
            "builtin_ms": round(statistics.median(row[BUILTIN]), 3),
        }
        for name, row in took.items()
    }


async def per_second(run: Callable[[int], Awaitable[object]], workers: int, seconds: float) -> float:
    """Return the commands per second of all workers together."""
    end = time.perf_counter() + seconds
    done = 0

    async def work(number: int) -> None:
        nonlocal done
        while time.perf_counter() < end:
            await run(number)
            done += 1

    began = time.perf_counter()
    await asyncio.gather(*(work(number) for number in range(workers)))
    return done / (time.perf_counter() - began)


async def throughput(image: str, seconds: float, rounds: int) -> dict[str, Any]:
    """Return commands per second of 64 sandboxes in pooled containers, and of `docker exec`; the best of the rounds."""
    best: dict[str, float] = {}
    container = start_container(image)
    try:
        for _ in range(rounds):
            rate = await per_second(lambda _: docker_exec(container, FORK), SLOTS, seconds)
            best["docker exec"] = max(rate, best.get("docker exec", 0))
            for session in ("live", "robust"):
                async with open_sandboxes("docker pool", session, count=SLOTS) as pool:
                    for sandbox in pool.sandboxes:
                        await sandbox.exec(BUILTIN)
                    rate = await per_second(lambda n: pool.sandboxes[n].exec(FORK), SLOTS, seconds)
                best[session] = max(rate, best.get(session, 0))
    finally:
        stop_container(container)
    return {
        **{f"{name} per_second": round(rate, 1) for name, rate in best.items()},
        **{f"{name}_over_docker_exec": round(best[name] / best["docker exec"], 1) for name in ("live", "robust")},
    }


async def crowd(name: str) -> dict[str, float]:
    """Open many sandboxes in one process and return their opening times and memory."""
    async with open_sandboxes(name, "robust", count=1) as first:
        await first.sandbox.exec(BUILTIN)
        before = resident_mb()
        took = []
        took = [await timed(first.open_another) for _ in range(CROWD)]
        return {
            "open_ms": round(statistics.median(took), 2),
            "slots": len(first.sandboxes),
            "caller_growth_mb": round(resident_mb() - before, 1),
        }


def resident_mb() -> float:
    """Return the resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


async def files(sandboxes: OpenSandboxes, rounds: int) -> dict[str, float]:
    """Return megabytes per second of a large file, the best of the rounds."""
    data = os.urandom(FILE_MB << 20)
    best = {"write": 0.0, "read": 0.0}
    for _ in range(rounds):
        spent = await timed(lambda: sandboxes.sandbox.write_file("big", data))
        best["write"] = max(best["write"], FILE_MB / spent * 1000)
        spent = await timed(lambda: sandboxes.sandbox.read_file("big"))
        best["read"] = max(best["read"], FILE_MB / spent * 1000)
    return {f"{name}_mb_per_second": round(rate, 1) for name, rate in best.items()}


async def lifetime(sandboxes: OpenSandboxes, rounds: int) -> dict[str, float]:
    """Return the median milliseconds of opening a sandbox, up to its first command's end, and of closing it."""
    took: dict[str, list[float]] = {"open": [], "close": []}
    for _ in range(rounds):
        began = time.perf_counter()
        sandbox = await sandboxes.backend.open(sandboxes.spec)
        await sandbox.exec(BUILTIN)
        took["open"].append((time.perf_counter() - began) * 1000)
        took["close"].append(await timed(sandbox.aclose))
    return {f"{name}_ms": round(statistics.median(row), 1) for name, row in took.items()}


def prepare(stack: AsyncExitStack) -> dict[str, str]:
    """Set up the requirements of some kinds until the stack ends; returns what is missing, with the reason."""
    absent = {}
    for name, make in (("ssh", ssh_server), ("singularity", apptainer_image)):
        try:
            stack.enter_context(make())
        except (AssertionError, OSError, RuntimeError) as error:
            absent[name] = str(error) or "its program is not installed"
    return absent


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run every case that is available here."""
    absent: dict[str, str] = {}
    found: dict[str, Any] = {
        "python": platform.python_version(), "cores": os.cpu_count(), "absent": absent,
        "latency": {}, "files": {}, "lifetime": {},
    }  # fmt: skip
    async with AsyncExitStack() as stack:
        opened: dict[str, OpenSandboxes] = {}
        absent.update(prepare(stack))
        wanted = [name for name in KINDS if options.only is None or name in options.only.split(",")]
        for name in wanted:
            for session in ("live", "robust"):
                try:
                    opened[f"{name} {session}"] = await stack.enter_async_context(
                        open_sandboxes(name, session, count=1)
                    )
                except Exception as error:  # noqa: BLE001 - whatever it is, it is named in the result
                    absent[name] = str(error)
        found["latency"] = await latencies(opened, options.rounds)
        for name in wanted:
            if f"{name} robust" in opened:
                found["files"][name] = await files(opened[f"{name} robust"], 3)
                found["lifetime"][name] = await lifetime(opened[f"{name} robust"], 7)
    if "docker pool" not in absent and "docker pool" in wanted:
        found["throughput"] = await throughput(KINDS["docker pool"].image, options.seconds, 2)
        # In a separate process, whose memory contains nothing else.
        command = [sys.executable, "-m", "benchmarks.sandboxes.backends", "--crowd"]
        done = await asyncio.to_thread(subprocess.run, command, check=True, stdout=subprocess.PIPE)
        found["crowd"] = json.loads(done.stdout)
    if options.peers_python:
        found["swe_rex"] = swe_rex(options.peers_python, calls=30, sessions=16)
    elif RESULTS.exists():
        found["swe_rex"] = json.loads(RESULTS.read_text(encoding="utf-8")).get("swe_rex")
    found["ratios"] = ratios(found)
    found["missed"] = missed(found)
    return found


def ratios(found: dict[str, Any]) -> dict[str, float]:
    """Return the figures that have targets."""
    latency = found["latency"]
    result: dict[str, float] = {}
    for name, row in latency.items():
        if name.endswith(" live"):
            result[f"{name}: fork over bare bash"] = row["fork_ms"] / latency["bare bash"]["fork_ms"]
        elif name.endswith(" robust"):
            result[f"{name}: fork over bash -c"] = row["fork_ms"] / latency["bash -c"]["fork_ms"]
        for remote, beside in (("docker", "local"), ("singularity", "local"), ("ssh", "local none")):
            here = latency.get(f"{beside} {name.rpartition(' ')[2]}")
            if name.startswith(remote) and here:
                result[f"{name}: fork over local"] = row["fork_ms"] / here["fork_ms"]
    return {name: round(ratio, 2) for name, ratio in result.items()}


def missed(found: dict[str, Any]) -> list[str]:
    """Return the missed targets, each with its figure."""
    limits = {
        "fork over bare bash": TARGETS["live_fork_over_bare_bash"],
        "fork over bash -c": TARGETS["robust_fork_over_bash_c"],
        "fork over local": TARGETS["remote_fork_over_local"],
    }
    # The first two are about the session itself, so only `local` has them.
    over = {
        name: (ratio, limits[name.partition(": ")[2]])
        for name, ratio in found["ratios"].items()
        if name.startswith("local") or name.endswith("over local")
    }
    for name, row in found["latency"].items():
        if name.endswith(" live"):
            over[f"{name}: builtin, ms"] = (row["builtin_ms"], TARGETS["live_builtin_ms"])
    if "crowd" in found:
        over["opening a slot, ms"] = (found["crowd"]["open_ms"], TARGETS["slot_open_ms"])
        over["1,000 slots, MB"] = (found["crowd"]["caller_growth_mb"], TARGETS["thousand_slots_mb"])
    result = [f"{name}: {value} > {limit:g}" for name, (value, limit) in over.items() if value > limit]
    if "throughput" in found:
        for session in ("live", "robust"):
            reached, wanted = (
                found["throughput"][f"{session}_over_docker_exec"],
                TARGETS[f"{session}_throughput_over_docker_exec"],
            )
            result += [f"{session} throughput over docker exec: {reached} < {wanted:g}"] if reached < wanted else []
    for name, row in found["files"].items():
        if name.startswith("docker"):
            result += [
                f"{name} {way}: {rate} < 100" for way, rate in row.items() if rate < TARGETS["file_mb_per_second"]
            ]
    return result


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=200, help="calls per kind (%(default)s)")
    parser.add_argument("--seconds", type=float, default=4.0, help="seconds of each throughput (%(default)s)")
    parser.add_argument(
        "--only", help="names of the kinds of sandboxes, separated by commas, such as local,singularity"
    )
    parser.add_argument("--peers-python", help="a Python that has swe-rex")
    parser.add_argument(
        "--write", action="store_true", help="keep the result of all kinds in backends.json and docs/benchmarks.md"
    )
    parser.add_argument("--crowd", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.crowd:
        print(json.dumps(asyncio.run(crowd("docker crowd"))))
        return 0
    build_if_absent()
    found = asyncio.run(measure(options))
    text = json.dumps(found, indent=2)
    print(text)
    if options.write and options.only is None:
        RESULTS.write_text(text + "\n", encoding="utf-8")
        subprocess.run([sys.executable, "-m", "benchmarks.sandboxes.page_tables"], check=True)
    return 1 if found["missed"] else 0


if __name__ == "__main__":
    sys.exit(main())
