"""The predecessor's `ToolBackend`: where the calls of trajectories are run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from hermes_tool_services.wire import (
    ArtifactArchiveRequestPayload,
    ArtifactArchiveResponsePayload,
    ArtifactListRequestPayload,
    ArtifactListResponsePayload,
    ArtifactReadRequestPayload,
    ArtifactReadResponsePayload,
)
from hermes_tools.agent_tools import ToolResult


class ToolSlot(Protocol):
    """One trajectory's place; a backend gives out what it likes as long as this can be read from it."""

    @property
    def slot_id(self) -> str:
        """Name of the place."""
        ...

    @property
    def trajectory_id(self) -> str | None:
        """Whose it is."""
        ...


@dataclass(slots=True)
class ExecutionResult:
    """What became of one item of a batch."""

    success: bool
    output: str = ""
    error: str | None = None
    execution_id: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def to_tool_result(self, uniq_id: str = "") -> ToolResult:
        """Return it as the answer to a call."""
        return ToolResult(self.success, self.output, self.error, self.metadata, uniq_id)


BatchItem = tuple[Any, str, Mapping[str, Any]]
"""A slot, a tool's name and its arguments."""


@runtime_checkable
class ToolBackend(Protocol):
    """Runs tools in the places of trajectories. `SandboxToolBackend` is one over any terminal backend."""

    default_timeout_s: float

    async def start(self) -> None:
        """Get ready; called once, before anything else."""
        ...

    async def stop(self, *, purge: bool = False) -> None:
        """Close every place; with `purge` also what the backend keeps for the next start."""
        ...

    async def acquire(self, trajectory_id: str) -> Any:
        """Return a place of its own for a trajectory; when cancelled, none is kept.

        Raises:
            BackendError: None is to be had in time.
        """
        ...

    async def release(self, slot: Any, *, reset_workspace: bool = False) -> None:
        """Give a place back, with what still runs in it ended."""
        ...

    async def execute(
        self,
        slot: Any,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        timeout_s: float | None = None,
        execution_id: str | None = None,
    ) -> ExecutionResult:
        """Run one tool. Cancelled, it is ended where it runs. A repeated `execution_id` runs nothing."""
        ...

    async def execute_batch(
        self, requests: Sequence[BatchItem], *, timeout_s: float | None = None
    ) -> list[ExecutionResult]:
        """Run several, each place's in order and different places' at the same time; answers in order."""
        ...

    async def read_artifact(self, slot: Any, request: ArtifactReadRequestPayload) -> ArtifactReadResponsePayload:
        """Read a file of the workspace."""
        ...

    async def list_artifacts(self, slot: Any, request: ArtifactListRequestPayload) -> ArtifactListResponsePayload:
        """List a directory of the workspace."""
        ...

    async def archive_artifacts(
        self, slot: Any, request: ArtifactArchiveRequestPayload
    ) -> ArtifactArchiveResponsePayload:
        """Pack a file or a directory of the workspace."""
        ...
