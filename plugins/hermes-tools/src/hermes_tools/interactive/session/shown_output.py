"""What a terminal has written, made a screen and a command's text on the event loop, in bounded pieces of work."""

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
"""Work, some milliseconds of it, after which the event loop gets its turn; a short sequence may be as much."""
_END: Final = 1_000_000
"""Work that the end of the output is worth, whatever came before: it is what a person would see."""


@final
class ShownOutput:
    """Keeps the screen and the present command's recording; `offset` is the place in the output up to where they are.

    What takes too much work is left out of them and counted. The marks in it are still heeded.
    """

    def __init__(self, nonce: str, *, rows: int, cols: int) -> None:
        self.screen = TerminalScreen(rows=rows, cols=cols)
        self.offset = 0
        self.missed = 0
        self.marks = shell.MarkReader(nonce)
        self.command = TypedCommand(0, Recording(rows=rows, cols=cols))
        self._answers = b""

    def begin_command(self, number: int) -> TypedCommand:
        """Record what is typed next, at prompt `number`."""
        self.command = TypedCommand(number, Recording(rows=self.screen.rows, cols=self.screen.cols))
        return self.command

    def skip_to(self, start: int) -> None:
        """Take note that the output is not kept up to there."""
        if start > self.offset:
            self.missed += start - self.offset
            self.command.skip(start - self.offset)
        self.offset = start

    async def take(self, data: bytes, allowance: int, *, is_last: bool) -> int:
        """Show the next bytes with so much work, and some more for the last of them; return how much it was."""
        spent = 0
        # The last bite is a whole one, however long the rest is: it is what the end of the output has its own work for.
        # One without news, too: a call that was cancelled may have left something to show.
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
        # A sequence whose end is still to come is no omission.
        if self.screen.is_behind:
            self.missed += self.screen.drop()
        if self.command.recording.is_behind:
            self.command.recording.drop()

    def answers(self) -> bytes:
        """Return what the terminal has answered to programs since this was last asked."""
        answers, self._answers = self._answers, b""
        return answers
