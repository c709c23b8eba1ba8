"""One command's output, as it would be read on an endless sheet: progress bars and colours resolved, lines whole."""

from __future__ import annotations

from typing import Final

from hermes_tools.interactive.screen import TerminalScreen

OUTPUT_LIMIT: Final = 50_000
_HEAD_SHARE: Final = 0.4
_PRELUDE_LIMIT: Final = 1 << 20


class Recording:
    """Records from the mark where the command begins; without one, from the moment it was typed."""

    def __init__(self, *, rows: int, cols: int) -> None:
        self._sheet = TerminalScreen(rows=rows, cols=cols)
        self._prelude: bytearray | None = bytearray()
        self.missed = 0

    def begin(self) -> None:
        """What came before was the echo of what was typed."""
        self._prelude = None

    def add(self, data: bytes) -> None:
        """Take the next bytes."""
        if self._prelude is None:
            self._sheet.feed(data)
        else:
            self._prelude += data[: _PRELUDE_LIMIT - len(self._prelude)]

    def skip(self, count: int) -> None:
        """Take note that bytes were not kept; where the command begins, if it was among them, is here."""
        self.missed += count
        self.begin()

    def text(self) -> str:
        """Return what was recorded, head and tail of it when it is long, and every omission said."""
        if self._prelude:
            self._sheet.feed(bytes(self._prelude))
            self.begin()
        text = _shortened(self._sheet.entire().strip("\n"))
        if self._sheet.dropped:
            text = f"[... {self._sheet.dropped} lines before this are not kept ...]\n{text}"
        if self.missed:
            text = f"[... {self.missed} bytes of the output came too fast and were not kept ...]\n{text}"
        return text


def _shortened(text: str) -> str:
    if len(text) <= OUTPUT_LIMIT:
        return text
    head = int(OUTPUT_LIMIT * _HEAD_SHARE)
    tail = len(text) - (OUTPUT_LIMIT - head)
    notice = f"[OUTPUT TRUNCATED - {tail - head} of {len(text)} characters omitted here]"
    return f"{text[:head]}\n{notice}\n{text[tail:]}"
