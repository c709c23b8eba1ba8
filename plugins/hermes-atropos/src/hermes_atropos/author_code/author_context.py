"""The asynchronous context with hermes-agent's behaviour.

A tool that fails returns `{"error": …}`, and a relative path starts at the session's directory.
"""

from __future__ import annotations

import functools
import inspect
import json
import logging
import os
import posixpath
from collections.abc import Callable
from typing import Any, Final

from hermes_core.contracts.errors import BackendError, ContextUnusableError, PluginError, UnknownComponentError
from hermes_core.contracts.sandbox import Sandbox
from hermes_core.rollout import PluginEscapeError, RolloutContext
from hermes_core.tooling import ArgumentsError, expand_home

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
"""The methods that call a tool, with its name; `call_tool` gets the name as an argument."""

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
"""The results of methods when the session's directory was removed; other methods raise."""

_MAY_MOVE: Final = frozenset({"terminal", "call_tool", "sandbox"})
"""The attributes of a context that may change its session's directory."""

_MOVED: Final = "hermes_atropos.session_may_have_moved"

# The session may define a function `pwd`, `builtin` or `unset`; in POSIX mode, which the assignment starts, a function
# cannot replace `unset`. The first `pwd` fails if the directory was removed; the second one alone would not.
_PRINT_DIRECTORY: Final = r"( POSIXLY_CORRECT=1; \unset -f pwd; \pwd -P >/dev/null && \pwd )"


class AuthorContext:
    """A rollout's context for an environment's own code; unchanged methods are the wrapped context's.

    If a tool is not installed, refuses its arguments or raises, the method returns an error as in hermes-agent, so that
    the reward function continues; `missing_tools` are the tools that were already warned about. A lost sandbox raises,
    because a rollout that cannot be judged has no reward. A relative path of a file method starts at the session's
    directory, as in a command.
    """

    def __init__(self, context: Any, missing_tools: set[str]) -> None:
        self._context = context
        self._missing_tools = missing_tools

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._context, name)
        if name in _MAY_MOVE:
            self._context.state[_MOVED] = True
        if name not in _TOOL_CALLS and name not in _PATHS:
            return method

        @functools.wraps(method)
        async def call(*args: Any, **kwargs: Any) -> Any:
            bound = _bind(name, args, kwargs)
            try:
                await self._resolve(bound.arguments, _PATHS.get(name))
            except OSError as error:
                if name not in _NO_DIRECTORY:
                    raise
                return _NO_DIRECTORY[name](str(error))
            return await self._answer(name, bound, method)

        return call

    async def _resolve(self, arguments: dict[str, Any], name: str | None) -> None:
        for key, value in arguments.items():
            if isinstance(value, os.PathLike):
                arguments[key] = os.fspath(value)
        sandbox: Sandbox | None = self._context.sandbox_or_none
        if name is not None and sandbox is not None and isinstance(arguments[name], str):
            arguments[name] = await self._path_in_session(arguments[name], sandbox)

    async def _path_in_session(self, path: str, sandbox: Sandbox) -> str:
        """Resolve a path as a command of the session would, for the sandbox's file calls."""
        path = await expand_home(path, sandbox)
        if not path or path.startswith("/") or not self._context.state.get(_MOVED):
            return path
        directory = await _session_directory(sandbox)
        if directory == sandbox.workspace:
            return path
        return directory if path == "." else posixpath.join(directory, path)

    async def _answer(self, name: str, bound: inspect.BoundArguments, method: Callable[..., Any]) -> Any:
        tool = _TOOL_CALLS.get(name) or bound.arguments.get("tool_name")
        try:
            if name == "call_tool":
                self._drop_strangers(tool, bound.arguments)
            return await method(*bound.args, **bound.kwargs)
        except (BackendError, ContextUnusableError):
            raise
        except Exception as error:  # the plugin boundary: the author decides about a tool's failure
            if name not in _TOOL_CALLS:
                raise
            if isinstance(error, PluginError):
                self._warn_once(name, str(tool), error)
            answer = {"error": _explain(error, tool)}
            return json.dumps(answer, ensure_ascii=False) if name == "call_tool" else answer

    def _drop_strangers(self, tool: Any, call: dict[str, Any]) -> None:
        """Drop arguments that a tool does not have, because hermes-agent's tools ignored them."""
        if not isinstance(tool, str):
            raise ArgumentsError(f"Unknown tool: {tool}. Expected the name of a tool, got {type(tool).__name__}.")
        schema, arguments = self._context.tool_spec(tool).parameters, call["arguments"]
        if not isinstance(arguments, dict) or schema.get("additionalProperties") is not False:
            return
        strangers = sorted(arguments.keys() - schema.get("properties", {}).keys(), key=str)
        if strangers and not schema.get("patternProperties"):
            logger.warning(
                "ctx.call_tool drops arguments that tool %r does not have: %s", tool, ", ".join(map(str, strangers))
            )
            call["arguments"] = {key: value for key, value in arguments.items() if key not in strangers}

    def _warn_once(self, name: str, tool: str, error: PluginError) -> None:
        """Warn once about an unavailable tool, because every rollout's reward will lack it."""
        if tool not in self._missing_tools:
            self._missing_tools.add(tool)
            reason = " ".join(f"{error.message}; {error.hint or ''}".split()).removesuffix(";")
            logger.warning("ctx.%s returns an error, because tool %r is not available: %s", name, tool, reason)


async def _session_directory(sandbox: Sandbox) -> str:
    result = await sandbox.exec(_PRINT_DIRECTORY)
    directory = result.stdout.decode("utf-8", "surrogateescape").removesuffix("\n")
    if result.exit_code != 0 or not directory.startswith("/"):
        found = result.output.strip() or f"exit {result.exit_code}"
        raise FileNotFoundError(f"Expected the session's directory, got {found}. If it was removed, cd to another.")
    return directory


def _bind(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> inspect.BoundArguments:
    """Bind a method's arguments; raise `TypeError` as the call itself would."""
    signature = inspect.signature(getattr(RolloutContext, name))
    own = list(signature.parameters.values())[1:]
    bound = signature.replace(parameters=own).bind(*args, **kwargs)
    bound.apply_defaults()
    return bound


def _explain(error: Exception, tool: Any) -> str:
    match error:
        case UnknownComponentError():
            return f"Unknown tool: {tool}. {error.message}"
        case ArgumentsError():
            return str(error)
        case PluginEscapeError():
            return f"Tool execution failed: {error}"
    return f"Tool execution failed: {type(error).__name__}: {error}"
