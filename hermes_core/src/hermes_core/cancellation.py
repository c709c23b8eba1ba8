"""Work that must be finished once it has begun."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

__all__ = ["run_uncancelled"]

T = TypeVar("T")


async def run_uncancelled(work: Awaitable[T]) -> T:
    """Run `work` to its end even when the caller is cancelled meanwhile; the cancellation is raised afterwards.

    The result is lost then, so work that creates something must also be able to remove it. What `work` raises beside a
    cancellation is the cancellation's cause.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                raise
            cancelled = error
        except BaseException:
            # What the work raised is raised below, by result(); anything else is about this very wait.
            if not task.done():
                raise
    if cancelled is not None:
        if task.exception() is None:
            raise cancelled
        raise cancelled from task.exception()
    return task.result()
