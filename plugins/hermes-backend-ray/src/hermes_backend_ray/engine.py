"""The engine `ray`: workers on the nodes of a Ray cluster run rollouts."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from ray.exceptions import RayActorError, RayError

from hermes_backend_ray.cluster.nodes import Node
from hermes_backend_ray.rollout_workers.code_versions import loaded_code
from hermes_backend_ray.rollout_workers.engine_cluster import EngineCluster
from hermes_backend_ray.rollout_workers.engine_options import EngineOptions
from hermes_backend_ray.rollout_workers.messages import Answer, orders, pack, rebuilt
from hermes_backend_ray.rollout_workers.task_files import files_of
from hermes_backend_ray.rollout_workers.worker_link import WorkerLink
from hermes_backend_ray.rollout_workers.worker_pool import Crew, WorkerGoneError, worker_not_started
from hermes_core.contracts.engine import EngineRun
from hermes_core.contracts.errors import ConfigError
from hermes_core.contracts.task import Task
from hermes_core.discovery import PluginState
from hermes_runner import is_embedded

if TYPE_CHECKING:
    from hermes_core.contracts.errors import HermesError
    from hermes_core.contracts.rollout import RolloutOutcome
    from hermes_core.discovery import Registry
    from hermes_core.rollout import RolloutSpec

_NOTES: Final = 50
"""How many notes the summary contains at most."""


@final
class RayEngine:
    """Workers on a cluster, each with its own model client, backend and registry from the run's config.

    Everything sent to a worker and back stays in memory. The model server's key is an argument of an actor call, which
    Ray writes neither to its object store nor to a disk.
    """

    Options = EngineOptions

    def __init__(self, options: EngineOptions) -> None:
        self._options = options
        self._cluster = EngineCluster()
        self._crew = Crew(self._cluster, options, self._start)
        self._run: EngineRun | None = None
        self._tasks: Any = None
        self._slots = 1
        self._code: dict[str, str] = {}
        self._examined: dict[str, tuple[Task, Mapping[str, str]]] = {}

    @property
    def capacity(self) -> int:
        """How many rollouts all live workers can run at once."""
        return sum(link.slots for link in self._crew.live)

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Every worker with its node and how many rollouts it ran, the losses, and the unconfirmed cancellations."""
        links = self._crew.links
        notes = [*self._crew.notes, *(note for link in links for note in link.notes)]
        return {
            "address": self._options.address,
            "workers": [
                {**link.place, "slots": link.slots, "rollouts": link.rollouts, "lost": link.loss} for link in links
            ],
            "lost_workers": sum(link.loss is not None for link in links),
            "unconfirmed": sum(link.unconfirmed for link in links),
            "notes": notes[:_NOTES],
            "more_notes": max(0, len(notes) - _NOTES),
        }

    async def open(self, run: EngineRun) -> None:
        """Connect, start the workers, and check that each has this process's code and reaches model and backend."""
        import ray

        self._run = run
        await self._cluster.connect(self._options.address)
        self._code = await asyncio.to_thread(loaded_code, run.registry.plugins)
        wants_tasks = is_embedded(run.config["model"], run.registry)
        tasks = tuple(_without_files(task) for task in run.tasks) if wants_tasks else _outlines(run.tasks)
        self._tasks = await asyncio.to_thread(ray.put, pack(tasks))
        wanted = self._options.workers or self._options.per_node * await self._suitable()
        self._slots = self._options.max_concurrent or math.ceil(run.max_concurrent / max(1, wanted))
        await self._crew.muster()
        self._crew.tend()

    async def refusals(self, tasks: Sequence[Task]) -> Mapping[str, HermesError]:
        """Ask every worker, because any may get a rollout, about its backend and the files that tasks name."""
        run = self._require_run()
        files = await files_of(tasks, run.registry)
        asked = {task.id: (_without_files(task), files.get(task.id, {})) for task in tasks}
        asked = {id_: (task, named) for id_, (task, named) in asked.items() if task.sandbox or named}
        answers = await asyncio.gather(*(self._find_refusals(link, asked) for link in self._crew.live))
        refused = {id_: error for answer in answers for id_, error in answer.items()}
        self._examined = {id_: pair for id_, pair in asked.items() if id_ not in refused}
        return refused

    async def run_rollout(self, rollout: RolloutSpec) -> RolloutOutcome:
        """Run a rollout on the worker with the most free slots; wait if none has any."""
        link = await self._crew.seat()
        try:
            return await link.run_rollout(rollout)
        finally:
            await self._crew.leave(link)

    async def aclose(self) -> None:
        """End the workers, which close their sandboxes, and disconnect; raise an error about what stayed open."""
        try:
            await self._crew.close()
        finally:
            self._tasks = None
            await self._cluster.close()

    async def _suitable(self) -> int:
        return sum(not node.lacks(self._options.needs) for node in await self._cluster.nodes())

    async def _start(self, name: str, node: Node | None) -> WorkerLink:
        """Start one worker: the process, its plugins and their code, then the model and the backend."""
        run = self._require_run()
        actor = self._cluster.actor(node, self._options.actor_options())
        link = WorkerLink(actor, {"name": "ray", "worker": name}, slots=self._slots, run=run, options=self._options)
        try:
            place = _require(
                await self._await_answer(actor.hello.remote(_plugins(run.registry), self._folder())), f"worker {name}"
            )
            link.place |= {"node": place["node"], "pid": place["pid"]}
            _require_equal(self._code, place["code"], _place_name(link.place))
            opened = actor.open.remote(orders(run, _config(run.config)), self._tasks, run.api_key)
            room = _require(await self._await_answer(opened), _place_name(link.place))
            link.slots = link.slots if room is None else max(1, min(link.slots, room))
            # This worker may replace another, so it must be able to run the same tasks.
            _raise_first(await self._find_refusals(link, self._examined))
        except BaseException:
            link.kill()
            raise
        return link

    async def _find_refusals(
        self, link: WorkerLink, asked: Mapping[str, tuple[Task, Mapping[str, str]]]
    ) -> dict[str, HermesError]:
        if not asked:
            return {}
        where = _place_name(link.place)
        found = _require(await self._await_answer(link.actor.examine.remote(pack(asked))), where)
        return {id_: rebuilt(error, where) for id_, error in found.items()}

    def _require_run(self) -> EngineRun:
        if self._run is None:
            raise RuntimeError("the engine was not opened")
        return self._run

    def _folder(self) -> str | None:
        """Return the base directory of relative paths, or None if Ray's runtime environment sets its own."""
        return None if "working_dir" in self._options.runtime_env else str(Path.cwd())

    async def _await_answer(self, answer: Any) -> Answer:
        try:
            async with asyncio.timeout(self._options.start_timeout):
                found: Answer = await answer
                return found
        except TimeoutError as error:
            raise worker_not_started(self._options, "the cluster has no room for it, or its node is slow") from error
        except RayActorError as error:
            text = " ".join(str(error).split())[-600:]
            raise WorkerGoneError(
                f"engine 'ray': a worker died as it started: {text}",
                hint="its node's log says more (ray logs); the package must be installed there: hermes-backend-ray",
            ) from error
        except RayError as error:
            raise worker_not_started(self._options, " ".join(str(error).split())[-600:]) from error


