"""The subcommands of this package; the module imports little, because listing plugins loads it."""

from __future__ import annotations

from typing import Final

from hermes_core.specs import CommandSpec

COMMANDS: Final = (
    CommandSpec(
        name="tool-executor",
        summary="serve tool calls of many trajectories over HTTP, each in its own sandbox",
        target="hermes_tool_services.executor.command:ToolExecutorCommand",
    ),
    CommandSpec(
        name="tool-server",
        summary="serve the installed tools that act outside the sandbox over HTTP",
        target="hermes_tool_services.tool_server.command:ToolServerCommand",
    ),
)
