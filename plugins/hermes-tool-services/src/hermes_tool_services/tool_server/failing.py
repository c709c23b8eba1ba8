"""Report a failed tool to the model by the exception's type only; the exception's text goes to the log."""

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
    """Log a tool's exception and return the text for the model.

    The exception's text may contain secrets: tokens, addresses with passwords, paths of this machine. A tool writes
    errors for the model into the `error` of its result.
    """
    where = about.get("trajectory_id") or "no trajectory"
    _LOG.warning("tool %s failed in call %r of %s", call.name, call.uniq_id, where, exc_info=error)
    kind = type(error.__cause__ if isinstance(error, PluginEscapeError) and error.__cause__ else error).__name__
    return f"{call.name} failed: {kind} (its text is in the log of the process that runs the tool)"


def discreet(tool: Tool, call: ToolCall, about: Mapping[str, str]) -> Tool:
    """Wrap an environment's tool so that its exceptions are reported like those of any other tool."""
    run: Callable[..., Awaitable[Any]] = tool.execute

    @functools.wraps(run)
    async def execute(**arguments: Any) -> Any:
        try:
            return await run(**arguments)
        except BackendError:
            raise  # a missing sandbox is not the model's fault
        except Exception as error:  # noqa: BLE001 - the boundary to an environment's own tool
            return ToolResult(success=False, error=report_failure(error, call, about))

    return cast("Tool", SimpleNamespace(execute=execute, schema=tool.schema))
