"""Work that must be finished once it has begun."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def complete(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end even when the caller is cancelled meanwhile; the cancellation is raised afterwards.

    The result is lost then: work that creates something must also be able to remove it, see `AgentBackend.open`.
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
        except BaseException:  # noqa: BLE001, S110 - raised below by result()
            pass
    if cancelled is not None:
        if task.exception() is None:
            raise cancelled
        raise cancelled from task.exception()
    return task.result()
