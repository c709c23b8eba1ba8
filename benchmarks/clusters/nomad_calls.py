"""Measure the cost of a call over Nomad's `alloc exec`, compared with a local sandbox in the same run.

With NOMAD_ADDR set it measures that cluster; else the stand-in of the tests, whose containers are real processes behind
a real websocket in another process. Called by `cluster.py`; alone it prints the results.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.clusters.slurm_calls import AbsentError
from hermes_core.contracts.sandbox import Sandbox
from hermes_sandbox import open_sandbox

_SUPPORT: Final = Path(__file__).parents[2] / "plugins" / "hermes-backend-nomad" / "tests" / "support"
_COMMANDS: Final = {"builtin": "echo hi", "fork": "/bin/true"}
_SESSIONS: Final = ("live", "robust")
_ROUNDS: Final = 15
_CALLS: Final = 20


@contextlib.contextmanager
def _cluster() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name of the measured engine, and the backend's options for it."""
    if os.environ.get("NOMAD_ADDR"):
        yield (
            f"Nomad at {os.environ['NOMAD_ADDR']}",
            {"sandbox_image": os.environ.get("NOMAD_TEST_IMAGE", "python:3.12")},
        )
        return
    if os.geteuid() != 0 or shutil.which("bwrap") is None:
        raise AbsentError("the stand-in for Nomad needs root and bubblewrap, and NOMAD_ADDR is not set")
    sys.path.insert(0, str(_SUPPORT))
    # Imported by name: it belongs to the tests, which are not type-checked.
    with importlib.import_module("nomad_standin").StandIn() as standin:
        yield "stand-in of Nomad 1.0.18", {"nomad_address": standin.address, "sandbox_image": "hermes:1"}


@contextlib.asynccontextmanager
async def _both(options: dict[str, Any], session: str, leases: Path) -> AsyncIterator[dict[str, Sandbox]]:
    fields: dict[str, Any] = {"session": session, "lease_dir": leases}
    async with (
        open_sandbox("local", **fields) as local,
        open_sandbox("nomad", options=options, isolation="container+slot", network="none", **fields) as nomad,
    ):
        yield {"local": local, "nomad": nomad}


async def _calls(sandbox: Sandbox, command: str) -> list[float]:
    times = []
    for _ in range(_CALLS):
        began = time.perf_counter()
        await sandbox.exec(command)
        times.append((time.perf_counter() - began) * 1000)
    return times


async def _compare(sandboxes: dict[str, Sandbox], command: str) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in sandboxes}
    for sandbox in sandboxes.values():
        await _calls(sandbox, command)
    for turn in range(_ROUNDS):
        # In turn, and each first every other time, so that load affects both.
        for name in sorted(sandboxes, reverse=bool(turn % 2)):
            times[name] += await _calls(sandboxes[name], command)
    medians = {name: statistics.median(found) for name, found in times.items()}
    return {
        "local_ms": round(medians["local"], 3),
        "nomad_ms": round(medians["nomad"], 3),
        "ratio": round(medians["nomad"] / medians["local"], 2),
    }


async def _opening(options: dict[str, Any], leases: Path) -> float:
    began = time.perf_counter()
    async with open_sandbox("nomad", options=options, isolation="container", network="none", lease_dir=leases):
        return round((time.perf_counter() - began) * 1000, 1)


async def measure() -> dict[str, Any]:
    """Return medians in milliseconds, and how many times a local call one over `alloc exec` takes.

    Keys: engine, calls (of each kind and side), opening_ms (a container to try, and another one for the sandbox), and
    for each of live and robust the commands builtin and fork.
    """
    with _cluster() as (engine, options), tempfile.TemporaryDirectory() as state:
        found: dict[str, Any] = {"engine": engine, "calls": _ROUNDS * _CALLS}
        leases = Path(state)
        found["opening_ms"] = await _opening(options, leases)
        for session in _SESSIONS:
            async with _both(options, session, leases) as sandboxes:
                found[session] = {name: await _compare(sandboxes, text) for name, text in _COMMANDS.items()}
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure()), indent=2))
