"""A background process as a rollout sees it: its owner, how it ended, and its output as text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

from hermes_core.contracts.sandbox import ProcessInfo, ProcessOutput
from hermes_tools.command_output import without_escapes
from hermes_tools.unfinished_output import count_unfinished_bytes

MAX_OUTPUT_CHARS: Final = 200_000
_WIDEST: Final = 4
"""Maximum length of a UTF-8 character in bytes."""

CompletionReason = Literal["exited", "killed", "lost"]
PidScope = Literal["host", "sandbox"]


class ProcessSource(Protocol):
    """Access to a process: the `Processes` of a sandbox, or the `DetachedProcess` itself after a recovery."""

    async def poll(self, process_id: str) -> ProcessInfo:
        """Describe the process."""
        ...

    async def read(self, process_id: str, *, offset: int = 0, limit: int = 65536) -> ProcessOutput:
        """Return a part of its output."""
        ...

    async def wait(self, process_id: str, *, timeout: float | None = None) -> ProcessInfo:
        """Wait until it ends."""
        ...

    async def write(self, process_id: str, data: bytes) -> int:
        """Write to its input and return the number of bytes that it took."""
        ...

    async def close_stdin(self, process_id: str) -> None:
        """Close its input."""
        ...

    async def kill(self, process_id: str, *, grace: float = 2.0) -> ProcessInfo:
        """Kill it."""
        ...


@dataclass(slots=True, kw_only=True, eq=False)
class ProcessSession:
    """A process in the registry. `source` knows it by `source_id`."""

    id: str
    command: str
    task_id: str
    session_key: str
    pid: int
    cwd: str
    started_at: float
    source: ProcessSource
    source_id: str
    pty: bool = False
    detached: bool = False
    pid_scope: PidScope = "sandbox"
    pid_start: int | None = None
    """Start time in ticks since boot, unique together with the pid. None if the pid is one inside a sandbox."""
    sandbox_id: str = ""
    check_interval: float | None = None
    notify_on_complete: bool = False
    watch_patterns: tuple[str, ...] = ()
    exited: bool = False
    exit_code: int | None = None
    ended_at: float | None = None
    completion_reason: CompletionReason | None = None
    termination_source: str | None = None
    _cursors: dict[str, int] = field(default_factory=dict)

    @property
    def status(self) -> str:
        """The tool's word for the state: `running` or `exited`."""
        return "exited" if self.exited else "running"

    def end(self, reason: CompletionReason, exit_code: int | None, now: float) -> bool:
        """Record the end of the process. Return False if it was recorded before."""
        if self.exited:
            return False
        killed = reason == "exited" and self.termination_source is not None
        self.completion_reason = "killed" if killed else reason
        self.exited, self.exit_code, self.ended_at = True, exit_code, now
        return True

    async def tail(self, characters: int = MAX_OUTPUT_CHARS) -> str:
        """Return the last characters of its output."""
        text, _ = await self.read_tail(characters)
        return text

    async def read_tail(self, characters: int = MAX_OUTPUT_CHARS) -> tuple[str, int]:
        """Return the last characters of its output, and how many bytes at its beginning are no longer available."""
        size = characters * _WIDEST
        output = await self.source.read(self.source_id, offset=-size, limit=size)
        return _readable(output.data, cut=output.start > 0)[-characters:], output.start

    async def news(self, consumer: str, characters: int) -> tuple[str, int]:
        """Return the end of the output that is new to this consumer, and how many new bytes before it were omitted."""
        seen = self._cursors.get(consumer, 0)
        total = (await self.source.poll(self.source_id)).output_bytes
        size = characters * _WIDEST
        output = await self.source.read(self.source_id, offset=max(seen, total - size), limit=size)
        held = count_unfinished_bytes(output.data) if output.running else 0
        data = output.data[: len(output.data) - held]
        self._cursors[consumer] = output.start + len(data)
        whole = _readable(data, cut=output.start > seen)
        shown = whole[-characters:]
        return shown, max(0, output.start - seen) + len(whole[: len(whole) - len(shown)].encode())


def _readable(data: bytes, *, cut: bool) -> str:
    if cut:
        # The data can begin in the middle of a character.
        data = data[next((i for i, byte in enumerate(data[:3]) if byte & 0xC0 != 0x80), min(3, len(data))) :]
    return without_escapes(data.decode(errors="replace")).replace("\r\n", "\n")
