"""Measure a rollout of six model calls and five commands, from its sandbox's opening to its end, beside a plain loop.

The plain loop runs each command by a `bash -c` of its own: no isolation, no session, no limits. Both talk to the same
instant mock server, each in a separate process, in turn; the best of several rounds counts. Processor time is
that of all processes. `python -m benchmarks.rollouts.terminal_cost` prints JSON and exits 1 when the target is missed.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from benchmarks.rollouts.mock_server import running

ROLLOUTS, TURNS, CONCURRENCY = 200, 6, 64
ARGUMENTS = json.dumps({"command": "echo hi"})
TARGETS = {"none": 3.0}
SIDES: Mapping[str, tuple[str, ...]] = {
    "plain": ("plain_loop", "--shell", "--url"),
    "none": ("our_loop", "--level", "none"),
    "bwrap": ("our_loop", "--level", "bwrap"),
    "none, judged by a command": ("our_loop", "--level", "none", "--judge", "command"),
    "none, judged by hidden tests": ("our_loop", "--level", "none", "--judge", "tests"),
}
"""The module of each side, and its arguments before the server's address."""


def cpu_per_turn(side: str, url: str, rollouts: int) -> float | None:
    """Return milliseconds of processor time per turn, measured in a fresh process; None if it cannot run here."""
    module, *flags = SIDES[side]
    command = [sys.executable, "-m", f"benchmarks.rollouts.{module}", *flags, url]
    numbers = {"rollouts": rollouts, "turns": TURNS, "concurrency": CONCURRENCY}
    command += [word for name, value in numbers.items() for word in (f"--{name}", str(value))]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    result = json.loads(done.stdout) if done.returncode == 0 else {"failed": rollouts}
    if result.get("failed"):
        if side == "bwrap":
            return None
        raise RuntimeError(f"{side}: {result['failed']} rollouts did not end with the final answer")
    return float(result["cpu_per_turn_ms"])


def measure(rounds: int, rollouts: int) -> dict[str, Any]:
    """Measure every side, one after the other in each round."""
    best: dict[str, float] = {}
    with running(turns=TURNS, tool="terminal", arguments=ARGUMENTS) as url:
        for _ in range(rounds):
            for side in SIDES:
                found = cpu_per_turn(side, url, rollouts)
                if found is not None:
                    best[side] = min(found, best.get(side, found))
    ratios = {side: best[side] / best["plain"] for side in best if side != "plain"}
    judged = {side.partition(" by ")[2]: best[side] - best["none"] for side in best if " by " in side}
    return {
        "benchmark": "terminal_rollouts",
        "python": platform.python_version(),
        "cpu_ms_per_turn": {side: round(value, 3) for side, value in best.items()},
        "cpu_ms_per_judgement": {judge: round(value * TURNS, 1) for judge, value in judged.items()},
        "ratios": {side: round(value, 2) for side, value in ratios.items()},
        "targets": TARGETS,
        "met": all(ratios[side] <= limit for side, limit in TARGETS.items()),
    }


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rollouts", type=int, default=ROLLOUTS)
    options = parser.parse_args()
    result = measure(options.rounds, options.rollouts)
    print(json.dumps(result, indent=2))
    return 0 if result["met"] else 1


if __name__ == "__main__":
    sys.exit(main())
