"""Work that must be finished once it has begun."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

__all__ = ["run_uncancelled"]

T = TypeVar("T")


async def run_uncancelled(work: Awaitable[T]) -> T:
    """Run `work` to its end even if the caller is cancelled meanwhile; then raise the cancellation.

    Its result is lost in that case, so work that creates something must also be able to remove it. An error of `work`
    becomes the cause of the cancellation.
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
            # An error of the work is raised below, by result(); any other is about this wait itself.
            if not task.done():
                raise
    if cancelled is not None:
        if task.exception() is None:
            raise cancelled
        raise cancelled from task.exception()
    return task.result()
