"""The predecessor's ToolExecutor, as an `AgentEnv`'s own `collect_trajectory` uses it: a sandbox a trajectory id."""

from __future__ import annotations

from hermes_atropos.legacy_loop import OwnRollouts
from hermes_tool_services.agent_tools import ToolCall, ToolResult
from hermes_tool_services.hook_tools import Workbench, answering
from hermes_tool_services.tool_server_client import ToolExecutorClient


class ToolExecutor:
    """Makes calls in the sandboxes of trajectories; the first call of one opens it."""

    def __init__(self, own: OwnRollouts) -> None:
        self._own = own

    async def execute(self, trajectory_id: str, call: ToolCall, timeout_s: float | None = None) -> ToolResult:
        """Make one call; what goes wrong is in the result."""
        return await Workbench(await self._own.context(trajectory_id)).execute(call, timeout_s)

    async def release_trajectory(self, trajectory_id: str, reset_workspace: bool = True) -> None:  # noqa: ARG002, FBT001, FBT002 - the predecessor's signature
        """Close a trajectory's sandbox; no other trajectory ever sees its workspace."""
        await self._own.close(trajectory_id)


class RemoteToolExecutor:
    """The same in the sandboxes of a tool executor's service."""

    def __init__(self, client: ToolExecutorClient) -> None:
        self._client = client

    async def execute(self, trajectory_id: str, call: ToolCall, timeout_s: float | None = None) -> ToolResult:
        """Make one call; what a tool does wrong is in the result."""
        return answering(call, await self._client.execute(call, trajectory_id, timeout_s))

    async def release_trajectory(self, trajectory_id: str, reset_workspace: bool = True) -> None:  # noqa: ARG002, FBT001, FBT002 - the predecessor's signature
        """Close a trajectory's sandbox; no other trajectory ever sees its workspace."""
        await self._client.release(trajectory_id)
