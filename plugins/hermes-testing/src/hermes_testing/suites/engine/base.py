"""Code shared by the parts of the engine suite: a model with held replies, and runs in a folder of the test."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import platform
import signal
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
import pytest_asyncio

from hermes_core.contracts.engine import EngineRun, RolloutEngine
from hermes_core.discovery import load_tasks
from hermes_core.rollout import RolloutSpec
from hermes_runner import Run, RunConfig, RunResult, plan_groups, plan_rollouts
from hermes_testing.engine_plugin import ANSWER, MODULE, TOOLSET
from hermes_testing.model_server import MODEL, ModelServer, Step, serving_model
from hermes_testing.registries import isolated_registry
from hermes_testing.suites.base import ComponentSuite
from hermes_testing.watching import eventually

if TYPE_CHECKING:
    from hermes_core.discovery import Registry

_ENDING = 60.0

EVENTS = ("hermes_rollout_started", "hermes_tool_called", "hermes_rollout_scored", "hermes_rollout_finished")


def script(name: str, *steps: Step, **fields: Any) -> dict[str, Any]:
    """Write a task whose prompt says what the model does; it has a sandbox, which takes time, only if it uses one."""
    prompt = json.dumps({"task": name, "steps": steps})
    uses_sandbox = any(step.get("tool") == "terminal" for step in steps) or fields.keys() & {"setup", "files"}
    toolsets = ["terminal", TOOLSET] if uses_sandbox else [TOOLSET]
    return {"id": name, "prompt": prompt, "enabled_toolsets": toolsets, "verifier": {"name": ANSWER}, **fields}


class Bench:
    """The runs of one test: tasks and output are in the test's folder, the model belongs to the test."""

    def __init__(self, suite: EngineBase, registry: Registry, server: ModelServer, folder: Path) -> None:
        self.server = server
        self.registry = registry
        self.folder = folder
        self._suite = suite
        self._events: list[tuple[str, Any]] = []

    def tasks(self, items: Iterable[Mapping[str, Any]]) -> Path:
        """Write a task file."""
        path = self.folder / "tasks.jsonl"
        path.write_text("".join(json.dumps(item) + "\n" for item in items), encoding="utf-8")
        return path

    def config(self, *, engine: str | None = None, out: str = "out", **values: Any) -> RunConfig:
        """Return the config of a run of `tasks`; the default for `engine` is the suite's."""
        suite = self._suite
        given = {
            "tasks": str(self.folder / "tasks.jsonl"),
            "out": str(self.folder / out),
            "model": self.server.url,
            "model_name": MODEL,
            "model_retries": 0,
            "max_concurrent": suite.at_once,
            "engine": engine or suite.component,
            "engine_options": {} if engine else dict(suite.options),
            **suite.run_fields,
            **values,
        }
        return RunConfig.parse(given, source="the suite")

    async def run(
        self, *items: Mapping[str, Any], registry: Registry | None = None, api_key: str | None = None, **values: Any
    ) -> RunResult:
        """Run to the end; without `tasks`, use those in the folder."""
        if items:
            self.tasks(items)
        made = Run(self.config(**values), registry or self.registry, api_key=api_key, stream=io.StringIO())
        return await made.execute()

    def lines(self, out: str = "out", name: str = "rollouts.jsonl") -> list[dict[str, Any]]:
        """Return the records."""
        path = self.folder / out / name
        text = path.read_bytes() if path.is_file() else b""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith(b"\n")]

    def recorded_tasks(self, out: str = "out") -> list[str]:
        """Return the tasks of the recorded rollouts, in order."""
        return [line["task_id"] for line in self.lines(out)]

    def watch(self) -> list[tuple[str, Any]]:
        """Start collecting the run's events as a plugin of the run would get them."""
        self.registry.forward_events(lambda hook, event: self._events.append((hook, event)), listened=EVENTS)
        return self._events

    async def await_held(self, count: int) -> None:
        """Wait until this many replies of the model are held."""
        await self.server.until(lambda: self.server.held.total() >= count, seconds=self._suite.patience)

    async def eventually(self, holds: Callable[[], bool]) -> bool:
        """Wait for a condition that no event reports."""
        return await eventually(holds, seconds=self._suite.patience)

    def engine_run(
        self, *, on_turn: Callable[[str], None] = lambda _: None, api_key: str | None = None, **values: Any
    ) -> EngineRun:
        """Return the arguments with which a run opens an engine."""
        config = self.config(**values)
        return EngineRun(
            run_id="run_of_the_suite",
            config=config.model_dump(mode="json"),
            registry=self.registry,
            api_key=api_key,
            max_concurrent=config.max_concurrent,
            on_turn=on_turn,
        )

    def specs(self, **values: Any) -> list[RolloutSpec]:
        """Return the rollouts that a run plans for the tasks in the folder."""
        config = self.config(**values)
        loaded = load_tasks(Path(config.tasks), self.registry)
        plan = plan_groups(loaded.tasks, config, self.registry)
        return list(plan_rollouts(plan.groups, config, "run_of_the_suite", {}))

    @contextlib.asynccontextmanager
    async def open_engine(self, run: EngineRun | None = None) -> AsyncIterator[RolloutEngine]:
        """Open an engine without a run."""
        engine: RolloutEngine = self._suite.make(self.registry)
        try:
            await engine.open(run or self.engine_run())
            yield engine
        finally:
            await engine.aclose()


class EngineBase(ComponentSuite):
    """Fixtures: `bench`, which runs runs.

    `at_once` is the number of concurrent rollouts with the suite's `options`; `loss_options` are added for tests that
    lose a worker, which need two; `run_fields` are further keys of every run's config (such as a backend); `model_host`
    is an address of this machine that workers can reach; `patience` is the maximum number of seconds for one step.
    """

    kind = "engine"
    at_once: ClassVar[int] = 4
    model_host: ClassVar[str] = "127.0.0.1"
    patience: ClassVar[float] = 60.0
    run_fields: ClassVar[Mapping[str, Any]] = {}
    loss_options: ClassVar[Mapping[str, Any]] = {}

    @pytest.fixture
    def registry(self) -> Registry:
        """A registry of the core, this plugin and the suite's components."""
        return isolated_registry(self.plugin, MODULE)

    @pytest_asyncio.fixture
    async def bench(self, registry: Registry, tmp_path: Path) -> AsyncIterator[Bench]:
        """A model server and a folder for the test."""
        async with serving_model(self.model_host) as server:
            yield Bench(self, registry, server, tmp_path)

    async def lose(self, place: Mapping[str, Any]) -> None:
        """Kill a worker without notice; `place` is `pid` and `host` of the process that runs the rollout.

        Override it for workers that are not processes of this machine.
        """
        if place["host"] != platform.node() or place["pid"] == os.getpid():
            raise NotImplementedError(f"{type(self).__qualname__} must implement lose(place), or lack 'workers'")
        os.kill(place["pid"], signal.SIGKILL)


@contextlib.asynccontextmanager
async def in_the_background(work: Any) -> AsyncIterator[asyncio.Task[Any]]:
    """Start a task that ends with the test, however the test ends."""
    task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        task.cancel()
        # Bounded: an engine that does not end a rollout must fail its test and not hang other tests.
        await asyncio.wait({task}, timeout=_ENDING)
        if task.done() and not task.cancelled():
            task.exception()
