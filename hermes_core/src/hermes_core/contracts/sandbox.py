"""The contracts of a terminal backend and its sandboxes, and what a run's config asks of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Protocol, Self, runtime_checkable

NetworkMode = Literal["none", "allowlist", "full"]
IsolationLevel = Literal["none", "bwrap", "container", "container+slot", "gvisor"]
SessionKind = Literal["robust", "live"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    """What a rollout asks for. A backend that cannot enforce a given field refuses before anything runs.

    Sizes are in megabytes (2**20 bytes), times in seconds. `cwd` is a path inside the sandbox, the workspace if None.
    `env` is added to a small fixed environment; nothing of the caller's own environment is passed on.
    """

    image: str | None = None
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    network: NetworkMode = "full"
    allow_hosts: tuple[str, ...] = ()
    """What `network="allowlist"` reaches: `example.org`, `*.example.org` (what is below it) or an address, optionally
    with `:port` (80 and 443 if not); `@private` at the end for names that lead to addresses which are not public."""
    cpu: float | None = None
    memory_mb: int | None = None
    pids: int | None = None
    disk_mb: int | None = None
    file_size_mb: int | None = None
    isolation: IsolationLevel | None = None
    """None means the first, weakest level that the backend declares; the provenance says which one was used."""
    session: SessionKind = "robust"
    """`robust`: a new bash for each command, with the state of the previous one; `live`: one bash with job control."""
    timeout: float = 120.0
    """Seconds a command may run when a call names no timeout."""
    lifetime: float = 3600.0
    """Idle seconds after which the sandbox ends; it is not idle during a call or while a process runs."""
    output_limit: int = 65536
    """Bytes kept of each end (head and tail) of each output stream of a command; merged streams are one."""
    user: str | None = None
    """The user that runs commands, as a name or uid[:gid] of the image; None leaves it to the backend."""
    as_image: bool = False
    """Whether to use the image's working directory and, if `user` is None, its user, where the backend knows them."""
    wishes: tuple[str, ...] = ()
    """Fields that are dropped where they cannot be enforced; that is logged once and recorded."""
    rollout_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecResult:
    """The result of a command.

    `exit_code` is bash's: 128+n after signal n, 124 after a timeout, 126 when `cwd` cannot be entered. Both streams
    keep what they had before a timeout. `output` is `stdout` and then `stderr`, decoded with replacement. Each stream
    has its own `SandboxSpec.output_limit`. When `truncated`, the middle of one is missing and a line in its place says
    how much (`omitted_bytes`, over both streams). After `exec(…, merge_stderr=True)` all is in `stdout`.
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
    """One file-system entry. `path` is as asked for, `mtime` in epoch seconds; symlinks are followed only in `stat`."""

    path: str
    kind: Literal["file", "directory", "symlink", "other"]
    size: int
    mode: int
    mtime: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessInfo:
    """A background process of a sandbox.

    `id` is unique within the sandbox, `pid` is the process's own inside it. `started_at` is in seconds since the epoch
    by the sandbox's clock. `exit_code` is bash's (128+n after signal n), None while it runs. `output_bytes` counts
    everything it has written, kept or not.
    """

    id: str
    command: str
    pid: int
    cwd: str
    pty: bool
    started_at: float
    running: bool
    exit_code: int | None = None
    output_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessOutput:
    """A piece of a process's output: `data` begins at byte `start` of everything it has written.

    `start` is greater than the requested offset if the bytes between are no longer kept. The offset for the
    next read is `start + len(data)`; each reader keeps its own.
    """

    data: bytes
    start: int
    total: int
    running: bool


@runtime_checkable
class Processes(Protocol):
    """One sandbox's background processes; they end with it and with `renew`. Unknown ids raise `ProcessLookupError`."""

    async def start(
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        pty: bool = False,
        rows: int = 30,
        cols: int = 120,
    ) -> ProcessInfo:
        """Start a bash command with the session's current directory, exports and functions, which it cannot change.

        Without `pty` its stdout and stderr are one pipe and its stdin another.
        """

    async def list(self) -> list[ProcessInfo]:
        """Return the running processes and those that ended in the last 30 minutes, oldest first.

        At most 64 ended ones are kept; a sandbox may refuse to run more than 64 with `ProcessLimitError`.
        """

    async def poll(self, process_id: str) -> ProcessInfo:
        """Describe one process."""

    async def read(self, process_id: str, *, offset: int = 0, limit: int = 65536) -> ProcessOutput:
        """Return output from byte `offset` on, at most `limit` bytes; a negative offset counts from the end."""

    async def wait(self, process_id: str, *, timeout: float | None = None) -> ProcessInfo:
        """Wait until it has ended, or `timeout` seconds; the answer says which."""

    async def write(self, process_id: str, data: bytes) -> int:
        """Write to its stdin or terminal and return the bytes taken; raises `BrokenPipeError` if it is closed."""

    async def close_stdin(self, process_id: str) -> None:
        """Close its input; a terminal gets the end-of-file character."""

    async def resize(self, process_id: str, *, rows: int, cols: int) -> None:
        """Change the size of its terminal."""

    async def kill(self, process_id: str, *, grace: float = 2.0) -> ProcessInfo:
        """End it and everything it started: SIGTERM, after `grace` seconds SIGKILL; returns its final state.

        `running` in the answer is True when something could not be killed.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """The result of a copy: `sha256` is of the file, or of the archive in which a directory was sent.

    `omitted` lists every entry that was not copied, with the reason: sockets and devices, what could not be read, what
    exceeded a limit.
    """

    files: int
    bytes: int
    sha256: str
    omitted: tuple[tuple[str, str], ...] = ()


@runtime_checkable
class Sandbox(Protocol):
    """The place where one rollout's commands run; its session keeps state from command to command.

    Paths are absolute or relative to the workspace. File calls raise the built-in `FileNotFoundError`,
    `IsADirectoryError`, `NotADirectoryError` and `PermissionError`; a lost sandbox raises `SandboxLostError`.
    All methods must be called on the event loop that opened the sandbox. Cancelling a call kills what it started and
    leaves the sandbox usable.
    """

    @property
    def id(self) -> str:
        """Unique name of the sandbox."""

    @property
    def workspace(self) -> str:
        """Absolute path, inside the sandbox, of the directory the rollout works in."""

    @property
    def provenance(self) -> Mapping[str, Any]:
        """What is recorded with the rollout, read at its end: at least backend, isolation and network."""

    async def exec(
        self,
        command: str,
        *,
        timeout: float | None = None,
        stdin: bytes | str | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        merge_stderr: bool = False,
        execution_id: str | None = None,
    ) -> ExecResult:
        """Run a bash command in the session; cwd, exports, functions and aliases survive.

        `cwd` and `env` apply to this call. `merge_stderr` gives the command one pipe for both streams, so that their
        writes keep their exact order. A call with the `execution_id` of an earlier one in this sandbox (the last 64 are
        known) runs nothing and returns its result.
        """

    @property
    def processes(self) -> Processes:
        """The background processes of the sandbox."""

    async def read_file(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """Return the bytes of a file, or a range of them."""

    async def write_file(self, path: str, data: bytes | str, *, mode: int | None = None) -> None:
        """Replace a file's content, creating parent directories; text is encoded as UTF-8."""

    async def stat(self, path: str) -> FileStat:
        """Describe what a path points to."""

    async def list_dir(self, path: str = ".") -> list[FileStat]:
        """Describe the entries of a directory, sorted by name; `path` of each is its name."""

    async def remove(self, path: str) -> None:
        """Delete a file, a symlink or a whole directory."""

    async def upload(self, source: Path, path: str) -> Transfer:
        """Copy a file or a whole directory of this machine into the sandbox, in constant memory.

        A directory is merged into an existing one. Symlinks stay symlinks; modes and holes in files are kept.
        """

    async def download(self, path: str, target: Path, *, max_bytes: int | None = None) -> Transfer:
        """Copy a file or a whole directory out of the sandbox, in constant memory; see `upload`.

        What the sandbox sends cannot leave `target`. A file at `target` is replaced when all of it has arrived. More
        than `max_bytes`, of which every entry takes 4,096 besides its content, is an `OSError` with EFBIG.
        """

    async def archive(
        self, paths: Sequence[str], target: Path, *, max_bytes: int | None = None, max_entries: int | None = None
    ) -> Transfer:
        """Write files and directories of the sandbox to a .tar.gz of this machine, with an exact list of omissions."""

    async def renew(self) -> None:
        """Kill every process of the sandbox and start a new agent; files stay, session state does not."""

    async def aclose(self) -> None:
        """Kill everything and remove the sandbox; safe to call twice and while calls are in flight."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@runtime_checkable
class Freezable(Protocol):
    """A sandbox that can make its workspace read-only; read-only verification needs this."""

    async def freeze(self) -> None:
        """Kill every process, make the workspace read-only for everything started afterwards, start a new agent.

        Other directories stay writable. Raises `SandboxRefusedError` if that is not possible.
        """


@runtime_checkable
class Recoverable(Protocol):
    """A sandbox that can be started again after it was lost while its files were kept."""

    @property
    def recoveries(self) -> int:
        """How often it was started again."""

    async def recover(self, recoveries: int) -> str | None:
        """Start it again after a call was lost; return what to tell the model, also if another caller restarted it.

        `recoveries` is the count before the lost call. Returns None if it cannot be restarted, or is not lost.
        """


@runtime_checkable
class ChangesTaker(Protocol):
    """A sandbox that can take over the changes of another one of its image, as far as a verifier may trust them."""

    async def take_changes(self, source: Sandbox, path: str, *, kept: Iterable[str] = ()) -> str:
        """Make an absolute path what it is in `source`, and return what was done; call it before anything else.

        `/` means the workspace and all that differs. No program of the image, no library and none of
        their settings are taken over unless named itself, and nothing in the absolute paths `kept`. What
        `source` reports may be forged.
        """


@runtime_checkable
class TerminalBackend(Protocol):
    """Opens sandboxes. One object per runtime, shared by its rollouts; `Options` (pydantic) are its constructor's."""

    async def check(self, spec: SandboxSpec) -> None:
        """Try to make such a sandbox, once a run; raise `SandboxRefusedError` or `BackendError` if that fails."""

    async def open(self, spec: SandboxSpec) -> Sandbox:
        """Create a sandbox; when cancelled, nothing is left behind."""

    async def aclose(self) -> None:
        """Close every sandbox that is still open."""


