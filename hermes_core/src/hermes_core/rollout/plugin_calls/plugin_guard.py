"""The boundary to plugins' code during a rollout: an error there must not end more than the call that raised it."""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


class PluginEscapeError(Exception):
    """A plugin raised something that would have ended the rollout's asyncio task or the whole process.

    That is `SystemExit`, a cancellation without a caller's request, or another subclass of only `BaseException`.
    """


async def guard_plugin_call(work: Awaitable[T]) -> T:
    """Await a plugin's work; a real cancellation and Ctrl-C pass, everything else is raised as an `Exception`."""
    try:
        return await work
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise PluginEscapeError("CancelledError, though nothing was cancelled") from error
    except (Exception, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # the plugin boundary: sys.exit() and the outcomes of test frameworks
        raise PluginEscapeError(f"{type(error).__name__}: {error}") from error


def error_location(error: BaseException, code: object = None) -> str:
    """Return the file and line where an error was raised, in the file of the object's class if possible."""
    cause = error.__cause__ if isinstance(error, PluginEscapeError) else error
    frames = list(traceback.extract_tb(None if cause is None else cause.__traceback__))
    file = getattr(sys.modules.get(type(code).__module__), "__file__", None)
    frames = [frame for frame in frames if frame.filename == file] or frames
    return f"{frames[-1].filename}, line {frames[-1].lineno}" if frames else "nowhere"
