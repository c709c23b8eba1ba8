"""The boundary to a plugin's code while a rollout runs: what escapes must not end more than the call it came from."""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


class PluginEscapeError(Exception):
    """A plugin raised what would have ended the rollout's task or the whole process.

    That is `SystemExit`, a cancellation that nobody asked for, or another exception that is no `Exception`.
    """


async def guard_plugin_call(work: Awaitable[T]) -> T:
    """Await a plugin's work; a real cancellation and Ctrl-C pass, everything else comes out as an `Exception`."""
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
    """Return where an error was raised, by file and line: in the file of an object's class if it came from there."""
    cause = error.__cause__ if isinstance(error, PluginEscapeError) else error
    frames = list(traceback.extract_tb(None if cause is None else cause.__traceback__))
    file = getattr(sys.modules.get(type(code).__module__), "__file__", None)
    frames = [frame for frame in frames if frame.filename == file] or frames
    return f"{frames[-1].filename}, line {frames[-1].lineno}" if frames else "nowhere"