def _require(answer: Answer, where: str) -> Any:
    is_well, value = answer
    if not is_well:
        raise rebuilt(value, where)
    return value


def _raise_first(errors: Mapping[str, HermesError]) -> None:
    for error in errors.values():
        raise error


def _place_name(place: Mapping[str, Any]) -> str:
    return f"worker {place['worker']} on node {place['node'][:12]}"


def _require_equal(ours: Mapping[str, str], theirs: Mapping[str, str], where: str) -> None:
    differing = sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))
    if not differing:
        return
    parts = [f"{name} is {_version(ours, name)} here and {_version(theirs, name)} there" for name in differing]
    raise ConfigError(
        f"engine 'ray': {where} has other code than this process: {'; '.join(parts)}",
        hint="install the same on every node (of an editable install, the same files), or disable it: -p no:NAME",
    )


def _version(versions: Mapping[str, str], name: str) -> str:
    return versions.get(name, "missing")


def _plugins(registry: Registry) -> dict[str, Any]:
    """Return settings that load exactly the plugins loaded here; plugin files are named by absolute paths."""
    settings = registry.settings
    loaded = [record for record in registry.plugins if record.state is PluginState.LOADED]
    extra = [str(Path(item).resolve()) if Path(item).is_file() else item for item in settings.extra]
    return {
        "allow": [record.id for record in loaded if not record.found.is_local],
        "extra": [item for item in extra if item],
        "prefer": dict(settings.prefer),
    }


def _config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the run's config for a worker, which runs rollouts in its own process and another working directory."""
    tokenizer = config.get("tokenizer")
    absolute = None if tokenizer is None else str(Path(tokenizer).resolve())
    return {**config, "engine": "local", "engine_options": {}, "tokenizer": absolute}


def _outlines(tasks: Sequence[Task]) -> tuple[Task, ...]:
    """Return one task without content for each distinct sandbox requirement, for a worker to check."""
    wanted = {repr(task.sandbox): task for task in tasks}.values()
    return tuple(Task(id=task.id, messages=(), sandbox=task.sandbox) for task in wanted)


def _without_files(task: Task) -> Task:
    """Return the task without what an embedded model does not read; each rollout carries its complete task."""
    return dataclasses.replace(task, files=(), setup=())