@runtime_checkable
class RootBackend(TerminalBackend, Protocol):
    """A backend whose sandboxes can run commands as root, or as the owner of the system's files."""

    def commands_are_root(self, spec: SandboxSpec) -> bool:
        """Tell whether they do so in such a sandbox: then they can replace the programs that a verifier runs there."""


@runtime_checkable
class BoundedBackend(TerminalBackend, Protocol):
    """A backend that knows how many sandboxes it has room for at a time."""

    def capacity(self, spec: SandboxSpec) -> int | None:
        """Return how many sandboxes like this one fit, None for no known bound; called after `check`."""


@runtime_checkable
class QueueingBackend(TerminalBackend, Protocol):
    """A backend that lets callers of `open` wait in a queue until there is room."""

    def has_queue(self, spec: SandboxSpec) -> bool:
        """Tell whether opening such a sandbox may wait in the backend's queue; asked before each `open`.

        The caller then takes none of the runtime's start slots, so that waiting here blocks no other start.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBackends:
    """The answer to the hook `hermes_run_backends`.

    `backend` is the name of the run's backend, `sandbox` the spec of its sandboxes. `options` has, by the name of
    the backend, the options of every backend that the config names, the run's included. `plugins` is the config's
    section about plugins.
    """

    backend: str
    sandbox: SandboxSpec
    options: Mapping[str, Mapping[str, Any]]
    plugins: Mapping[str, Any] = field(default_factory=dict)
