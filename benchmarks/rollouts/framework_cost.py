"""Measure the cost per turn compared with a plain aiohttp loop, and 512 rollouts in flight; ratios within one run.

Both sides talk to the same instant mock server, each in a separate process, in turn; the best of several rounds counts.
`python -m benchmarks.rollouts.framework_cost` prints JSON and exits 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from typing import Any

from benchmarks.rollouts.mock_server import running

ROLLOUTS, SHORT, LONG, CONCURRENCY = 200, 6, 50, 64
IN_FLIGHT, LATENCY_MS = 512, 500.0
TARGETS = {
    "cpu_ratio_6_turns": 4.0,
    "growth_6_to_50_turns": 1.2,
    "wall_over_ideal_512": 1.25,
    "peak_rss_mb_512": 60 + IN_FLIGHT * 0.05,
}


def side(module: str, url: str, **options: int) -> dict[str, Any]:
    """Measure one side in a fresh process."""
    flags = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    place = [url] if module == "our_loop" else ["--url", url]
    command = [sys.executable, "-m", f"benchmarks.rollouts.{module}", *place, *flags]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, Any] = json.loads(done.stdout)
    if result.get("failed"):
        raise RuntimeError(f"{result['failed']} rollouts did not end with the final answer")
    return result


def cpu_per_turn(turns: int, rollouts: int, rounds: int) -> dict[str, float]:
    """Return the best milliseconds of CPU per turn of both sides."""
    best: dict[str, float] = {}
    with running(turns=turns) as url:
        for _ in range(rounds):
            for name, module in (("plain", "plain_loop"), ("ours", "our_loop")):
                found = side(module, url, rollouts=rollouts, turns=turns, concurrency=CONCURRENCY)["cpu_per_turn_ms"]
                best[name] = min(found, best.get(name, found))
    return best


def in_flight(rounds: int) -> dict[str, Any]:
    """Return our figures with many rollouts waiting for a slow model at the same time, of the fastest round."""
    with running(turns=SHORT, latency_ms=LATENCY_MS) as url:
        measured = [
            side("our_loop", url, rollouts=IN_FLIGHT, turns=SHORT, concurrency=IN_FLIGHT) for _ in range(rounds)
        ]
    return min(measured, key=lambda found: float(found["wall_s"]))


def measure(rounds: int) -> dict[str, Any]:
    """Measure everything."""
    short = cpu_per_turn(SHORT, ROLLOUTS, rounds)
    long = cpu_per_turn(LONG, ROLLOUTS // 4, rounds)
    many = in_flight(rounds)
    ideal = SHORT * LATENCY_MS / 1000
    ratios = {
        "cpu_ratio_6_turns": short["ours"] / short["plain"],
        "cpu_ratio_50_turns": long["ours"] / long["plain"],
        "growth_6_to_50_turns": long["ours"] / short["ours"],
        "growth_6_to_50_turns_plain": long["plain"] / short["plain"],
        "wall_over_ideal_512": many["wall_s"] / ideal,
        "peak_rss_mb_512": many["peak_rss_mb"],
    }
    return {
        "benchmark": "rollouts",
        "python": platform.python_version(),
        "cpu_ms_per_turn": {"6": short, "50": long},
        "in_flight": {**many, "ideal_s": ideal},
        "ratios": {name: round(value, 3) for name, value in ratios.items()},
        "targets": TARGETS,
        "met": all(ratios[name] <= limit for name, limit in TARGETS.items()),
    }


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=3)
    result = measure(parser.parse_args().rounds)
    print(json.dumps(result, indent=2))
    return 0 if result["met"] else 1


if __name__ == "__main__":
    sys.exit(main())
