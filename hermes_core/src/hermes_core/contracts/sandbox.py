"""What a terminal backend and a sandbox must be, and what a run's config asks of them."""

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
    """What a rollout asks for. A backend that cannot enforce a field that is set refuses before anything runs.

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
    """None: the first level that the backend declares, its weakest; what was used is in the provenance."""
    session: SessionKind = "robust"
    """`robust`: a fresh bash per command with the state of the one before; `live`: one long bash with job control."""
    timeout: float = 120.0
    """Seconds a command may run when a call names no timeout."""
    lifetime: float = 3600.0
    """Idle seconds after which the sandbox ends; a call in flight and a running process are no idleness."""
    output_limit: int = 65536
    """Bytes kept of each end (head and tail) of each output stream of a command."""
    user: str | None = None
    """Whose the commands are, by a name or uid[:gid] of the image; the backend's choice if None."""
    as_image: bool = False
    """Whether a backend that can tell follows the image: its user, if `user` is None, and its working directory."""
    wishes: tuple[str, ...] = ()
    """Fields that a sandbox does without where they cannot be enforced, which is said once and recorded."""
    rollout_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecResult:
    """What a command did.

    `exit_code` is bash's: 128+n after signal n, 124 after a timeout, 126 when `cwd` cannot be entered. Both streams
    keep what they had before a timeout. `output` is the two merged in the order of the writes as far as the backend can
    tell it, decoded with replacement. When `truncated`, the middle is missing and a line in the text says how much
    (`omitted_bytes`, over both streams).
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

    `start` is greater than the offset that was asked for when what lay between is not kept any more. The offset for the
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
        """Start a bash command with the session's present directory, exports and functions, which it cannot change.

        Without `pty` its stdout and stderr are one pipe and its stdin another.
        """
        ...

    async def list(self) -> list[ProcessInfo]:
        """Return the running processes and those that have ended in the last 30 minutes, oldest first.

        Of the ended ones the last 64 are kept; a sandbox may refuse to run more than 64 with `ProcessLimitError`.
        """
        ...

    async def poll(self, process_id: str) -> ProcessInfo:
        """Describe one process."""
        ...

    async def read(self, process_id: str, *, offset: int = 0, limit: int = 65536) -> ProcessOutput:
        """Return output from byte `offset` on, at most `limit` bytes; a negative offset counts from the end."""
        ...

    async def wait(self, process_id: str, *, timeout: float | None = None) -> ProcessInfo:
        """Wait until it has ended, or `timeout` seconds; the answer says which."""
        ...

    async def write(self, process_id: str, data: bytes) -> int:
        """Write to its stdin or terminal and return the bytes taken; raises `BrokenPipeError` when nobody reads."""
        ...

    async def close_stdin(self, process_id: str) -> None:
        """End its input; a terminal gets the end-of-file character."""
        ...

    async def resize(self, process_id: str, *, rows: int, cols: int) -> None:
        """Change the size of its terminal."""
        ...

    async def kill(self, process_id: str, *, grace: float = 2.0) -> ProcessInfo:
        """End it and everything it started: SIGTERM, after `grace` seconds SIGKILL; returns what was observed.

        `running` in the answer is True when something could not be killed.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """What a copy has moved: `sha256` is of the file, or of the archive that a directory travelled in.

    `omitted` lists every entry that was not copied, with the reason: sockets and devices, what could not be read, what
    exceeded a limit.
    """

    files: int
    bytes: int
    sha256: str
    omitted: tuple[tuple[str, str], ...] = ()


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
        """What is recorded with the rollout, read at its end: at least backend, isolation and network."""
        ...

    async def exec(
        self,
        command: str,
        *,
        timeout: float | None = None,
        stdin: bytes | str | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        execution_id: str | None = None,
    ) -> ExecResult:
        """Run a bash command in the session; cwd, exports, functions and aliases survive.

        `cwd` and `env` hold for this call. One with the `execution_id` of an earlier call in this sandbox (the last 64
        are known) runs nothing and returns its result.
        """
        ...

    @property
    def processes(self) -> Processes:
        """The background processes of the sandbox."""
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

    async def upload(self, source: Path, path: str) -> Transfer:
        """Copy a file or a whole directory of this machine into the sandbox, in constant memory.

        A directory is merged into one that is there. Symlinks stay symlinks, modes and holes in files are kept.
        """
        ...

    async def download(self, path: str, target: Path, *, max_bytes: int | None = None) -> Transfer:
        """Copy a file or a whole directory out of the sandbox, in constant memory; see `upload`.

        What the sandbox sends cannot leave `target`. A file at `target` is replaced when all of it has arrived. More
        than `max_bytes`, of which every entry takes 4,096 besides its content, is an `OSError` with EFBIG.
        """
        ...

    async def archive(
        self, paths: Sequence[str], target: Path, *, max_bytes: int | None = None, max_entries: int | None = None
    ) -> Transfer:
        """Write files and directories of the sandbox to a .tar.gz of this machine, with an exact list of omissions."""
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
class Freezable(Protocol):
    """What a sandbox has besides that can make its workspace read-only; read-only verification needs it."""

    async def freeze(self) -> None:
        """Kill every process, make the workspace read-only for all that is started afterwards, start a new agent.

        Other directories stay writable. Raises `SandboxRefusedError` where that cannot be had.
        """
        ...


