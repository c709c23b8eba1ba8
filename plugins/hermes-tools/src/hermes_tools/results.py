"""The JSON answers of the built-in tools."""

from __future__ import annotations

import json
from typing import Any

from hermes_core.contracts.tool import ToolResult


def json_result(**fields: Any) -> ToolResult:
    """Return a result whose content is a JSON object with these fields, in this order."""
    return ToolResult(content=json.dumps(fields, ensure_ascii=False))


def failure(message: str, **fields: Any) -> ToolResult:
    """Return a result that tells the model of an error and marks the call as failed in the rollout's record."""
    return ToolResult(content=json.dumps({"error": message, **fields}, ensure_ascii=False), error=message)


def explain(error: OSError, path: str) -> str:
    """Return a message for the model that says why a file operation on `path` failed."""
    match error:
        case FileNotFoundError():
            return f"File not found: {path}"
        case IsADirectoryError():
            return f"{path} is a directory, not a file"
        case NotADirectoryError():
            return f"A part of {path} is a file, not a directory"
        case PermissionError():
            return f"Permission denied: {path}"
        case _:
            return f"Cannot use {path}: {error.strerror or error}"
