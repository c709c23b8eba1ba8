"""The worker: a Ray actor that runs assigned rollouts with its own runtime."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections import deque
from collections.abc import Coroutine, Mapping
from functools import partial
from typing import Any, TypeVar

from hermes_backend_ray.rollout_workers.code_versions import loaded_code
from hermes_backend_ray.rollout_workers.messages import Answer, News, describe_error, pack, pack_outcome, unpack
from hermes_backend_ray.rollout_workers.task_files import Files, difference, files_of
from hermes_core.contracts.engine import EngineRun
from hermes_core.contracts.errors import TaskError
from hermes_core.contracts.rollout import RolloutOutcome
from hermes_core.contracts.task import Task
from hermes_core.discovery import PluginSettings, Registry, load_plugins, scan_entry_points
from hermes_runner import LocalEngine

T = TypeVar("T")


class Outbox:
    """The queue of a worker's messages to the run, in order. Filled from the rollouts' loop, emptied from Ray's."""

    def __init__(self) -> None:
        self._news: deque[News] = deque()
        self._waiter: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    def put(self, *news: Any) -> None:
        """Add one message; can be called from any thread."""
        self._news.append(news)
        waiter = self._waiter
        if waiter is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, so no further request can come
                waiter[0].call_soon_threadsafe(waiter[1].set)

    async def take(self, wait: float) -> list[News]:
        """Return all queued messages; if there are none, wait for one for at most `wait` seconds."""
        event = asyncio.Event()
        self._waiter = (asyncio.get_running_loop(), event)
        if not self._news:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await event.wait()
        return [self._news.popleft() for _ in range(len(self._news))]


class WorkerRollouts:
    """The engine of this process and the rollouts it runs; used on one event loop only."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._engine = LocalEngine()
        self._running: dict[str, asyncio.Task[RolloutOutcome]] = {}

    async def open(
        self, registry: Registry, orders: Mapping[str, Any], tasks: bytes, api_key: str | None
    ) -> int | None:
        """Open the engine and return its capacity; the engine first removes what a dead worker has left here."""
        registry.forward_events(self._forward, listened=orders["hooks"])
        run = EngineRun(
            run_id=orders["run_id"],
            config=orders["config"],
            registry=registry,
            tasks=unpack(tasks),
            api_key=api_key,
            on_turn=lambda rollout_id: self._outbox.put("turn", rollout_id, None),
        )
        await self._engine.open(run)
        return self._engine.capacity

    async def examine(self, registry: Registry, tasks: Mapping[str, tuple[Task, Files]]) -> dict[str, dict[str, Any]]:
        """Return, by task id, why a task cannot run here: the node's backend refuses it, or its files differ."""
        refused = await self._engine.refusals([task for task, _ in tasks.values()])
        found = {id_: describe_error(error) for id_, error in refused.items()}
        theirs = await files_of((task for task, files in tasks.values() if files), registry)
        for id_, (_, files) in tasks.items():
            if id_ not in found and (words := difference(files, theirs.get(id_, {}))) is not None:
                hint = "put the file at the same path on that node, or name it by an absolute path"
                found[id_] = describe_error(TaskError(words, hint=hint))
        return found

    async def begin(self, key: str, rollout: bytes) -> None:
        """Start a rollout; a message reports its end."""
        try:
            spec = unpack(rollout)
        except Exception as error:  # noqa: BLE001 - unpickling runs code of arbitrary objects
            text = f"the task cannot be read here: {type(error).__name__}: {error}"
            self._outbox.put("raised", key, describe_error(TaskError(text)))
            return
        task = asyncio.create_task(self._engine.run_rollout(spec))
        self._running[key] = task
        task.add_done_callback(partial(self._report_end, key))

    async def cancel(self, key: str) -> None:
        """Cancel a rollout; a message reports its end once its sandbox is closed."""
        task = self._running.get(key)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """Cancel the rollouts that still run, and close the engine."""
        left = list(self._running.values())
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self._engine.aclose()

    def _report_end(self, key: str, task: asyncio.Task[RolloutOutcome]) -> None:
        self._running.pop(key, None)
        if task.cancelled():
            self._outbox.put("cancelled", key, None)
        elif (error := task.exception()) is not None:
            self._outbox.put("raised", key, describe_error(error))
        else:
            self._outbox.put("done", key, pack_outcome(task.result()))

    def _forward(self, hook: str, event: object) -> None:
        try:
            self._outbox.put("event", hook, pack(event))
        except Exception as error:  # noqa: BLE001 - pickling runs code of arbitrary objects
            self._outbox.put("note", hook, f"an event could not be sent: {type(error).__name__}: {error}")


