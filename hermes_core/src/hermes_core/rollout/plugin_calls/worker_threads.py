"""Worker threads for synchronous plugins.

The threads are daemons: a plugin that never returns must not keep the process from ending, which the standard
library's executor would do. A call whose caller was cancelled is abandoned, not awaited; its thread ends with it, and
a new one replaces it, so that hung plugins do not use up the pool.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")


class _Job(Generic[T]):
    """One call. The lock decides the race between a thread that starts it and a caller that is cancelled."""

    def __init__(self, function: Callable[[], T]) -> None:
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[T] = self.loop.create_future()
        self.function = function
        self.lock = threading.Lock()
        self.started = False
        self.abandoned = False

    def begin(self) -> bool:
        with self.lock:
            self.started = not self.abandoned
            return self.started

    def abandon(self) -> bool:
        """Tell whether a thread is running it."""
        with self.lock:
            self.abandoned = True
            return self.started

    def run(self) -> None:
        result: T | None = None
        error: BaseException | None = None
        try:
            result = self.function()
        except BaseException as raised:  # noqa: BLE001 - the plugin boundary: everything goes to the caller
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop was closed; there is no caller any more
            self.loop.call_soon_threadsafe(self._settle, result, error)

    def _settle(self, result: T | None, error: BaseException | None) -> None:
        if self.future.done():
            return
        if isinstance(error, StopIteration):  # a future cannot hold a StopIteration
            error = RuntimeError("a plugin raised StopIteration")
        if error is None:
            self.future.set_result(cast("T", result))
        else:
            self.future.set_exception(error)


class WorkerThreads:
    """At most `size` calls run at a time, and at most half of them for one plugin (`key`)."""

    def __init__(self, size: int = 32) -> None:
        self._size = size
        self._jobs: queue.SimpleQueue[_Job[Any] | None] = queue.SimpleQueue()
        self._threads = 0
        self._slots = asyncio.Semaphore(size)
        self._per_key: dict[str, asyncio.Semaphore] = {}
        self.abandoned = 0
        """Calls that were still running when their caller was cancelled."""

    async def run(self, key: str, function: Callable[[], T], begin: Callable[[], None] = lambda: None) -> T:
        """Run a function in a worker thread, and call `begin` when one is free; raises what it raises."""
        limiter = self._per_key.setdefault(key, asyncio.Semaphore(max(1, self._size // 2)))
        async with limiter, self._slots:
            job = _Job(function)
            if self._threads < self._size:
                threading.Thread(target=self._work, name="hermes-worker", daemon=True).start()
                self._threads += 1
            begin()
            self._jobs.put(job)
            try:
                return await job.future
            except asyncio.CancelledError:
                if job.abandon():
                    self.abandoned += 1
                    self._threads -= 1
                raise

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            if job.begin():
                job.run()
            if job.started and job.abandoned:
                return

    def close(self) -> None:
        """End idle threads; busy ones end after their call."""
        for _ in range(self._threads):
            self._jobs.put(None)
