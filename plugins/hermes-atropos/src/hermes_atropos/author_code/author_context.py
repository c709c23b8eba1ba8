"""The asynchronous context as hermes-agent's authors know it: a tool that fails answers `{"error": …}`."""

from __future__ import annotations

import functools
import inspect
import json
import logging
from collections.abc import Awaitable
from typing import Any, Final

from hermes_core.contracts.errors import BackendError, ContextUnusableError, PluginError, UnknownComponentError
from hermes_core.rollout.boundary import EscapedError
from hermes_core.rollout.context import RolloutContext
from hermes_core.tooling.arguments import ArgumentsError

logger = logging.getLogger(__name__)

_TOOL_CALLS: Final = {
    "read_file": "read_file",
    "write_file": "write_file",
    "search": "search_files",
    "web_search": "web_search",
    "web_extract": "web_extract",
    "browser_navigate": "browser_navigate",
    "browser_snapshot": "browser_snapshot",
    "call_tool": "",
}
"""The methods that call a tool, and its name; `call_tool` is told it."""


class AuthorContext:
    """A rollout's context for an environment's own code; what it does not change is the context's.

    A tool that is not installed, cannot take its arguments or raises is answered, as hermes-agent did, so that a reward
    goes on. A sandbox that went away is raised: what cannot be judged has no reward.
    """

    def __init__(self, context: Any) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._context, name)
        if name not in _TOOL_CALLS:
            return method

        @functools.wraps(method)
        async def call(*args: Any, **kwargs: Any) -> Any:
            bound = _bound(name, args, kwargs)
            return await _answered(name, bound, method(*bound.args, **bound.kwargs))

        return call


def _bound(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> inspect.BoundArguments:
    """Return a method's arguments; raises `TypeError` as the call itself would."""
    signature = inspect.signature(getattr(RolloutContext, name))
    own = list(signature.parameters.values())[1:]
    return signature.replace(parameters=own).bind(*args, **kwargs)


async def _answered(name: str, bound: inspect.BoundArguments, call: Awaitable[Any]) -> Any:
    try:
        return await call
    except (BackendError, ContextUnusableError):
        raise
    except Exception as error:  # noqa: BLE001 - the plugin boundary: a tool's failure is the author's to judge
        tool = _TOOL_CALLS[name] or bound.arguments["tool_name"]
        if isinstance(error, PluginError):  # every rollout's reward will miss it
            logger.warning("ctx.%s answers an error, because tool %r cannot be had: %s", name, tool, error)
        answer = {"error": _explain(error, tool)}
        return json.dumps(answer, ensure_ascii=False) if name == "call_tool" else answer


def _explain(error: Exception, tool: str) -> str:
    match error:
        case UnknownComponentError():
            return f"Unknown tool: {tool}. {error.hint or error.message}"
        case ArgumentsError():
            return str(error)
        case EscapedError():
            return f"Tool execution failed: {error}"
    return f"Tool execution failed: {type(error).__name__}: {error}"
