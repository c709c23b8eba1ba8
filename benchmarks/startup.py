"""Measure start-up time, as ratios to a bare interpreter of the same environment; prints JSON.

Usage: python -m benchmarks.startup [--runs N] [--plugins N]

The runs are interleaved and the minimum of each counts, so that other load affects all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

MODULE = '''"""A light plugin module."""

from hermes_core.hookspecs import hookimpl
from hermes_core.specs import VerifierSpec


@hookimpl
def hermes_verifiers():
    return [VerifierSpec(name="bench_{number}", summary="Never used.", target="bench_plugin_{number}:Nothing")]
'''


def install_plugins(folder: Path, count: int) -> None:
    """Write distributions as an installer would: metadata, entry points, a record, and a module."""
    for number in range(count):
        info = folder / f"bench_plugin_{number}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: bench-plugin-{number}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[hermes_core.plugins]\nbench{number} = bench_plugin_{number}\n")
        (info / "RECORD").write_text(f"bench_plugin_{number}.py,,\n")
        (folder / f"bench_plugin_{number}.py").write_text(MODULE.format(number=number))


def commands() -> dict[str, list[str]]:
    script = Path(sysconfig.get_path("scripts")) / "hermes-core"
    return {
        "bare": [sys.executable, "-c", "pass"],
        "import hermes_core": [sys.executable, "-c", "import hermes_core"],
        "hermes-core --version": [sys.executable, str(script), "--version"],
        "hermes-core plugins list": [sys.executable, str(script), "plugins", "list"],
        "hermes-core plugins list --load": [sys.executable, str(script), "plugins", "list", "--load"],
    }


def measure(runs: int, folder: Path) -> tuple[dict[str, float], dict[str, float]]:
    """Return the minimum wall time and processor time of every command, in seconds."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    for name in ("HERMES_PLUGINS", "HERMES_PLUGINS_DISABLE", "HERMES_PLUGINS_STRICT"):
        environment.pop(name, None)
    wall: dict[str, float] = {}
    processor: dict[str, float] = {}
    # The first round writes the byte code and does not count.
    for round_ in range(runs + 1):
        for name, command in commands().items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            start = time.perf_counter()
            subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
            seconds = time.perf_counter() - start
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            if round_:
                wall[name] = min(seconds, wall.get(name, seconds))
                processor[name] = min(busy, processor.get(name, busy))
    return wall, processor


def listed(folder: Path) -> int:
    """Count the generated plugins in the listing, to check that the command did real work."""
    command = [*commands()["hermes-core plugins list"], "--json"]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    answer = subprocess.run(command, check=True, env=environment, capture_output=True).stdout
    return sum(plugin["distribution"].startswith("bench-plugin") for plugin in json.loads(answer)["plugins"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--plugins", type=int, default=30)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        install_plugins(Path(folder), arguments.plugins)
        seen = listed(Path(folder))
        best, processor = measure(arguments.runs, Path(folder))
    targets = {"import hermes_core": 1.5, "hermes-core plugins list": 10.0}
    result = {
        "benchmark": "startup",
        "python": platform.python_version(),
        "plugins_installed": seen,
        "runs": arguments.runs,
        "milliseconds": {name: round(seconds * 1000, 2) for name, seconds in best.items()},
        "ratio_to_bare": {name: round(seconds / best["bare"], 2) for name, seconds in best.items()},
        "processor_ratio_to_bare": {name: round(busy / processor["bare"], 2) for name, busy in processor.items()},
        "load_average": round(os.getloadavg()[0], 1),
        "targets": targets,
    }
    result["met"] = seen == arguments.plugins and all(best[n] / best["bare"] <= limit for n, limit in targets.items())
    print(json.dumps(result, indent=2))
    return 0 if result["met"] else 1


if __name__ == "__main__":
    sys.exit(main())
