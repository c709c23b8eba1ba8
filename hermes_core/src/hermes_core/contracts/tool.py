"""The contract of a tool, and of the context that tools and verifiers get."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, runtime_checkable

from hermes_core.contracts.sandbox import FileStat, Sandbox
from hermes_core.contracts.verifier import Score

FOREGROUND_MAX_TIMEOUT: Final = 600
"""The longest time in seconds that the tool `terminal` waits for a command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """The answer of a tool.

    `content` is the text the model reads. `error` marks the call as failed in the rollout's record (a command that
    exits 1 is no error). `data` stays outside the conversation.
    """

    content: str
    error: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class Tool(Protocol):
    """A tool. One object per runtime, shared by all rollouts: keep per-rollout state in `context.state`.

    `call` may be a coroutine function, or an ordinary one, which then runs in a worker thread and receives the
    synchronous context. `arguments` are validated against the spec's JSON schema and coerced beforehand.
    """

    def call(self, arguments: dict[str, Any], context: Any) -> ToolResult | Awaitable[ToolResult]:
        """Run the tool."""


class ToolContext(Protocol):
    """One rollout's handle on its sandbox and on every installed tool; the same for tools and verifiers.

    The synchronous twin has the same methods without `await` and may be used from worker threads only.

    The dictionary answers have the keys `exit_code`, `output`, `error`, `content`, `success`, `bytes`. The raw
    file methods (`read_bytes` … `list_dir`) go to the sandbox, never through the model's tools. Paths in the sandbox
    are absolute or relative to its workspace, wherever the session is.
    """

    rollout_id: str
    task_id: str
    trajectory_id: str
    session_key: str
    """A label on the background processes that the rollout starts; "" for none."""

    @property
    def state(self) -> MutableMapping[str, Any]:
        """State that tools and verifiers keep for this rollout, each under its own key."""

    @property
    def sandbox(self) -> Sandbox:
        """The rollout's sandbox; raises a `BackendError` if neither a tool nor the verifier declares one."""

    @property
    def processes(self) -> Any:
        """The rollout's background processes: a `hermes_tools.RolloutProcesses`, with coroutine methods.

        A synchronous plugin calls the tool `process` instead.
        """

    def service(self, name: str) -> Any:
        """Return the rollout's view of a `RuntimeService`; only on the runtime's event loop, like `processes`."""

    async def terminal(self, command: str, timeout: float = 180) -> dict[str, Any]:
        """Run a command in the rollout's session: `exit_code`, `output`, and `error` when there is one."""

    async def read_file(self, path: str) -> dict[str, Any]:
        """Call the tool `read_file`."""

    async def write_file(self, path: str, content: str) -> dict[str, Any]:
        """Call the tool `write_file`."""

    async def search(self, query: str, path: str = ".") -> dict[str, Any]:
        """Call the tool `search_files` on file contents."""

    async def web_search(self, query: str) -> dict[str, Any]:
        """Call the tool `web_search`."""

    async def web_extract(self, urls: list[str]) -> dict[str, Any]:
        """Call the tool `web_extract`."""

    async def browser_navigate(self, url: str) -> dict[str, Any]:
        """Call the tool `browser_navigate`."""

    async def browser_snapshot(self) -> dict[str, Any]:
        """Call the tool `browser_snapshot`."""

    async def call_tool(self, tool_name: str, arguments: dict[str, Any]) -> str:
        """Call any installed tool, also one the model was not offered; returns what the model would read."""

    async def upload_file(self, local_path: str, remote_path: str) -> dict[str, Any]:
        """Copy a file into the sandbox: `exit_code` 0 or -1, `output`."""

    async def upload_dir(self, local_dir: str, remote_dir: str) -> list[dict[str, Any]]:
        """Copy a directory tree into the sandbox; one answer per file."""

    async def download_file(self, remote_path: str, local_path: str) -> dict[str, Any]:
        """Copy a file out of the sandbox: `success` with `bytes`, or `error`."""

    async def download_dir(self, remote_dir: str, local_dir: str) -> list[dict[str, Any]]:
        """Copy a directory tree out of the sandbox; one answer per file."""

    async def read_bytes(self, path: str) -> bytes:
        """Return a file's bytes."""

    async def read_text(self, path: str) -> str:
        """Return a file's text, UTF-8 with replacement."""

    async def write_bytes(self, path: str, data: bytes) -> None:
        """Replace a file's content."""

    async def exists(self, path: str) -> bool:
        """Tell whether a path exists."""

    async def stat(self, path: str) -> FileStat:
        """Describe a path."""

    async def list_dir(self, path: str = ".") -> list[FileStat]:
        """Describe the entries of a directory."""

    async def verify(self, name: str, options: Mapping[str, Any] | None = None) -> Score:
        """Score with another verifier by name, for composition."""

    async def cleanup(self) -> None:
        """Release everything of this rollout; the engine calls this if no other code has."""


class RuntimeService(Protocol):
    """State that tools keep for all rollouts of a `Runtime`; made from the runtime, used on its event loop."""

    def for_rollout(self, context: ToolContext) -> Any:
        """Return one rollout's view, which gives no access to other rollouts."""

    async def release(self, rollout_id: str, sandbox_id: str | None = None) -> None:
        """Release what belongs to a rollout, or to one of its sandboxes, which is about to be closed."""

    async def aclose(self) -> None:
        """Release everything."""
