"""The tool `write_file`: replaces the content of a file."""

from __future__ import annotations

from typing import Any

from hermes_core.contracts.tool import ToolContext, ToolResult
from hermes_core.tooling import expand_home
from hermes_tools.results import explain, failure, json_result


class WriteFileTool:
    """Writes whole files."""

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Write `content` to `path`. Return `bytes_written`."""
        path = arguments["path"]
        data = arguments["content"].encode()
        try:
            await context.sandbox.write_file(await expand_home(path, context.sandbox), data)
        except OSError as error:
            return failure(explain(error, path))
        return json_result(path=path, bytes_written=len(data))
