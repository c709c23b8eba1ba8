"""An event loop in which no time passes: where it would wait, its clock is moved instead."""

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
            raise AssertionError("everybody waits, and nothing will ever happen")
        self.now += 0.0 if found else timeout or 0.0
        return found


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Fails when everybody waits for somebody."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Return the time that would have passed."""
        return self._jumping.now


def run_in_virtual_time(work: Coroutine[Any, Any, None]) -> None:
    """Run something that waits for timers and for its own tasks only."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(work)
