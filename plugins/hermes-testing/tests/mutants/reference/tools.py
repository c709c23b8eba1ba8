"""Tools that pass."""

from __future__ import annotations

import json

from hermes_core.contracts.tool import ToolResult


class Count:
    def call(self, arguments, context):
        try:
            return self.answer(len(context.read_bytes(arguments["path"])), context)
        except OSError as error:
            return ToolResult(content=json.dumps({"error": str(error)}), error=str(error))

    def answer(self, size, context):
        return ToolResult(content=json.dumps({"size": size}))


class CountAsync:
    async def call(self, arguments, context):
        try:
            data = await context.read_bytes(arguments["path"])
        except OSError as error:
            return ToolResult(content=json.dumps({"error": str(error)}), error=str(error))
        return ToolResult(content=json.dumps({"size": len(data)}))


class WithoutCall:
    """What a tool must not be."""
