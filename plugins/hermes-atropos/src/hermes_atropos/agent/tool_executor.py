"""The predecessor's ToolExecutor, as an `AgentEnv`'s own `collect_trajectory` uses it: a sandbox a trajectory id."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from hermes_atropos.agent.workbench import Workbench
from hermes_atropos.author_code.own_rollouts import OwnRollouts
from hermes_core.contracts.errors import ConfigError
from hermes_tools.agent_tools import ToolCall, ToolResult, result_for

if TYPE_CHECKING:
    from hermes_tool_services import TrajectoryToolClient


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

    def __init__(self, client: TrajectoryToolClient) -> None:
        self._client = client

    async def execute(self, trajectory_id: str, call: ToolCall, timeout_s: float | None = None) -> ToolResult:
        """Make one call; what a tool does wrong is in the result."""
        return result_for(call, await self._client.execute(call, trajectory_id, timeout_s))

    async def release_trajectory(self, trajectory_id: str, reset_workspace: bool = True) -> None:  # noqa: ARG002, FBT001, FBT002 - the predecessor's signature
        """Close a trajectory's sandbox; no other trajectory ever sees its workspace."""
        await self._client.release(trajectory_id)


@contextlib.contextmanager
def naming_missing_client(key: str) -> Iterator[None]:
    """Import a client within this: where its package is not installed, the key that asks for it says what to type."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "hermes_tool_services":
            raise
        raise ConfigError(
            f"{key}: the client that calls tools at an address is part of another package, which is not installed",
            hint="pip install 'hermes-atropos[tool-services]'",
        ) from error
