"""hermes-agent's `ToolBackend`: runs the calls of trajectories."""

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
    """One trajectory's slot; any object with these attributes."""

    @property
    def slot_id(self) -> str:
        """Id of the slot."""
        ...

    @property
    def trajectory_id(self) -> str | None:
        """The trajectory that uses it."""
        ...


@dataclass(slots=True)
class ExecutionResult:
    """The result of one item of a batch."""

    success: bool
    output: str = ""
    error: str | None = None
    execution_id: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def to_tool_result(self, uniq_id: str = "") -> ToolResult:
        """Convert the result to a tool result."""
        return ToolResult(self.success, self.output, self.error, self.metadata, uniq_id)


BatchItem = tuple[Any, str, Mapping[str, Any]]
"""A slot, a tool's name and its arguments."""


@runtime_checkable
class ToolBackend(Protocol):
    """Runs tools in the slots of trajectories. `SandboxToolBackend` implements it on any terminal backend."""

    default_timeout_s: float

    async def start(self) -> None:
        """Prepare the backend; called once, before anything else."""
        ...

    async def stop(self, *, purge: bool = False) -> None:
        """Close every slot; with `purge` also what the backend keeps for the next start."""
        ...

    async def acquire(self, trajectory_id: str) -> Any:
        """Return a slot for one trajectory only; keep none when cancelled.

        Raises:
            BackendError: No slot is available in time.
        """
        ...

    async def release(self, slot: Any, *, reset_workspace: bool = False) -> None:
        """Give a slot back after ending what still runs in it."""
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
        """Run one tool and end it when cancelled. A repeated `execution_id` runs nothing."""
        ...

    async def execute_batch(
        self, requests: Sequence[BatchItem], *, timeout_s: float | None = None
    ) -> list[ExecutionResult]:
        """Run several calls: in order within a slot, concurrently across slots; return results in order."""
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
