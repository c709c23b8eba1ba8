"""A command typed at the shell's prompt: its part of the output, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, final

from hermes_tools.interactive.session.shell_integration import Mark

if TYPE_CHECKING:
    from hermes_tools.interactive.emulator.recording import Recording


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandEnd:
    """State of a command after the wait for its end. `exit_code` is None if it is not known."""

    state: Literal["finished", "running", "shell_ended"]
    exit_code: int | None
    output: str
    timed_out: bool = False


@final
class TypedCommand:
    """The last command that `run` typed, at prompt `number`, and its output."""

    def __init__(self, number: int, recording: Recording) -> None:
        self.number = number
        self.recording = recording
        self.is_closed = False
        self.is_repaired = False

    def passes(self, mark: Mark) -> None:
        """Handle a mark in the output."""
        if mark.kind == "D" and mark.number > self.number:
            self.is_closed = True
        elif mark.kind == "C" and mark.number == self.number and not self.is_closed:
            self.recording.begin()

    def add(self, data: bytes) -> None:
        """Record output, until the command has ended."""
        if not self.is_closed:
            self.recording.add(data)

    def skip(self, count: int) -> None:
        """Count bytes of output that were lost, until the command has ended."""
        if not self.is_closed:
            self.recording.skip(count)