class RolloutWorker:
    """The worker's actor. Rollouts run in a separate loop and thread, so that a blocking plugin delays no messages."""

    def __init__(self) -> None:
        self._outbox = Outbox()
        self._rollouts = WorkerRollouts(self._outbox)
        self._registry: Registry | None = None
        # Ray sets uvloop's policy in this process; sandboxes need the standard library's loop and its child watcher.
        # Changing the policy is safe, because the process belongs to this worker alone.
        asyncio.set_event_loop_policy(asyncio.DefaultEventLoopPolicy())
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="rollouts", daemon=True).start()

    async def hello(self, plugins: dict[str, Any], folder: str | None) -> Answer:
        """Load the run's plugins; return their code versions, the node and the process, all as plain values.

        `folder` is the run's working directory, so that relative paths mean the same. If it does not exist here, files
        named by relative paths are reported as missing.
        """
        if folder is not None:
            with contextlib.suppress(OSError):
                os.chdir(folder)

        async def load() -> dict[str, Any]:
            # A plugin that is not installed here is reported as missing later, and must not stop loading the others.
            here = {found.id for found in await asyncio.to_thread(scan_entry_points)}
            allow = [name for name in plugins["allow"] if name in here]
            settings = PluginSettings().with_config({**plugins, "allow": allow})
            self._registry = await asyncio.to_thread(load_plugins, settings, environ=os.environ)
            code = await asyncio.to_thread(loaded_code, self._registry.plugins)
            return {"code": code, "node": node_id(), "pid": os.getpid()}

        return await self._answer(load())

    async def open(self, orders: bytes, tasks: bytes, api_key: str | None) -> Answer:
        """Prepare the worker; return the number of concurrent rollouts, or None for no limit."""
        return await self._answer(self._rollouts.open(self._loaded, unpack(orders), tasks, api_key))

    async def examine(self, tasks: bytes) -> Answer:
        """Return the tasks that cannot run here, with the reasons."""
        return await self._answer(self._rollouts.examine(self._loaded, unpack(tasks)))

    async def begin(self, key: str, rollout: bytes) -> None:
        """Start a rollout."""
        await self._inside(self._rollouts.begin(key, rollout))

    async def cancel(self, key: str) -> None:
        """Cancel a rollout."""
        await self._inside(self._rollouts.cancel(key))

    async def news(self, wait: float) -> list[News]:
        """Return new messages; an empty list after `wait` seconds without any."""
        return await self._outbox.take(wait)

    async def close(self) -> Answer:
        """Close the worker; the answer is an error if something cannot be closed."""
        return await self._answer(self._rollouts.close())

    @property
    def _loaded(self) -> Registry:
        if self._registry is None:
            raise RuntimeError("expected a call of hello() before any other, got none")
        return self._registry

    async def _answer(self, work: Coroutine[Any, Any, Any]) -> Answer:
        try:
            return True, await self._inside(work)
        except Exception as error:  # noqa: BLE001 - the run must be told of any error
            return False, describe_error(error)

    async def _inside(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))


def node_id() -> str:
    """Return the id of the node that this process runs on."""
    import ray

    return str(ray.get_runtime_context().get_node_id())
