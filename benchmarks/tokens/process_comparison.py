"""Compare `process` of `hermes_atropos` with atroposlib's on one slow model."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from typing import Any

from benchmarks.rollouts import mock_server

GROUPS, SIZE, TURNS, LATENCY_MS = 40, 4, 6, 200.0


def measure() -> dict[str, Any]:
    """Return the rollouts per second of both sides; nothing where atroposlib is not installed."""
    if importlib.util.find_spec("atroposlib") is None:
        return {"absent": "atroposlib is not installed"}
    with mock_server.running(turns=TURNS, latency_ms=LATENCY_MS) as url:
        sides = {name: _side(name, url) for name in ("ours", "atroposlib")}
    return {"shape": f"{GROUPS} groups × {SIZE} × {TURNS} turns at {LATENCY_MS:.0f} ms", **sides}


def _side(name: str, url: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.tokens.process_side", name, url]
    numbers = ["--groups", str(GROUPS), "--size", str(SIZE)]
    done = subprocess.run([*command, *numbers], check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{name} did not process {GROUPS} groups: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
