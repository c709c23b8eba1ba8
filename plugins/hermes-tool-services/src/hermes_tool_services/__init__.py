"""The tool executor and the tool server: the predecessor's services, as views of the sandbox contract.

Everything is imported when a name of it is used.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_core.contracts.agent_tools import Tool, ToolCall, ToolResult, ToolSchema
    from hermes_core.tooling.tool_registry import ToolRegistry, build_tool_registry
    from hermes_tool_services.executor.artifacts import ArtifactRefusedError
    from hermes_tool_services.executor.client import ToolExecutorClient
    from hermes_tool_services.executor.config import ToolExecutorConfig
    from hermes_tool_services.executor.executor import ToolExecutor
    from hermes_tool_services.executor.sandbox_tools import SandboxToolBackend
    from hermes_tool_services.executor.tool_backend import ExecutionResult, ToolBackend
    from hermes_tool_services.tool_server.server import ToolServer

_HOMES = {
    "ArtifactRefusedError": "hermes_tool_services.executor.artifacts",
    "ExecutionResult": "hermes_tool_services.executor.tool_backend",
    "SandboxToolBackend": "hermes_tool_services.executor.sandbox_tools",
    "Tool": "hermes_core.contracts.agent_tools",
    "ToolBackend": "hermes_tool_services.executor.tool_backend",
    "ToolCall": "hermes_core.contracts.agent_tools",
    "ToolExecutor": "hermes_tool_services.executor.executor",
    "ToolExecutorClient": "hermes_tool_services.executor.client",
    "ToolExecutorConfig": "hermes_tool_services.executor.config",
    "ToolRegistry": "hermes_core.tooling.tool_registry",
    "ToolResult": "hermes_core.contracts.agent_tools",
    "ToolSchema": "hermes_core.contracts.agent_tools",
    "ToolServer": "hermes_tool_services.tool_server.server",
    "build_tool_registry": "hermes_core.tooling.tool_registry",
}

__all__ = [
    "ArtifactRefusedError",
    "ExecutionResult",
    "SandboxToolBackend",
    "Tool",
    "ToolBackend",
    "ToolCall",
    "ToolExecutor",
    "ToolExecutorClient",
    "ToolExecutorConfig",
    "ToolRegistry",
    "ToolResult",
    "ToolSchema",
    "ToolServer",
    "build_tool_registry",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'hermes_tool_services' has no attribute {name!r}")
    import importlib

    value: object = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
