"""Ends a run when a signal asks for that, and lets it clean up."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

from hermes_core.cli import end_signals

Result = TypeVar("Result")


async def end_by_signals(work: Coroutine[Any, Any, Result], received: list[int]) -> Result:
    """Wait for the work; each signal that ends it cancels it once more, and none of the tasks that clean up after it.

    `received` gets the numbers of these signals.
    """
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
    unhandled: list[asyncio.Handle] = []

    def end(number: int) -> None:
        received.append(number)
        unhandled.clear()
        task.cancel()

    def interrupt(number: int, _: object) -> None:
        if unhandled:  # a plugin blocks the event loop, which has not seen the Ctrl-C before this one
            unhandled.pop().cancel()  # or it would cut short the cleaning up that begins now
            raise KeyboardInterrupt
        unhandled.append(loop.call_soon_threadsafe(end, number))

    for number in end_signals():
        loop.add_signal_handler(number, end, number)
    # asyncio's own handler, which is set here, would cancel every task at the second Ctrl-C: sinks and engine, too.
    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.SIG_IGN:
        return await task
    signal.signal(signal.SIGINT, interrupt)
    try:
        return await task
    finally:  # while asyncio closes the loop, Ctrl-C must not go to a task that has ended
        signal.signal(signal.SIGINT, usual)
