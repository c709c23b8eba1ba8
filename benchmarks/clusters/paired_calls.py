"""Measure one call in two sandboxes in turn, so that load affects both."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from typing import Final

from hermes_core.contracts.sandbox import Sandbox

COMMANDS: Final = {"builtin": "echo hi", "fork": "/bin/true"}
SESSIONS: Final = ("live", "robust")
ROUNDS: Final = 15
CALLS: Final = 20


async def _calls(sandbox: Sandbox, command: str) -> list[float]:
    times = []
    for _ in range(CALLS):
        began = time.perf_counter()
        await sandbox.exec(command)
        times.append((time.perf_counter() - began) * 1000)
    return times


async def compare(sandboxes: Mapping[str, Sandbox], command: str) -> dict[str, float]:
    """Return the median milliseconds of each, and the second as a multiple of the first."""
    first, second = sandboxes
    times: dict[str, list[float]] = {name: [] for name in sandboxes}
    for sandbox in sandboxes.values():
        await _calls(sandbox, command)
    for turn in range(ROUNDS):
        for name in sorted(sandboxes, reverse=bool(turn % 2)):
            times[name] += await _calls(sandboxes[name], command)
    medians = {name: statistics.median(found) for name, found in times.items()}
    return {
        f"{first}_ms": round(medians[first], 3),
        f"{second}_ms": round(medians[second], 3),
        "ratio": round(medians[second] / medians[first], 2),
    }
