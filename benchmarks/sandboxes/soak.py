"""Soak test: 1,000 rollouts while sandboxes, agents, containers and the caller are killed.

`python -m benchmarks.sandboxes.soak` does the run of `hermes-core run` with the embedded model `oracle` on sandboxes
of one kind and kills something every fraction of a second, chosen by a seeded draw; a killed caller is started again
with the same command, which continues its run. It prints JSON and exits 1 unless every rollout has exactly one outcome,
each outcome is a full reward or names an infrastructure failure, and nothing is left after `hermes-core sandboxes gc`.
`--write` keeps the result in soak.json and the table of docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import platform
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.sandboxes.small_image import build_if_absent
from benchmarks.sandboxes.soak_kinds import KINDS, SoakKind, kill, marked

HERE = Path(__file__).parent
RESULTS = HERE / "soak.json"
TASKS = 20
TURNS = 4
_CAUSES = {"tool_backend_error", "framework_error"}
"""Allowed stop reasons after a kill; any other outcome with less than a full reward is wrong."""


def write_tasks(path: Path) -> None:
    """Write tasks whose right solution takes some turns, leaves processes behind and is judged in the sandbox."""
    lines = []
    for number in range(TASKS):
        steps = [
            f"echo {number} > n; export N={number}; sleep 300 & disown",
            "for i in 1 2 3; do echo $i; sleep 0.05; done | tee -a log",
            "(trap '' TERM; sleep 300) >/dev/null 2>&1 & head -c 300000 /dev/urandom > blob; sleep 0.1",
            'echo "$((N * 2))" > out; sha256sum blob > sum; wc -c < blob',
        ]
        task = {
            "id": f"soak-{number:02}",
            "prompt": f"Write twice {number} into out.",
            "solution": steps[:TURNS],
            "verifier": {
                "name": "exit_code",
                "options": {"command": f'test "$(cat out)" = {number * 2} && sha256sum --quiet -c sum'},
            },
        }
        lines.append(json.dumps(task))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


@dataclass
class Soak:
    """One run, continued until it is finished."""

    kind: SoakKind
    rollouts: int
    folder: Path
    kills: collections.Counter[str] = field(default_factory=collections.Counter)
    starts: int = 0

    def command(self) -> list[str]:
        """Return the command that begins the run, or continues it."""
        config = {
            "max_concurrent": self.kind.concurrent,
            "max_attempts": 5,
            "group_size": self.rollouts // TASKS,
            "out": str(self.folder / "run"),
            "model": "oracle",
            "mistake_rate": 0,
        }
        flags = [word for name, value in config.items() for word in (f"--{name.replace('_', '-')}", str(value))]
        options = json.dumps(self.kind.options(self.folder))
        tasks = str(self.folder / "tasks.jsonl")
        return [
            sys.executable, "-m", "hermes_core.cli", "run", tasks, *flags, "--terminal-backend", self.kind.backend,
            "--backend-options", options, "--isolation", self.kind.isolation,
        ]  # fmt: skip

    def environment(self) -> dict[str, str]:
        """Return the environment of every command, with a separate folder for leases."""
        return {**os.environ, "XDG_STATE_HOME": str(self.folder / "state")}

    def run_to_end(self, *, seed: int, pause: float, callers: int) -> float:
        """Run to the end while killing; returns seconds. `callers` limits how often the caller itself is killed."""
        write_tasks(self.folder / "tasks.jsonl")
        draw = random.Random(seed)
        began = time.monotonic()
        left = callers
        while True:
            recorded = self._recorded()
            with self._started() as run:
                while run.poll() is None:
                    time.sleep(draw.uniform(0, 2 * pause))
                    # Not the sandbox of the run's initial check: the run correctly stops if that fails.
                    if self._recorded() > recorded:
                        left -= self._strike(draw, run, may_end_caller=left > 0)
            if run.returncode >= 0:
                break
        if run.returncode not in {0, 1}:
            raise RuntimeError(f"the run ended with {run.returncode}: {(self.folder / 'log').read_text()[-2000:]}")
        return time.monotonic() - began

    def _recorded(self) -> int:
        path = self.folder / "run" / "rollouts.jsonl"
        return path.stat().st_size if path.exists() else 0

    @contextlib.contextmanager
    def _started(self) -> Iterator[subprocess.Popen[bytes]]:
        self.starts += 1
        with (self.folder / "log").open("ab") as log:
            run = subprocess.Popen(self.command(), stdout=log, stderr=log, env=self.environment())
            try:
                yield run
            finally:
                run.kill()
                run.wait()

    def _strike(self, draw: random.Random, run: subprocess.Popen[bytes], *, may_end_caller: bool) -> bool:
        kinds = list(self.kind.targets)
        kind = draw.choices([*kinds, "caller"], [*[10] * len(kinds), 1 if may_end_caller else 0])[0]
        if kind == "caller":
            run.send_signal(signal.SIGKILL)
            self.kills[kind] += 1
            return True
        victims = self.kind.targets[kind](self.folder)
        if victims and kill(draw.choice(victims)):
            self.kills[kind] += 1
        return False

    def judge(self) -> dict[str, Any]:
        """Return the records and their errors."""
        lines = (self.folder / "run" / "rollouts.jsonl").read_text(encoding="utf-8").splitlines()
        outcomes = [json.loads(line) for line in lines]
        seen = collections.Counter((outcome["task_id"], outcome["index"]) for outcome in outcomes)
        wrong = [
            f"{o['task_id']} {o['index']}: {o['stop_reason']} {o['reward_status']} {o['reward']}"
            for o in outcomes
            if o["reward"] != 1.0 and (o["reward"] is not None or not _lost(o))
        ]
        return {
            "recorded": len(outcomes),
            "recorded_once": sum(1 for count in seen.values() if count == 1),
            "full_reward": sum(1 for o in outcomes if o["reward"] == 1.0),
            "infrastructure_failures": sum(1 for o in outcomes if o["reward"] is None),
            "retries": sum(o["attempt"] - 1 for o in outcomes),
            "wrong_outcomes": wrong[:20],
        }

    def collect(self) -> dict[str, Any]:
        """Remove leftovers of killed callers and count the rest."""
        before = self.kind.left(self.folder)
        subprocess.run(
            [sys.executable, "-m", "hermes_core.cli", "sandboxes", "gc"],
            check=True, env=self.environment(), stdout=subprocess.DEVNULL,
        )  # fmt: skip
        leases = len(list((self.folder / "state").rglob("*.json")))
        return {"left_before_gc": before, "left_after_gc": {**self.kind.left(self.folder), "leases": leases}}


def _lost(outcome: dict[str, Any]) -> bool:
    failure = outcome["failure"] or outcome["reward_failure"] or {}
    return outcome["stop_reason"] in _CAUSES or failure.get("blame") == "backend"


def soak(kind: SoakKind, options: argparse.Namespace) -> dict[str, Any]:
    """Run one run on one kind of sandbox and return its figures."""
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        one = Soak(kind, options.rollouts, Path(folder))
        seconds = one.run_to_end(seed=options.seed, pause=options.pause * kind.pace, callers=options.callers)
        found = {
            "rollouts": options.rollouts,
            "seconds": round(seconds, 1),
            "kills": dict(sorted(one.kills.items())),
            "starts": one.starts,
            **one.judge(),
            **one.collect(),
        }
        deadline = time.monotonic() + 5
        while marked(Path(folder)) and time.monotonic() < deadline:
            time.sleep(0.1)
    found["holds"] = holds(found)
    return found


def holds(found: dict[str, Any]) -> bool:
    """Tell whether every outcome was recorded once and correctly, and nothing was left."""
    complete = found["recorded"] == found["recorded_once"] == found["rollouts"]
    return complete and not found["wrong_outcomes"] and not any(found["left_after_gc"].values())


def main() -> int:
    """Test the requested kinds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", default=[*KINDS], help=f"some of {', '.join(KINDS)}")
    parser.add_argument("--rollouts", type=int, default=1000)
    parser.add_argument("--pause", type=float, default=0.4, help="seconds between two kills, on average")
    parser.add_argument("--callers", type=int, default=8, help="how often the caller may be killed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="keep the result in soak.json and docs/benchmarks.md")
    options = parser.parse_args()
    build_if_absent()
    found: dict[str, Any] = {"python": platform.python_version(), "cores": os.cpu_count(), "kinds": {}}
    for name in options.kinds:
        print(f"{name} …", file=sys.stderr, flush=True)
        found["kinds"][name] = soak(KINDS[name], options)
    print(json.dumps(found, indent=2))
    if options.write:
        # Other kinds keep their last result.
        earlier = json.loads(RESULTS.read_text(encoding="utf-8"))["kinds"] if RESULTS.exists() else {}
        found["kinds"] = {name: row for name in KINDS if (row := {**earlier, **found["kinds"]}.get(name))}
        RESULTS.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
        subprocess.run([sys.executable, "-m", "benchmarks.sandboxes.page_tables"], check=True)
    return 0 if all(row["holds"] for row in found["kinds"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
