"""Gemma 4's `final` channel, which models put around an answer as they put one around thoughts.

Its marks are framing.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from typing import ClassVar, Final

from hermes_core.contracts.parsing import ParseMode, ToolSchema
from hermes_parsers.engine.scanning.parser import ScanningParser
from hermes_parsers.engine.scanning.scan import cut
from hermes_parsers.engine.scanning.spans import Span
from hermes_parsers.engine.scanning.stream import ScanStream

_OPENING: Final = "<|channel>final"
FINAL_CHANNEL: Final = rf"{re.escape(_OPENING)}(?!\w)|{re.escape(_OPENING[0])}{cut(_OPENING[1:])}"
_IS_FINAL: Final = re.compile(rf"{re.escape(_OPENING)}(?!\w)\n?").match


class ChannelStream(ScanStream):
    """Treats the marks of the `final` channel as framing wherever they occur, since they are special tokens."""

    own_blocks: ClassVar[bool] = True

    def __init__(self, parser: ScanningParser, tools: Sequence[ToolSchema] | None, mode: ParseMode) -> None:
        super().__init__(parser, tools, mode)
        self._is_final_channel = False

    def _read_tag(self, told: int, start: int, mark: str) -> Generator[str, None, int]:
        if not self._is_final_channel or mark != self._parser.thinking[mark].closing:
            return (yield from super()._read_tag(told, start, mark))
        self._is_final_channel = False
        return self._frame(self._text(told, start), start + len(mark))

    def _block(self, told: int, start: int) -> Generator[str, None, int]:
        scan = self._scan
        if scan.text.startswith(_OPENING, start):
            return (yield from self._begin(told, start))
        if not scan.final:
            return (yield from super()._block(told, start))
        first = len(scan.drafts)
        end = self._parser.read_now(scan, start)
        if not self._parser.is_left(scan, start, end):
            end = yield from self._parser.read_block(scan, start, end)
        return self._take_all(first, told, start, end)

    def _begin(self, told: int, start: int) -> Generator[str, None, int]:
        scan = self._scan
        while len(scan.text) == start + len(_OPENING) and not scan.final:
            yield ""
        found = _IS_FINAL(scan.text, start)
        if found is None:
            return -1
        self._is_final_channel = True
        return self._frame(told if self._begins(told, start) else self._text(told, start), found.end())

    def _frame(self, start: int, end: int) -> int:
        """Add a mark to the reasoning or the call before it, or else as a reasoning segment without reasoning."""
        if self._spans and self._spans[-1].kind != "text":
            self._spans[-1].end = self._base + end
        else:
            self._spans.append(Span("reasoning", self._base + start, self._base + end))
        return end
