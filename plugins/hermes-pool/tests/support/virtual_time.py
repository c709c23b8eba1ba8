"""An event loop with a virtual clock: instead of waiting, it advances the clock to the next timer."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any


class _Jumping(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if not found and timeout is None:
            raise AssertionError("deadlock: all tasks wait, and no timer is set")
        self.now += 0.0 if found else timeout or 0.0
        return found


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop with a virtual clock, which fails on a deadlock."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Return the virtual time."""
        return self._jumping.now


def run_in_virtual_time(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that waits only for timers and its own tasks."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(work)
