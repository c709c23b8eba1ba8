"""What the services are sent and what they answer: the predecessor's payloads, with no field taken and ignored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from hermes_tools.agent_tools import ToolCall, ToolResult

MOST_BYTES: Final = 5_000_000
"""Bytes of one artifact answer, before it is encoded."""
MOST_ENTRIES: Final = 5_000
"""Entries of one listing or archive."""
MOST_OMITTED: Final = 1_000
"""Entries that an answer says it leaves out, one by one; it says of how many."""
_LONGEST: Final = 4_096

Identifier = Annotated[str, Field(min_length=1, max_length=256)]
Seconds = Annotated[float, Field(allow_inf_nan=False)]


class Payload(BaseModel):
    """A body. An unknown field is an error, and so is a value of another type."""

    model_config = ConfigDict(extra="forbid", strict=True)


class ToolCallPayload(Payload):
    """One call."""

    name: Identifier
    arguments: dict[str, Any] = Field(default_factory=dict)
    raw_text: str = ""
    uniq_id: str = ""

    def call(self) -> ToolCall:
        """Return it as the executor takes it."""
        return ToolCall(self.name, self.arguments, self.raw_text, self.uniq_id)


class ToolResultPayload(Payload):
    """One answer; what a tool does wrong is in it, with status 200."""

    success: bool
    output: str = ""
    error: str | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    uniq_id: str = ""

    @classmethod
    def of(cls, result: ToolResult) -> ToolResultPayload:
        """Return the payload of a result."""
        return cls(
            success=result.success,
            output=str(result.output or ""),
            error=None if result.error is None else str(result.error),
            metadata=dict(result.metadata),
            uniq_id=result.uniq_id,
        )

    def result(self) -> ToolResult:
        """Return it as the executor gives it."""
        return ToolResult(self.success, self.output, self.error, self.metadata, self.uniq_id)


class ToolExecutorExecuteRequest(Payload):
    """`POST /execute` of the tool executor. A repeated `execution_id` runs nothing and gets the first one's answer."""

    trajectory_id: Identifier
    tool: ToolCallPayload
    timeout_s: Seconds | None = None
    execution_id: Identifier | None = None


class ToolExecutorReleaseRequest(Payload):
    """`POST /release` of the tool executor. No later trajectory sees the workspace, reset or not."""

    trajectory_id: Identifier
    reset_workspace: bool = False


class ToolServerExecuteRequest(Payload):
    """`POST /execute` of the tool server."""

    trajectory_id: Identifier | None = None
    tool: ToolCallPayload
    timeout_s: Seconds | None = None
    slot_id: str | None = None
    container_addr: str | None = None
    task_id: str | None = None


class ByteRange(Payload):
    """Bytes of a file: `length` of them from `start` on, to the end if None."""

    start: int = Field(default=0, ge=0)
    length: int | None = Field(default=None, ge=0)


class ArtifactReadRequestPayload(Payload):
    """`POST /artifacts/read`."""

    trajectory_id: Identifier
    path: str
    encoding: Literal["text", "base64"] = "text"
    max_bytes: int | None = Field(default=None, ge=0)
    include_sha256: bool = False
    range: ByteRange | None = None


class ArtifactReadResponsePayload(Payload):
    """A file, or a part of it.

    `bytes` is how many bytes of it are in `content`, `file_size` how many it has, `sha256` the hash of all of it.
    `truncated`: what was asked for goes on behind the last byte that is here.
    """

    success: bool = True
    path: str
    content: str
    encoding: Literal["text", "base64"]
    truncated: bool
    bytes: int
    start: int = 0
    file_size: int
    mime: str | None = None
    sha256: str | None = None


class OmittedPayload(Payload):
    """What a listing or an archive leaves out, and why."""

    path: str
    reason: str

    @classmethod
    def first(cls, omitted: Sequence[tuple[str, str]]) -> list[OmittedPayload]:
        """Return the payloads of as many as an answer has; a name without end, which nothing has, is cut."""
        return [cls(path=path[:_LONGEST], reason=reason[:_LONGEST]) for path, reason in omitted[:MOST_OMITTED]]


class ArtifactListRequestPayload(Payload):
    """`POST /artifacts/list`."""

    trajectory_id: Identifier
    path: str = "."
    recursive: bool = False
    max_entries: int | None = Field(default=None, ge=0)


class ArtifactListEntryPayload(Payload):
    """One entry; `path` is relative to the workspace. A symlink is one, whatever it points to."""

    path: str
    is_dir: bool
    size: int
    mtime: float
    kind: Literal["file", "directory", "symlink", "other"] = "file"


class ArtifactListResponsePayload(Payload):
    """Entries in order of their paths, directory by directory; `truncated`: there are more.

    `omitted` are the first of what cannot be listed, `omitted_count` is how many there are.
    """

    success: bool = True
    path: str
    entries: list[ArtifactListEntryPayload]
    truncated: bool
    omitted: list[OmittedPayload] = Field(default_factory=list)
    omitted_count: int = 0


class ArtifactArchiveRequestPayload(Payload):
    """`POST /artifacts/archive`."""

    trajectory_id: Identifier
    path: str = "."
    format: Literal["tar.gz", "tgz"] = "tar.gz"
    max_bytes: int | None = Field(default=None, ge=0)
    max_entries: int | None = Field(default=None, ge=0)


class ArtifactArchiveResponsePayload(Payload):
    """A .tar.gz; `content` is base64, `bytes` the archive's size.

    `omitted` are the first of what is not in it, `omitted_count` is how many there are.
    """

    success: bool = True
    path: str
    content: str
    encoding: Literal["base64"] = "base64"
    format: Literal["tar.gz", "tgz"] = "tar.gz"
    bytes: int
    entry_count: int
    sha256: str
    omitted: list[OmittedPayload] = Field(default_factory=list)
    omitted_count: int = 0
