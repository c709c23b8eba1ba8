"""What a model is told of a tool that failed: its kind, and nothing of its text, which is the log's."""

from __future__ import annotations

import functools
import logging
from collections.abc import Awaitable, Callable, Mapping
from types import SimpleNamespace
from typing import Any, Final, cast

from hermes_core.contracts.errors import BackendError
from hermes_core.rollout import PluginEscapeError
from hermes_tools.agent_tools import Tool, ToolCall, ToolResult

_LOG: Final = logging.getLogger("hermes_pool.tools")


def report_failure(error: Exception, call: ToolCall, about: Mapping[str, str]) -> str:
    """Write down what a tool has raised, and return what its caller, a model, may read of it.

    The text of an exception may hold whatever the tool holds: tokens, addresses with passwords, paths of this machine.
    What a model is to read, a tool says in the `error` of its result.
    """
    where = about.get("trajectory_id") or "no trajectory"
    _LOG.warning("tool %s failed in call %r of %s", call.name, call.uniq_id, where, exc_info=error)
    kind = type(error.__cause__ if isinstance(error, PluginEscapeError) and error.__cause__ else error).__name__
    return f"{call.name} failed: {kind} (what it says is in the log of the process that runs the tool)"


def discreet(tool: Tool, call: ToolCall, about: Mapping[str, str]) -> Tool:
    """Return a tool of an environment, as one whose exceptions are told as those of any other."""
    run: Callable[..., Awaitable[Any]] = tool.execute

    @functools.wraps(run)
    async def execute(**arguments: Any) -> Any:
        try:
            return await run(**arguments)
        except BackendError:
            raise  # a sandbox that is not to be had is no affair of the model's
        except Exception as error:  # noqa: BLE001 - the boundary to an environment's own tool
            return ToolResult(success=False, error=report_failure(error, call, about))

    return cast("Tool", SimpleNamespace(execute=execute, schema=tool.schema))
