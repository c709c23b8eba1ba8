"""Runs on a Ray cluster from a test: config, tasks that wait for a gate, and the recorded results."""

from __future__ import annotations

import asyncio
import io
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ray_cluster import PERMANENT

from hermes_core.contracts.events import RolloutFinished, RolloutStarted
from hermes_core.discovery import PluginSettings, Registry, load_plugins
from hermes_runner import Run, RunConfig, RunResult

ROOT = Path(__file__).resolve().parents[4]
EXAMPLES = ROOT / "examples" / "terminal_tasks.jsonl"
# For the token id servers of hermes-tokens.
sys.path.append(str(ROOT / "plugins" / "hermes-tokens" / "tests" / "support"))

PLUGINS = (
    "hermes-sandbox",
    "hermes-tools",
    "hermes-models",
    "hermes-tokens",
    "hermes-runner",
    "hermes-verifiers",
    "hermes-parsers",
    "hermes-backend-ray",
)
PATIENCE = 200.0
"""Timeout in seconds of anything on a busy machine."""
EVENTS = ("hermes_rollout_started", "hermes_tool_called", "hermes_rollout_scored", "hermes_rollout_finished")


_CONNECT = """
import asyncio, json, sys
from hermes_backend_ray.rollout_workers.engine_cluster import EngineCluster

async def main():
    try:
        await EngineCluster().connect(sys.argv[1])
    except Exception as error:
        print(json.dumps([type(error).__name__, error.message, error.hint]))

asyncio.run(main())
"""


def refusal_of(address: str, **environment: str) -> list[str]:
    """Connect as a run does, in a separate process because Ray connects each only once; return what is raised."""
    command = [sys.executable, "-c", _CONNECT, address]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=300, env={**os.environ, **environment})
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return found


class Seen:
    """The events of a run, in order, and a way to wait for some of them."""

    def __init__(self, registry: Registry) -> None:
        self.events: list[tuple[str, Any]] = []
        self._changed = asyncio.Event()
        registry.forward_events(self._take, listened=EVENTS)

    def _take(self, hook: str, event: object) -> None:
        self.events.append((hook.removeprefix("hermes_"), event))
        self._changed.set()

    def started(self) -> list[str]:
        return [event.rollout_id for _, event in self.events if isinstance(event, RolloutStarted)]

    def finished(self) -> list[tuple[str, str]]:
        ends = [event for _, event in self.events if isinstance(event, RolloutFinished)]
        return [(end.rollout_id, str(end.outcome["stop_reason"])) for end in ends]

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not holds():
                self._changed.clear()
                await self._changed.wait()


def registry(*extra: str, allow: tuple[str, ...] = PLUGINS) -> Registry:
    return load_plugins(PluginSettings(allow=allow, extra=extra), environ={})


class Runs:
    """The runs of one test, recorded in its folder."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder = folder
        self.address = address
        self.gate = folder / "gate"

    def gated(self, count: int) -> Path:
        """Write tasks whose solution waits until the gate is open."""
        path = self.folder / "gated.jsonl"
        checks = [{"path": "done.txt", "equals": "done\n"}]
        wait = f"while [ ! -e {self.gate} ]; do sleep 0.05; done; echo done > done.txt"
        items = [
            {
                "id": f"t{number}",
                "prompt": "Wait.",
                "solution": [wait],
                "verifier": {"name": "file_content", "options": {"checks": checks}},
            }
            for number in range(count)
        ]
        path.write_text("".join(json.dumps(item) + "\n" for item in items))
        return path

    def config(self, tasks: Path, *, out: str = "out", engine: str = "ray", **values: Any) -> RunConfig:
        options = {"address": self.address, "num_cpus": 0, "workers": 3, "resources": PERMANENT}
        options.update(values.pop("options", {}))
        given = {
            "tasks": str(tasks),
            "out": str(self.folder / out),
            "engine": engine,
            "engine_options": options if engine == "ray" else {},
            "mistake_rate": 0.0,
            **values,
        }
        return RunConfig.parse(given, source="the test")

    async def run(
        self, tasks: Path, *, known: Registry | None = None, api_key: str | None = None, **values: Any
    ) -> RunResult:
        made = Run(self.config(tasks, **values), known or registry(), api_key=api_key, stream=io.StringIO())
        return await made.execute()

    def lines(self, out: str = "out", name: str = "rollouts.jsonl") -> list[dict[str, Any]]:
        """Return what a run has recorded; nothing, if it has removed its folder for that."""
        path = self.folder / out / name
        return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []

    def each_once(self, count: int, out: str = "out") -> None:
        """Check that every rollout has exactly one outcome."""
        found = Counter(line["rollout_id"] for line in self.lines(out))
        assert len(found) == count
        assert set(found.values()) == {1}
