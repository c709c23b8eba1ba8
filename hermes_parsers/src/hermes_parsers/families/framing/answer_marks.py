"""Marks that a template puts around an answer: they are framing, not content."""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from typing import ClassVar

from hermes_core.contracts.parsing import ParseMode, ToolSchema
from hermes_parsers.engine.scanning.parser import ScanningParser
from hermes_parsers.engine.scanning.scan import Scan, Wait, cut
from hermes_parsers.engine.scanning.spans import Span
from hermes_parsers.engine.scanning.stream import ScanStream


class AnswerStream(ScanStream):
    """Treats as framing an opening mark that only reasoning or calls precede, and the first closing one after it.

    Anywhere else, these marks are part of the answer.
    """

    own_blocks: ClassVar[bool] = True

    def __init__(self, parser: ScanningParser, tools: Sequence[ToolSchema] | None, mode: ParseMode) -> None:
        super().__init__(parser, tools, mode)
        assert isinstance(parser, AnsweringParser)
        self._opening, self._closing = parser.answer
        self._is_answer = False

    def _block(self, told: int, start: int) -> Generator[str, None, int]:
        text = self._scan.text
        if text.startswith(self._opening, start):
            return (yield from self._begin(told, start))
        end = start + text.startswith("\n", start)
        if not text.startswith(self._closing, end):
            return (yield from super()._block(told, start))
        if not self._is_answer:
            return -1
        self._is_answer = False
        return self._frame(self._text(told, start), end + len(self._closing))

    def _begin(self, told: int, start: int) -> Generator[str, None, int]:
        if self._is_answer or not self._begins(told, start):
            return -1
        self._is_answer = True
        scan, end = self._scan, start + len(self._opening)
        while end == len(scan.text) and not scan.final:
            yield ""
        return self._frame(told, end + scan.text.startswith("\n", end))

    def _frame(self, start: int, end: int) -> int:
        """Add a mark to the reasoning or the call before it, or else as a reasoning segment without reasoning."""
        if self._spans and self._spans[-1].kind != "text":
            self._spans[-1].end = self._base + end
        else:
            self._spans.append(Span("reasoning", self._base + start, self._base + end))
        return end


class AnsweringParser(ScanningParser):
    """Mixin that reads the marks in `answer` around the model's answer. List it before the format's base class."""

    stream_type: ClassVar[type[ScanStream]] = AnswerStream
    answer: ClassVar[tuple[str, str]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        marks = (cls.answer[0], cls.answer[1], f"\n{cls.answer[1]}")
        # No call follows these, so they cannot be openers.
        cls.pattern = "|".join([f"{re.escape(mark)}|{re.escape(mark[0])}{cut(mark[1:])}" for mark in marks])

    def read(self, scan: Scan, at: int) -> Wait:
        """Read the calls after their mark."""
        return (yield from super().read(scan, at)) if scan.text.startswith(self.openers, at) else -1

    def read_now(self, scan: Scan, at: int) -> int:
        """Read like `read`, without waiting."""
        return super().read_now(scan, at) if scan.text.startswith(self.openers, at) else -1
