"""What a terminal backend and a sandbox must be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Protocol, Self, runtime_checkable

NetworkMode = Literal["none", "allowlist", "full"]
IsolationLevel = Literal["none", "bwrap", "container", "container+slot", "gvisor"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    """What a rollout asks for. A backend that cannot enforce a field that is set refuses before anything runs.

    Sizes are in megabytes (2**20 bytes), times in seconds. `cwd` is a path inside the sandbox, the workspace if None.
    `env` is added to a small fixed environment; nothing of the caller's own environment is passed on.
    """

    image: str | None = None
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    network: NetworkMode = "full"
    allow_hosts: tuple[str, ...] = ()
    cpu: float | None = None
    memory_mb: int | None = None
    pids: int | None = None
    disk_mb: int | None = None
    file_size_mb: int | None = None
    isolation: IsolationLevel = "none"
    timeout: float = 120.0
    """Seconds a command may run when a call names no timeout."""
    lifetime: float = 3600.0
    """Idle seconds after which the backend may remove the sandbox."""
    output_limit: int = 65536
    """Bytes kept of each end (head and tail) of each output stream of a command."""
    rollout_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecResult:
    """What a command did.

    `exit_code` is bash's: 128+n after signal n, 124 after a timeout, 126 when `cwd` cannot be entered. `output` is
    stdout and stderr merged in the order of the writes as far as the backend can tell it, decoded with replacement.
    When `truncated`, the middle is missing and a line in the text says how much (`omitted_bytes`, over both streams).
    """

    exit_code: int
    stdout: bytes = b""
    stderr: bytes = b""
    output: str = ""
    timed_out: bool = False
    truncated: bool = False
    omitted_bytes: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStat:
    """One file-system entry. `path` is as asked for; `kind` follows no symlink in listings and follows in `stat`."""

    path: str
    kind: Literal["file", "directory", "symlink", "other"]
    size: int
    mode: int
    mtime: float


@runtime_checkable
class Sandbox(Protocol):
    """A place where one rollout's commands run, with state that is kept from command to command.

    Paths are absolute or relative to the workspace. File calls raise the built-in `FileNotFoundError`,
    `IsADirectoryError`, `NotADirectoryError` and `PermissionError`; a sandbox that went away raises `SandboxLostError`.
    All methods must be called on the event loop that opened the sandbox. Cancelling a call kills what it started and
    leaves the sandbox usable.
    """

    @property
    def id(self) -> str:
        """Unique name of the sandbox."""
        ...

    @property
    def workspace(self) -> str:
        """Absolute path, inside the sandbox, of the directory the rollout works in."""
        ...

    @property
    def provenance(self) -> Mapping[str, Any]:
        """What is recorded with the rollout: at least backend, isolation and network."""
        ...

    async def exec(
        self,
        command: str,
        *,
        timeout: float | None = None,
        stdin: bytes | str | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> ExecResult:
        """Run a bash command in the session; cwd, exports and functions survive. `cwd` and `env` hold for this call."""
        ...

    async def read_file(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """Return the bytes of a file, or a range of them."""
        ...

    async def write_file(self, path: str, data: bytes | str, *, mode: int | None = None) -> None:
        """Replace a file's content, creating parent directories; text is encoded as UTF-8."""
        ...

    async def stat(self, path: str) -> FileStat:
        """Describe what a path points to."""
        ...

    async def list_dir(self, path: str = ".") -> list[FileStat]:
        """Describe the entries of a directory, sorted by name; `path` of each is its name."""
        ...

    async def remove(self, path: str) -> None:
        """Delete a file, a symlink or a whole directory."""
        ...

    async def renew(self) -> None:
        """Kill every process of the sandbox and start a new agent; files stay, session state does not."""
        ...

    async def aclose(self) -> None:
        """Kill everything and remove the sandbox; safe to call twice and while calls are in flight."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@runtime_checkable
class TerminalBackend(Protocol):
    """Opens sandboxes. One object per runtime, shared by its rollouts; `Options` (pydantic) are its constructor's."""

    async def check(self, spec: SandboxSpec) -> None:
        """Raise `SandboxRefusedError` or `BackendError` unless `spec` can be had here, by trying; once a run."""
        ...

    async def open(self, spec: SandboxSpec) -> Sandbox:
        """Create a sandbox; when cancelled, nothing is left behind."""
        ...

    async def aclose(self) -> None:
        """Close every sandbox that is still open."""
        ...
