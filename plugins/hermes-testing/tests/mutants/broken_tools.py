"""The plugin of the broken tools, and the tools."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

from reference.plugin import PARAMETERS, tool
from reference.tools import Count, CountAsync

from hermes_core.contracts.tool import ToolResult
from hermes_core.hookspecs import hookimpl


@hookimpl
def hermes_tools():
    def own(name, target):
        return replace(tool(name, "Count"), target=f"broken_tools:{target}")

    nowhere = {"path": {"type": "string", "$ref": "#/$defs/path"}}
    return [
        tool("count", "Count"),
        tool("count_async", "CountAsync"),
        own("bare_text", "BareText"),
        own("dictionary", "Dictionary"),
        own("raises", "Raises"),
        own("counts_calls", "CountsCalls"),
        own("swallows", "Swallows"),
        own("blocks", "Blocks"),
        tool("undeclared", "Count", parameters={**PARAMETERS, "required": ["path", "file"]}),
        tool("silent", "Count", description=" "),
        tool("dangling_reference", "Count", parameters={**PARAMETERS, "properties": nowhere}),
    ]


class BareText(Count):
    def answer(self, size, context):
        return str(size)


class Dictionary(Count):
    def answer(self, size, context):
        return ToolResult(content={"size": size})


class Raises:
    def call(self, arguments, context):
        return ToolResult(content=str(len(context.read_bytes(arguments["path"]))))


class CountsCalls(Count):
    def __init__(self):
        self.calls = 0

    def answer(self, size, context):
        self.calls += 1
        return super().answer(size, context)


class Swallows(CountAsync):
    async def call(self, arguments, context):
        try:
            return await super().call(arguments, context)
        except asyncio.CancelledError:
            return ToolResult(content="never mind")


class Blocks(CountAsync):
    async def call(self, arguments, context):
        time.sleep(3)
        return await super().call(arguments, context)
