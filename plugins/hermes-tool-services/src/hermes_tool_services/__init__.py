"""The tool executor and the tool server: hermes-agent's services, built on the sandbox contract.

Names are imported on first use.
"""

from __future__ import annotations

from hermes_core.lazy import lazy_exports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_tool_services.executor.artifacts import ArtifactRefusedError
    from hermes_tool_services.executor.client import ToolExecutorClient
    from hermes_tool_services.executor.config import ToolExecutorConfig
    from hermes_tool_services.executor.executor import ToolExecutor
    from hermes_tool_services.executor.sandbox_tools import SandboxToolBackend
    from hermes_tool_services.executor.tool_backend import ExecutionResult, ToolBackend
    from hermes_tool_services.tool_server.client import ToolServerClient, TrajectoryToolClient
    from hermes_tool_services.tool_server.server import ToolServer

__all__ = [
    "ArtifactRefusedError", "ExecutionResult", "SandboxToolBackend", "ToolBackend", "ToolExecutor",
    "ToolExecutorClient", "ToolExecutorConfig", "ToolServer", "ToolServerClient", "TrajectoryToolClient",
]  # fmt: skip

if not TYPE_CHECKING:  # for a type checker every name would exist
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".executor.artifacts": "ArtifactRefusedError",
            ".executor.client": "ToolExecutorClient",
            ".executor.config": "ToolExecutorConfig",
            ".executor.executor": "ToolExecutor",
            ".executor.sandbox_tools": "SandboxToolBackend",
            ".executor.tool_backend": "ExecutionResult ToolBackend",
            ".tool_server.client": "ToolServerClient TrajectoryToolClient",
            ".tool_server.server": "ToolServer",
        },
    )
