"""Measure what a start in sandlock costs: run by `benchmarks.sandboxes.start` in a Python that has it, prints JSON.

The sandbox lets `bash -c true` read the system's own folders and write nowhere.
"""

from __future__ import annotations

import json
import resource
import statistics
import sys
import time

import sandlock  # type: ignore[import-not-found]  # only the peers' Python has it

READABLE = ["/usr", "/lib", "/lib64", "/bin", "/etc"]


def start() -> None:
    """Run bash once."""
    result = sandlock.Sandbox(fs_readable=READABLE).run(["/bin/bash", "-c", "true"])
    if not result.success:
        raise SystemExit(f"sandlock cannot run here: {result.error or result.exit_code}")


def cpu_seconds() -> float:
    """Return user and system seconds of this process, and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def main() -> None:
    """Measure and print."""
    rounds = int(sys.argv[1])
    start()
    before, walls = cpu_seconds(), []
    for _ in range(rounds):
        began = time.perf_counter()
        start()
        walls.append((time.perf_counter() - began) * 1000)
    cpu = (cpu_seconds() - before) / rounds * 1000
    print(json.dumps({"wall_ms": round(statistics.median(walls), 2), "cpu_ms": round(cpu, 2)}))


if __name__ == "__main__":
    main()
