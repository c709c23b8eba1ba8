"""Converts terminal output to a screen and to the text of a command, on the event loop, in bounded steps."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Final, final

from hermes_tools.interactive.emulator.recording import Recording
from hermes_tools.interactive.emulator.screen import TerminalScreen
from hermes_tools.interactive.session import shell_integration as shell
from hermes_tools.interactive.session.prompt_command import TypedCommand

_BITE: Final = 1 << 13
_TURN: Final = 50_000
"""Work, about some milliseconds, after which other tasks of the event loop run. A short sequence can take as much."""
_END: Final = 1_000_000
"""Work reserved for the end of the output, which is what a person would see, independent of the output before."""


@final
class ShownOutput:
    """Keeps the screen and the recording of the current command, which show the output up to byte `offset`.

    Output that takes too much work is omitted from both and counted. Its marks are still processed.
    """

    def __init__(self, nonce: str, *, rows: int, cols: int) -> None:
        self.screen = TerminalScreen(rows=rows, cols=cols)
        self.offset = 0
        self.missed = 0
        self.marks = shell.MarkReader(nonce)
        self.command = TypedCommand(0, Recording(rows=rows, cols=cols))
        self._answers = b""

    def begin_command(self, number: int) -> TypedCommand:
        """Start to record the next command, which is typed at prompt `number`."""
        self.command = TypedCommand(number, Recording(rows=self.screen.rows, cols=self.screen.cols))
        return self.command

    def skip_to(self, start: int) -> None:
        """Move to byte `start` of the output, and count the bytes before it as missed: they are no longer kept."""
        if start > self.offset:
            self.missed += start - self.offset
            self.command.skip(start - self.offset)
        self.offset = start

    async def take(self, data: bytes, allowance: int, *, is_last: bool) -> int:
        """Show the next bytes with at most this work, and some more for the last of them. Return the work done."""
        spent = 0
        # The last bite always has the full size, because the end of the output has its reserved work. There is a bite
        # even without new bytes: a cancelled call can have left output that is not shown yet.
        ends = range(len(data) % _BITE or min(len(data), _BITE), len(data) + 1, _BITE)
        for start, end in pairwise([0, *ends]):
            self._sort(data[start:end])
            self.offset += end - start
            spent += await self._show(max(allowance - spent, _END if is_last and end == len(data) else 0))
        return spent

    def _sort(self, data: bytes) -> None:
        for part in self.marks.feed(data):
            if isinstance(part, shell.Mark):
                self.command.passes(part)
            else:
                self.screen.take(part)
                self.command.add(part)

    async def _show(self, allowance: int) -> int:
        spent, recording = 0, self.command.recording
        while spent < allowance and (self.screen.is_behind or recording.is_behind):
            spent += self.screen.work(_TURN) + recording.work(_TURN)
            await asyncio.sleep(0)
        self._drop()
        self._answers += self.screen.answers()
        return spent

    def _drop(self) -> None:
        # A sequence whose end has not arrived yet does not count as an omission.
        if self.screen.is_behind:
            self.missed += self.screen.drop()
        if self.command.recording.is_behind:
            self.command.recording.drop()

    def answers(self) -> bytes:
        """Return the terminal's answers to programs since the last call."""
        answers, self._answers = self._answers, b""
        return answers
