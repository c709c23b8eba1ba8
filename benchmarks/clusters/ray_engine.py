"""Measure how rollouts per second grow with the nodes of a Ray cluster, with a model of fixed latency.

The nodes are processes of this machine, the cluster is that of the tests, and each node's worker runs a fixed number
of rollouts at a time: this measures whether spreading them costs anything. Called by `cluster.py`; alone it prints
the results.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import io
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.rollouts.mock_server import MODEL_NAME, running
from hermes_core.discovery import PluginSettings, load_plugins
from hermes_runner import Run, RunConfig

_HERE: Final = Path(__file__).resolve().parent
_SUPPORT: Final = _HERE.parents[1] / "plugins" / "hermes-backend-ray" / "tests" / "support"
_NODES: Final = (1, 2, 4)
_TURNS: Final = 5
_LATENCY_MS: Final = 400.0
_PLACES: Final = 8
"""Concurrent rollouts of a worker."""
_ROUNDS: Final = 4
"""Rollouts for each place."""
_PLUGINS: Final = (
    "hermes-sandbox",
    "hermes-tools",
    "hermes-models",
    "hermes-tokens",
    "hermes-runner",
    "hermes-backend-ray",
)
_RESOURCE: Final = "benchmark"


@contextlib.contextmanager
def _cluster(folder: Path) -> Iterator[Any]:
    sys.path.insert(0, str(_SUPPORT))
    # Imported by name: it belongs to the tests, which are not type-checked.
    cluster = importlib.import_module("ray_cluster").RayCluster.shared(folder)
    try:
        yield cluster
    finally:
        cluster.close()


async def _rate(folder: Path, url: str, *, engine: str, options: dict[str, Any], nodes: int) -> float:
    """Return rollouts per second from the first one's start to the last one's end."""
    registry = load_plugins(
        PluginSettings(allow=_PLUGINS, extra=(str(_HERE.parent / "rollouts" / "noop_plugin.py"),)), environ={}
    )
    times: list[float] = []
    hooks = ("hermes_rollout_started", "hermes_rollout_finished")
    registry.forward_events(lambda _hook, _event: times.append(time.perf_counter()), listened=hooks)
    config = {
        "tasks": str(folder / "tasks.jsonl"),
        "out": str(folder / f"{engine}-{nodes}"),
        "model": url,
        "model_name": MODEL_NAME,
        "engine": engine,
        "engine_options": options,
        "max_tasks": nodes * _PLACES * _ROUNDS,
        "max_concurrent": nodes * _PLACES,
        "enabled_toolsets": ["noop"],
        "plugins": {"allow": list(_PLUGINS)},
    }
    result = await Run(RunConfig.parse(config, source="the benchmark"), registry, stream=io.StringIO()).execute()
    done = result.summary["rollouts"]["stop_reason"].get("final_answer", 0)
    if done != nodes * _PLACES * _ROUNDS:
        raise RuntimeError(f"expected {nodes * _PLACES * _ROUNDS} successful rollouts, got {done}: {result.summary}")
    return float(done) / (times[-1] - times[0])


async def measure() -> dict[str, Any]:
    """Return rollouts per second by nodes, on one machine without Ray (`local`), and the growth per added node.

    `growth` is the rate of the most nodes over that of one, divided by how many times as many nodes they are.
    """
    with tempfile.TemporaryDirectory() as state, running(turns=_TURNS, latency_ms=_LATENCY_MS) as url:
        folder = Path(state)

        items = ({"id": f"t{number}", "prompt": "Go on."} for number in range(max(_NODES) * _PLACES * _ROUNDS))
        (folder / "tasks.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
        local = await _rate(folder, url, engine="local", options={}, nodes=1)
        rates = {}
        with _cluster(folder) as cluster:
            options = {
                "address": cluster.address,
                "num_cpus": 0,
                "resources": {_RESOURCE: 1},
                "max_concurrent": _PLACES,
            }
            for nodes in _NODES:
                while len(cluster.nodes()) < 3 + nodes:
                    cluster.add_node(num_cpus=1, resources={_RESOURCE: 1})
                rates[nodes] = await _rate(folder, url, engine="ray", options=options, nodes=nodes)
    most = max(_NODES)
    return {
        "turns": _TURNS,
        "latency_ms": _LATENCY_MS,
        "places_per_node": _PLACES,
        "local_rollouts_per_s": round(local, 2),
        "ray_rollouts_per_s": {str(nodes): round(rate, 2) for nodes, rate in rates.items()},
        "growth": round(rates[most] / rates[1] / most, 3),
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure()), indent=2))
