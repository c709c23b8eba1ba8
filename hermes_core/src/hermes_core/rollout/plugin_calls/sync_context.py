"""The rollout's handle for synchronous plugins: the same methods, without `await`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from hermes_core.contracts.errors import ContextUnusableError
from hermes_core.contracts.tool import ToolContext


class SyncToolContext:
    """Forwards each call to the rollout's event loop and waits for the answer.

    Only for worker threads: on the loop's own thread it would wait for itself, so it refuses.
    `asynchronous` is the context behind it.
    """

    def __init__(self, context: ToolContext) -> None:
        self.asynchronous: Any = context
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.asynchronous, name)
        if not asyncio.iscoroutinefunction(value):
            return value
        return self._blocking(name, value)

    def _blocking(self, name: str, method: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() == self._loop_thread:
                raise ContextUnusableError(
                    f"the synchronous context's {name}() was called on the event loop's own thread",
                    hint="make the plugin's method `async def` and await the asynchronous context",
                )
            return asyncio.run_coroutine_threadsafe(method(*args, **kwargs), self._loop).result()

        return call
