"""A command that was typed at the shell's prompt: which part of the output is its own, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, final

from hermes_tools.interactive.session.shell_integration import Mark

if TYPE_CHECKING:
    from hermes_tools.interactive.emulator.recording import Recording


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandEnd:
    """How a command that was waited for stands; `exit_code` is None as long as it is not known."""

    state: Literal["finished", "running", "shell_ended"]
    exit_code: int | None
    output: str
    timed_out: bool = False


@final
class TypedCommand:
    """What was typed last by `run`, at prompt `number`, and what it writes."""

    def __init__(self, number: int, recording: Recording) -> None:
        self.number = number
        self.recording = recording
        self.is_closed = False
        self.is_repaired = False

    def passes(self, mark: Mark) -> None:
        """Take note of a place in the output."""
        if mark.kind == "D" and mark.number > self.number:
            self.is_closed = True
        elif mark.kind == "C" and mark.number == self.number and not self.is_closed:
            self.recording.begin()

    def add(self, data: bytes) -> None:
        """Take output, which is its own until its end."""
        if not self.is_closed:
            self.recording.add(data)

    def skip(self, count: int) -> None:
        """Take note that output was not kept."""
        if not self.is_closed:
            self.recording.skip(count)
