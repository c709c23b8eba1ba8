"""Sinks that note their calls, and one whose writes wait."""

from __future__ import annotations

import asyncio
import threading

import pytest


class Noting:
    """A sink that notes its calls."""

    def __init__(self):
        self.calls = []

    def open(self, folder):
        del folder
        self.calls.append("open")

    def write(self, outcome):
        del outcome
        self.calls.append("write")

    def close(self):
        self.calls.append("close")


class SlowSink(Noting):
    """A sink whose writes end when `release` is set; `begun` is set in the first one."""

    def __init__(self):
        super().__init__()
        self.begun, self.release = asyncio.Event(), threading.Event()
        self._loop = asyncio.get_running_loop()

    def write(self, outcome):
        self._loop.call_soon_threadsafe(self.begun.set)
        assert self.release.wait(60)
        super().write(outcome)


async def cancel(task):
    """Cancel a task and wait until it is."""
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
