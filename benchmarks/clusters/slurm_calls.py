"""Measure the cost of a call over srun on a real local Slurm, compared with a local sandbox in the same run.

Called by `cluster.py`; alone it prints the results.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.clusters.paired_calls import CALLS, COMMANDS, ROUNDS, SESSIONS, compare
from hermes_sandbox import open_sandbox

_SUPPORT: Final = Path(__file__).parents[2] / "plugins" / "hermes-backend-slurm" / "tests" / "support"


class AbsentError(Exception):
    """An engine is not available; the message says why."""


@contextmanager
def slurm_cluster(nodes: int) -> Iterator[Any]:
    """Run a Slurm with this many nodes, like the tests of its backend, and remove it afterwards."""
    sys.path.append(str(_SUPPORT))
    module = importlib.import_module("slurm_cluster")
    reason = module.missing_slurm()
    if reason is not None:
        raise AbsentError(reason)
    cluster = module.SlurmCluster(nodes).start()
    try:
        yield cluster
    finally:
        cluster.stop()


async def measure() -> dict[str, Any]:
    """Return medians in milliseconds, and how many times a local call one over srun takes.

    Keys: engine, calls (of each kind and side), opening_ms (the first sandbox of a process, with its agent), and for
    each of live and robust the commands builtin and fork.
    """
    with slurm_cluster(1) as cluster, cluster.allocation(1) as job, tempfile.TemporaryDirectory() as state:
        version = cluster.call("srun", "--version").stdout.split()[-1]
        found: dict[str, Any] = {"engine": f"Slurm {version}", "calls": ROUNDS * CALLS}
        slurm: dict[str, Any] = {"options": {"conf": str(cluster.conf), "job_id": job}, "lease_dir": Path(state)}
        for session in SESSIONS:
            async with (
                open_sandbox("local", session=session, isolation="none", lease_dir=Path(state)) as local,
                open_sandbox("slurm", session=session, isolation="none", **slurm) as remote,
            ):
                sandboxes = {"local": local, "slurm": remote}
                found[session] = {name: await compare(sandboxes, text) for name, text in COMMANDS.items()}
        began = time.perf_counter()
        async with open_sandbox("slurm", isolation="none", **slurm):
            found["opening_ms"] = round((time.perf_counter() - began) * 1000, 1)
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure()), indent=2))
