"""Two tools that read files of the sandbox: one asynchronous, one synchronous."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from hermes_core.contracts.tool import ToolContext, ToolResult


class JsonQuery:
    """Pick a value out of a JSON file."""

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Read the file from the sandbox and follow the query; the model gets errors as the result."""
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

    class Options(BaseModel):
        """Set by a run's config: `options: {tool: {acme_word_count: {min_letters: 3}}}`."""

        model_config = ConfigDict(extra="forbid")

        min_letters: int = Field(1, ge=1)
        """Shorter words are not counted."""

    def __init__(self, options: Options) -> None:
        self._min_letters = options.min_letters

    def call(self, arguments: dict[str, Any], context: Any) -> ToolResult:
        """Read the file and count."""
        try:
            text: str = context.read_text(arguments["path"])
        except OSError as error:
            return _failure(f"cannot read {arguments['path']}: {error}")
        counts = {"lines": len(text.splitlines()), "words": self._count_words(text), "characters": len(text)}
        return ToolResult(content=json.dumps(counts))

    def _count_words(self, text: str) -> int:
        return sum(len(word) >= self._min_letters for word in text.split())


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
