"""Measure the cost of a call on a node of a real Ray cluster, compared with a local sandbox in the same run.

Called by `cluster.py`; alone it prints the results.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from benchmarks.clusters.paired_calls import CALLS, COMMANDS, ROUNDS, SESSIONS, compare
from hermes_sandbox import open_sandbox

_SUPPORT: Final = Path(__file__).parents[2] / "plugins" / "hermes-backend-ray" / "tests" / "support"


async def _opening(options: dict[str, Any], leases: Path) -> float:
    began = time.perf_counter()
    async with open_sandbox("ray", options=options, isolation="none", lease_dir=leases):
        return round((time.perf_counter() - began) * 1000, 1)


async def _compared(options: dict[str, Any], session: str, leases: Path) -> dict[str, Any]:
    fields: dict[str, Any] = {"session": session, "isolation": "none", "lease_dir": leases}
    async with (
        open_sandbox("local", **fields) as local,
        open_sandbox("ray", options=options, **fields) as remote,
    ):
        return {name: await compare({"local": local, "ray": remote}, text) for name, text in COMMANDS.items()}


async def measure() -> dict[str, Any]:
    """Return medians in milliseconds, and how many times a local call one on a node takes.

    Keys: engine, calls (of each kind and side), opening_ms (the first sandbox of a process that is connected already,
    with its actor and agent), and for each of live and robust the commands builtin and fork.
    """
    ray = importlib.import_module("ray")
    sys.path.append(str(_SUPPORT))
    # Imported by name: it belongs to the tests, which are not type-checked.
    cluster = importlib.import_module("ray_cluster").RayCluster
    with tempfile.TemporaryDirectory() as folder:
        running = await asyncio.to_thread(cluster.shared, Path(folder))
        try:
            await asyncio.to_thread(ray.init, running.address, log_to_driver=False, logging_level="ERROR")
            found: dict[str, Any] = {"engine": f"Ray {ray.__version__}", "calls": ROUNDS * CALLS}
            found["opening_ms"] = await _opening({"address": running.address}, Path(folder))
            for session in SESSIONS:
                found[session] = await _compared({"address": running.address}, session, Path(folder))
        finally:
            await asyncio.to_thread(ray.shutdown)
            running.close()
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure()), indent=2))
