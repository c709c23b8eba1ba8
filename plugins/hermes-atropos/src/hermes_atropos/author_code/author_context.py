"""The asynchronous context as hermes-agent's authors know it.

A tool that fails answers `{"error": …}`, and a relative path begins where the session is.
"""

from __future__ import annotations

import functools
import inspect
import json
import logging
import posixpath
from collections.abc import Callable
from typing import Any, Final

from hermes_core.contracts.errors import BackendError, ContextUnusableError, PluginError, UnknownComponentError
from hermes_core.contracts.sandbox import Sandbox
from hermes_core.rollout.boundary import EscapedError
from hermes_core.rollout.context import RolloutContext
from hermes_core.tooling.arguments import ArgumentsError
from hermes_core.tooling.sandbox_paths import expand

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

_PATHS: Final = {
    **dict.fromkeys(("read_file", "write_file", "search"), "path"),
    **dict.fromkeys(("read_bytes", "read_text", "write_bytes", "exists", "stat", "list_dir"), "path"),
    **dict.fromkeys(("upload_file", "download_file"), "remote_path"),
    **dict.fromkeys(("upload_dir", "download_dir"), "remote_dir"),
}
"""The methods that take a path in the sandbox, and the argument's name."""

_NO_DIRECTORY: Final[dict[str, Callable[[str], Any]]] = {
    **dict.fromkeys(("read_file", "write_file", "search"), lambda text: {"error": text}),
    "exists": lambda _: False,
    "upload_file": lambda text: {"exit_code": -1, "output": text},
    "upload_dir": lambda text: [{"exit_code": -1, "output": text}],
    "download_file": lambda text: {"success": False, "error": text},
    "download_dir": lambda text: [{"success": False, "error": text}],
}
"""What the methods answer in a session whose directory was removed; the others raise."""

_SHOW_DIRECTORY: Final = "command pwd -P >/dev/null && command pwd"
"""Fails where the directory was removed, which the second one alone would not tell."""


class AuthorContext:
    """A rollout's context for an environment's own code; what it does not change is the context's.

    A tool that is not installed, cannot take its arguments or raises is answered, as hermes-agent did, so that a reward
    goes on. A sandbox that went away is raised: what cannot be judged has no reward. A relative path of a file method
    begins in the session's directory, so that it names the file that a command names.
    """

    def __init__(self, context: Any) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._context, name)
        if name not in _TOOL_CALLS and name not in _PATHS:
            return method

        @functools.wraps(method)
        async def call(*args: Any, **kwargs: Any) -> Any:
            bound = _bound(name, args, kwargs)
            try:
                await self._resolve(bound.arguments, _PATHS.get(name))
            except OSError as error:
                if name not in _NO_DIRECTORY:
                    raise
                return _NO_DIRECTORY[name](str(error))
            return await _answered(name, bound, method)

        return call

    async def _resolve(self, arguments: dict[str, Any], name: str | None) -> None:
        sandbox: Sandbox | None = self._context.sandbox_or_none
        if name is not None and sandbox is not None and isinstance(arguments[name], str):
            arguments[name] = await _resolved(arguments[name], sandbox)


async def _resolved(path: str, sandbox: Sandbox) -> str:
    """Return a path that means in the sandbox's file calls what it means to a command of the session."""
    path = await expand(path, sandbox)
    if not path or path.startswith("/"):
        return path
    directory = await _directory(sandbox)
    if directory == sandbox.workspace:
        return path
    return directory if path == "." else posixpath.join(directory, path)


async def _directory(sandbox: Sandbox) -> str:
    shown = await sandbox.exec(_SHOW_DIRECTORY)
    directory = shown.stdout.decode("utf-8", "surrogateescape").removesuffix("\n")
    if shown.exit_code != 0 or not directory.startswith("/"):
        found = shown.output.strip() or f"exit {shown.exit_code}"
        raise FileNotFoundError(f"Expected the session's directory, got {found}. If it was removed, cd to another.")
    return directory


def _bound(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> inspect.BoundArguments:
    """Return a method's arguments; raises `TypeError` as the call itself would."""
    signature = inspect.signature(getattr(RolloutContext, name))
    own = list(signature.parameters.values())[1:]
    bound = signature.replace(parameters=own).bind(*args, **kwargs)
    bound.apply_defaults()
    return bound


async def _answered(name: str, bound: inspect.BoundArguments, method: Callable[..., Any]) -> Any:
    try:
        return await method(*bound.args, **bound.kwargs)
    except (BackendError, ContextUnusableError):
        raise
    except Exception as error:  # the plugin boundary: a tool's failure is the author's to judge
        if name not in _TOOL_CALLS:
            raise
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
