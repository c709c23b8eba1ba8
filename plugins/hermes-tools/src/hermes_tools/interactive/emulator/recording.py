"""One command's output, as it would be read on an endless sheet: progress bars and colours resolved, lines whole."""

from __future__ import annotations

from typing import Final

from hermes_tools.interactive.emulator.screen import TerminalScreen

OUTPUT_LIMIT: Final = 50_000
_HEAD_SHARE: Final = 0.4
_MOST_WORK: Final = 2_000_000


class Recording:
    """Records from the mark where the command begins; without one, from the moment it was typed."""

    def __init__(self, *, rows: int, cols: int) -> None:
        self._size = rows, cols
        self._has_begun = False
        self._begin_sheet()
        self.missed = 0

    def _begin_sheet(self) -> None:
        rows, cols = self._size
        self._sheet = TerminalScreen(rows=rows, cols=cols)

    @property
    def is_behind(self) -> bool:
        """Whether something was taken that is not text yet."""
        return self._sheet.is_behind

    def begin(self) -> None:
        """What came before was the echo of what was typed."""
        if not self._has_begun:
            self._begin_sheet()
        self._has_begun = True

    def add(self, data: bytes) -> None:
        """Take the next bytes, of which `work` makes text."""
        self._sheet.take(data)

    def work(self, amount: int) -> int:
        """Make text of what was taken, as `TerminalScreen.work` does; return how much work it was."""
        return self._sheet.work(amount)

    def drop(self) -> None:
        """Forget what was taken and not made text of, and say so in the text."""
        self.missed += self._sheet.drop()

    def skip(self, count: int) -> None:
        """Take note that bytes were not kept; where the command begins, if it was among them, is here."""
        self.missed += count
        self.begin()

    def text(self) -> str:
        """Return what was recorded, head and tail of it when it is long, and every omission said."""
        self.work(_MOST_WORK)
        if self.is_behind:
            self.drop()
        text = _shorten(self._sheet.entire().strip("\n"))
        if self._sheet.dropped:
            text = f"[... {self._sheet.dropped} lines before this are not kept ...]\n{text}"
        if self.missed:
            text = f"[... {self.missed} bytes of the output came too fast or were too much work to show ...]\n{text}"
        return text


def _shorten(text: str) -> str:
    if len(text) <= OUTPUT_LIMIT:
        return text
    head = int(OUTPUT_LIMIT * _HEAD_SHARE)
    tail = len(text) - (OUTPUT_LIMIT - head)
    notice = f"[OUTPUT TRUNCATED - {tail - head} of {len(text)} characters omitted here]"
    return f"{text[:head]}\n{notice}\n{text[tail:]}"
