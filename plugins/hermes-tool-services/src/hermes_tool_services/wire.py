"""The services' requests and answers: hermes-agent's payloads, in which every field has an effect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from hermes_tools.agent_tools import ToolCall, ToolResult

MOST_BYTES: Final = 5_000_000
"""Maximum bytes of an artifact answer, before encoding."""
MOST_ENTRIES: Final = 5_000
"""Maximum entries of a listing or archive."""
MOST_OMITTED: Final = 1_000
"""Maximum number of omitted entries that an answer lists; it always has their total."""
_LONGEST: Final = 4_096

Identifier = Annotated[str, Field(min_length=1, max_length=256)]
Seconds = Annotated[float, Field(allow_inf_nan=False)]


class Payload(BaseModel):
    """A body; unknown fields and values of a wrong type are errors."""

    model_config = ConfigDict(extra="forbid", strict=True)


class ToolCallPayload(Payload):
    """One call."""

    name: Identifier
    arguments: dict[str, Any] = Field(default_factory=dict)
    raw_text: str = ""
    uniq_id: str = ""

    def call(self) -> ToolCall:
        """Convert the payload to a tool call."""
        return ToolCall(self.name, self.arguments, self.raw_text, self.uniq_id)


class ToolResultPayload(Payload):
    """One answer; a tool's failure is part of it, with status 200."""

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
        """Convert the payload to a tool result."""
        return ToolResult(self.success, self.output, self.error, self.metadata, self.uniq_id)


class ToolExecutorExecuteRequest(Payload):
    """`POST /execute` of the tool executor. A repeated `execution_id` runs nothing and gets the first answer."""

    trajectory_id: Identifier
    tool: ToolCallPayload
    timeout_s: Seconds | None = None
    execution_id: Identifier | None = None


class ToolExecutorReleaseRequest(Payload):
    """`POST /release` of the tool executor. No later trajectory sees the workspace, with or without reset."""

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
    """A byte range of a file: `length` bytes from `start`, or to the end if None."""

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

    `bytes` is the number of bytes in `content`, `file_size` the file's size, `sha256` the hash of the whole file.
    `truncated`: the requested range continues after `content`.
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
    """An entry omitted from a listing or archive, with the reason."""

    path: str
    reason: str

    @classmethod
    def first(cls, omitted: Sequence[tuple[str, str]]) -> list[OmittedPayload]:
        """Return the payloads of the first omitted entries; an extremely long name is truncated."""
        return [cls(path=path[:_LONGEST], reason=reason[:_LONGEST]) for path, reason in omitted[:MOST_OMITTED]]


class ArtifactListRequestPayload(Payload):
    """`POST /artifacts/list`."""

    trajectory_id: Identifier
    path: str = "."
    recursive: bool = False
    max_entries: int | None = Field(default=None, ge=0)


class ArtifactListEntryPayload(Payload):
    """One entry; `path` is relative to the workspace. A symlink is listed as a symlink."""

    path: str
    is_dir: bool
    size: int
    mtime: float
    kind: Literal["file", "directory", "symlink", "other"] = "file"


class ArtifactListResponsePayload(Payload):
    """Entries sorted by path, directory by directory; `truncated`: there are more.

    `omitted` has the first entries that cannot be listed, `omitted_count` their total.
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

    `omitted` has the first entries that are not in the archive, `omitted_count` their total.
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