@runtime_checkable
class Recoverable(Protocol):
    """What a sandbox has besides that can go on where it was lost, but not its files."""

    @property
    def recoveries(self) -> int:
        """How often it has been started again."""
        ...

    async def recover(self, recoveries: int) -> str | None:
        """Start it again after a call was lost; return what a model has to know of that, also where another one did.

        `recoveries` is what there had been before the call. None where that cannot be done, or it is not lost.
        """
        ...


@runtime_checkable
class ChangesTaker(Protocol):
    """What a sandbox has besides that can be made like another one of its image, as far as a judge may trust that."""

    async def take_changes(self, source: Sandbox, path: str, *, kept: Iterable[str] = ()) -> str:
        """Make an absolute path what it is in `source`, and say what became of it; called before anything else is done.

        `/` is the workspace and all that differs. No program of the image, nothing that its programs load and none of
        their settings are taken over, but for what is named itself, and nothing in the absolute paths `kept`. What
        `source` says may be made up.
        """
        ...


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


@runtime_checkable
class RootBackend(TerminalBackend, Protocol):
    """What a backend has besides in whose sandboxes commands can be root, or own the system's files as root does."""

    def commands_are_root(self, spec: SandboxSpec) -> bool:
        """Tell whether they are in such a sandbox: then they can replace what a verifier executes there."""
        ...


@runtime_checkable
class BoundedBackend(TerminalBackend, Protocol):
    """What a backend has besides that has room for so many sandboxes at a time."""

    def capacity(self, spec: SandboxSpec) -> int | None:
        """Return how many sandboxes like this one it has room for, None where it knows no bound; after `check`."""
        ...


@runtime_checkable
class QueueingBackend(TerminalBackend, Protocol):
    """What a backend has besides that lets those who open a sandbox wait until there is room."""

    def has_queue(self, spec: SandboxSpec) -> bool:
        """Tell whether those who open such sandboxes wait in a queue of the backend's own; asked before each `open`.

        They then take none of the runtime's turns to start a sandbox, which would keep out who could start one.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBackends:
    """The answer to the hook `hermes_run_backends`.

    `backend` is the name of the run's own, `sandbox` what each of its sandboxes must be. `options` has, by the name of
    the backend, those of every backend that the config names, the run's own included. `plugins` are the config's
    settings of which plugins to load.
    """

    backend: str
    sandbox: SandboxSpec
    options: Mapping[str, Mapping[str, Any]]
    plugins: Mapping[str, Any] = field(default_factory=dict)
