"""Measure cost and scaling of many machines: `python -m benchmarks.clusters.cluster` prints JSON, ratios of one run.

- A call in a warm session, `live` and `robust`, that forks or does not, over Slurm, Nomad's exec and Ray, beside the
  same call in a local sandbox.
- Rollouts per second on one to four hosts, with a model of fixed latency: with the sandboxes there (Slurm), and with
  the rollouts themselves there (`--engine ray`).

`--write` keeps the result in cluster.json and the table of docs/benchmarks.md. An engine that is absent here is
named, and its last figures are not kept, because all figures of the table are measured together.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any, Final

from benchmarks.clusters import slurm_hosts
from benchmarks.clusters.slurm_calls import AbsentError

HERE = Path(__file__).parent
RESULTS = HERE / "cluster.json"
ENGINES: Final = ("slurm", "nomad", "ray")
TARGETS: Final = {"call_over_local": 3.0, "per_added_host": 0.8}


async def measure_if_present(name: str) -> dict[str, Any]:
    """Measure with the module of this name; return the reason if its engine is missing."""
    try:
        found: dict[str, Any] = await importlib.import_module(f"benchmarks.clusters.{name}").measure()
    except (AbsentError, ImportError) as error:
        return {"absent": str(error)}
    return found


async def measure(engines: tuple[str, ...]) -> dict[str, Any]:
    """Measure all available engines, one after the other."""
    calls = {}
    for name in engines:
        print(f"calls: {name}", file=sys.stderr, flush=True)
        calls[name] = await measure_if_present(f"{name}_calls")
    print("hosts", file=sys.stderr, flush=True)
    try:
        hosts = await slurm_hosts.measure()
    except AbsentError as error:
        hosts = {"absent": str(error)}
    print("rollouts on nodes", file=sys.stderr, flush=True)
    where = {"python": platform.python_version(), "cores": os.cpu_count()}
    return {**where, "calls": calls, "hosts": hosts, "rollouts_on_nodes": await measure_if_present("ray_engine")}


def ratios(found: dict[str, Any]) -> dict[str, float]:
    """Return the ratio of every call that was measured, by engine, session and kind."""
    return {
        f"{name} {session} {kind}": found["calls"][name][session][kind]["ratio"]
        for name in found["calls"]
        for session in ("live", "robust")
        for kind in found["calls"][name].get(session, ())
    }


def missed(found: dict[str, Any]) -> list[str]:
    """Return the targets that were not reached, and by how much."""
    lines = [
        f"{name}: {ratio:g} times a local call, expected at most {TARGETS['call_over_local']:g}"
        for name, ratio in ratios(found).items()
        if ratio > TARGETS["call_over_local"]
    ]
    share = found["hosts"].get("per_added_host_mean")
    if share is not None and share < TARGETS["per_added_host"]:
        lines.append(f"an added host brings {share:g} of the first one, expected {TARGETS['per_added_host']:g}")
    growth = found["rollouts_on_nodes"].get("growth", 1.0)
    if growth < TARGETS["per_added_host"]:
        lines.append(f"nodes that run rollouts bring {growth:g} each, expected {TARGETS['per_added_host']:g}")
    return lines


def main() -> int:
    """Measure, print, and fail if a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", nargs="*", choices=ENGINES, default=ENGINES)
    parser.add_argument("--write", action="store_true", help="keep the result and write the page's table")
    options = parser.parse_args()
    found = asyncio.run(measure(tuple(options.engines)))
    print(json.dumps(found, indent=2))
    if options.write:
        RESULTS.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
        importlib.import_module("benchmarks.clusters.page_table").write()
    for line in missed(found):
        print(f"missed: {line}", file=sys.stderr)
    return 1 if missed(found) else 0


if __name__ == "__main__":
    sys.exit(main())
