"""Threads for synchronous tools, with a bound on those that nobody can end any more."""

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
    """So many calls of one tool go on after their time that it is given no further thread."""


@final
class ToolThreads:
    """Runs synchronous tools in worker threads.

    A thread cannot be ended: one whose caller has left goes on until the tool returns. Each tool may have `most` such
    threads; with them it is refused, until one returns.
    """

    def __init__(self, workers: WorkerThreads, *, most: int) -> None:
        self._workers = workers
        self._most = most
        self._lock = threading.Lock()
        self._left: Counter[str] = Counter()

    @property
    def left(self) -> dict[str, int]:
        """How many threads of each tool go on although nobody waits for them."""
        with self._lock:
            return {name: count for name, count in self._left.items() if count}

    async def run(self, name: str, key: str, function: Callable[[], T]) -> T:
        """Run a function in a thread; `key` is whose threads it counts among, as of all tools of one target.

        Raises:
            ToolStuckError: Too many earlier calls of this tool go on.
        """
        count = self.left.get(name, 0)
        if count >= self._most:
            raise ToolStuckError(
                f"{name} was not run: {count} of its calls timed out and still run in their threads",
                hint="the tool needs a timeout of its own; restarting the tool server ends them",
            )
        call = _Call(self, name, function)
        try:
            return await self._workers.run(key, call.run)
        except asyncio.CancelledError:
            call.leave()
            raise

    def count(self, name: str, change: int) -> None:
        """Note that a thread was left to itself, or has come back after all."""
        with self._lock:
            self._left[name] += change


class _Call(Generic[T]):
    """One call; the lock decides between a tool that returns and a caller that leaves."""

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
