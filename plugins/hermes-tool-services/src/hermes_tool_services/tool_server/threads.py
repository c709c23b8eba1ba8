"""Threads for synchronous tools, with a limit on abandoned ones."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from typing import Generic, TypeVar, final

from hermes_core.contracts.errors import HermesError
from hermes_core.rollout import WorkerThreads

T = TypeVar("T")


class ToolStuckError(HermesError):
    """Too many timed-out calls of one tool still run, so it gets no further thread."""


@final
class ToolThreads:
    """Runs synchronous tools in worker threads.

    A thread cannot be ended: after its caller leaves, it runs until the tool returns. Each tool may have `most` such
    threads; beyond that its calls are refused until one returns.
    """

    def __init__(self, workers: WorkerThreads, *, most: int) -> None:
        self._workers = workers
        self._most = most
        self._lock = threading.Lock()
        self._left: Counter[str] = Counter()

    @property
    def left(self) -> dict[str, int]:
        """The number of abandoned threads that still run, by tool."""
        with self._lock:
            return {name: count for name, count in self._left.items() if count}

    async def run(self, name: str, key: str, function: Callable[[], T]) -> T:
        """Run a function in a thread; threads are counted per `key`, for example all tools of one target.

        Raises:
            ToolStuckError: Too many earlier calls of this tool still run.
        """
        count = self.left.get(name, 0)
        if count >= self._most:
            raise ToolStuckError(
                f"{name} was not run: {count} of its calls timed out and still run in their threads",
                hint="give the tool its own timeout; restarting the tool server ends the threads",
            )
        call = _Call(self, name, function)
        try:
            return await self._workers.run(key, call.run)
        except asyncio.CancelledError:
            call.leave()
            raise

    def count(self, name: str, change: int) -> None:
        """Count a thread that was abandoned, or that returned later."""
        with self._lock:
            self._left[name] += change


class _Call(Generic[T]):
    """One call; the lock settles the race between a tool that returns and a caller that leaves."""

    def __init__(self, owner: ToolThreads, name: str, function: Callable[[], T]) -> None:
        self._owner = owner
        self._name = name
        self._function = function
        self._lock = threading.Lock()
        self._runs = False
        self._is_left = False

    def run(self) -> T:
        with self._lock:
            self._runs = True
            if self._is_left:
                self._owner.count(self._name, 1)
        try:
            return self._function()
        finally:
            with self._lock:
                self._runs = False
                if self._is_left:
                    self._owner.count(self._name, -1)

    def leave(self) -> None:
        with self._lock:
            self._is_left = True
            if self._runs:
                self._owner.count(self._name, 1)
