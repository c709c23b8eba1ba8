"""Records the output of one command as text, without colours and line wrapping; of progress bars it keeps the end."""

from __future__ import annotations

from typing import Final

from hermes_tools.interactive.emulator.screen import TerminalScreen

OUTPUT_LIMIT: Final = 50_000
_HEAD_SHARE: Final = 0.4
_MOST_WORK: Final = 2_000_000


class Recording:
    """Records from the mark at which the command begins, or without a mark from when it was typed."""

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
        """Whether there are bytes that `work` has not converted to text."""
        return self._sheet.is_behind

    def begin(self) -> None:
        """Start the command's own output. Drop the text so far, which is the echo of the typed command."""
        if not self._has_begun:
            self._begin_sheet()
        self._has_begun = True

    def add(self, data: bytes) -> None:
        """Add the next bytes, which `work` converts to text."""
        self._sheet.take(data)

    def work(self, amount: int) -> int:
        """Convert added bytes to text, like `TerminalScreen.work`. Return the amount of work that this took."""
        return self._sheet.work(amount)

    def drop(self) -> None:
        """Drop the bytes that have not been converted. The text reports their number."""
        self.missed += self._sheet.drop()

    def skip(self, count: int) -> None:
        """Count lost bytes. They can include the mark of the command's beginning, so the command begins here."""
        self.missed += count
        self.begin()

    def text(self) -> str:
        """Return the recorded text; if it is long, only its head and tail. Every omission is reported in the text."""
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
