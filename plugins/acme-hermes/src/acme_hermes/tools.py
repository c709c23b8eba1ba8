"""Two tools that read files of the sandbox: one asynchronous, one synchronous."""

from __future__ import annotations

import json
from typing import Any

from hermes_core.contracts.tool import ToolContext, ToolResult


class JsonQuery:
    """Pick a value out of a JSON file."""

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Read the file from the sandbox and walk along the query; what goes wrong is told to the model."""
        path, query = arguments["path"], arguments["query"]
        try:
            value = json.loads(await context.read_text(path))
        except (OSError, ValueError, RecursionError) as error:
            return _failure(f"cannot read {path} as JSON: {error}")
        try:
            return ToolResult(content=json.dumps(_walk(value, query)))
        except LookupError as error:
            return _failure(f"{query!r} leads nowhere in {path}: {error.args[0]}")


class WordCount:
    """Count the words of a text file; an ordinary method runs in a worker thread with the synchronous context."""

    def call(self, arguments: dict[str, Any], context: Any) -> ToolResult:
        """Read the file and count."""
        try:
            text: str = context.read_text(arguments["path"])
        except OSError as error:
            return _failure(f"cannot read {arguments['path']}: {error}")
        counts = {"lines": len(text.splitlines()), "words": len(text.split()), "characters": len(text)}
        return ToolResult(content=json.dumps(counts))


def _walk(value: Any, query: str) -> Any:
    for step in query.split(".") if query else ():
        if isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        elif isinstance(value, dict) and step in value:
            value = value[step]
        else:
            raise LookupError(f"there is no {step!r}")
    return value


def _failure(message: str) -> ToolResult:
    return ToolResult(content=json.dumps({"error": message}), error=message)
