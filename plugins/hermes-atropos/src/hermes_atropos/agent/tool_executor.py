"""hermes-agent's ToolExecutor for an `AgentEnv`'s own `collect_trajectory`: one sandbox per trajectory id."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from hermes_atropos.agent.hook_tools import HookToolExecutor
from hermes_atropos.author_code.own_rollouts import OwnRollouts
from hermes_core.contracts.errors import ConfigError
from hermes_tools.agent_tools import ToolCall, ToolResult, result_for

if TYPE_CHECKING:
    from hermes_tool_services import TrajectoryToolClient


class ToolExecutor:
    """Runs calls in the sandboxes of trajectories; a trajectory's first call opens its sandbox."""

    def __init__(self, own: OwnRollouts) -> None:
        self._own = own

    async def execute(self, trajectory_id: str, call: ToolCall, timeout_s: float | None = None) -> ToolResult:
        """Run one call; failures are in the result."""
        return await HookToolExecutor(await self._own.context(trajectory_id)).execute(call, timeout_s)

    async def release_trajectory(self, trajectory_id: str, reset_workspace: bool = True) -> None:  # noqa: ARG002, FBT001, FBT002 - hermes-agent's signature
        """Close a trajectory's sandbox; no other trajectory ever sees its workspace."""
        await self._own.close(trajectory_id)


class RemoteToolExecutor:
    """Runs calls in the sandboxes of a tool executor's service."""

    def __init__(self, client: TrajectoryToolClient) -> None:
        self._client = client

    async def execute(self, trajectory_id: str, call: ToolCall, timeout_s: float | None = None) -> ToolResult:
        """Run one call; a tool's failure is in the result."""
        return result_for(call, await self._client.execute(call, trajectory_id, timeout_s))

    async def release_trajectory(self, trajectory_id: str, reset_workspace: bool = True) -> None:  # noqa: ARG002, FBT001, FBT002 - hermes-agent's signature
        """Close a trajectory's sandbox; no other trajectory ever sees its workspace."""
        await self._client.release(trajectory_id)


@contextlib.contextmanager
def naming_missing_client(key: str) -> Iterator[None]:
    """Wrap the import of a client: if its package is missing, raise an error that names the config key."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "hermes_tool_services":
            raise
        raise ConfigError(
            f"{key}: the client for remote tools is in another package, which is not installed",
            hint="pip install 'hermes-atropos[tool-services]'",
        ) from error
