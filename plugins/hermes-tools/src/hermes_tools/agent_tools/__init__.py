"""hermes-agent's tool classes: `Tool`, `ToolCall`, `ToolResult`, and the registry of an environment's tools."""

from __future__ import annotations

from hermes_core.lazy import lazy_exports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_tools.agent_tools.registry import InstalledTool, ToolRegistry, build_tool_registry, execute_tool
    from hermes_tools.agent_tools.results import (
        POLICY_WORDS,
        clamp_timeout,
        command_result,
        parse_result,
        result_for,
        without_policy,
    )
    from hermes_tools.agent_tools.tool import Tool, ToolCall, ToolResult, ToolSchema

__all__ = [
    "POLICY_WORDS", "InstalledTool", "Tool", "ToolCall", "ToolRegistry", "ToolResult", "ToolSchema",
    "build_tool_registry", "clamp_timeout", "command_result", "execute_tool", "parse_result", "result_for",
    "without_policy",
]  # fmt: skip

if not TYPE_CHECKING:  # for a type checker every name would exist
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".registry": "InstalledTool ToolRegistry build_tool_registry execute_tool",
            ".results": ("POLICY_WORDS clamp_timeout command_result parse_result result_for without_policy"),
            ".tool": "Tool ToolCall ToolResult ToolSchema",
        },
    )
