"""The common scanner, extended for templates: content between marks, and marks that are not content."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import ClassVar

from hermes_core.contracts.parsing import ParseMode, ToolSchema
from hermes_parsers.declarative.regions import RegionReader
from hermes_parsers.declarative.template import TextField
from hermes_parsers.engine.scanning.scan import Marks
from hermes_parsers.engine.scanning.spans import Span
from hermes_parsers.engine.scanning.stream import ScanStream


class TemplateStream(ScanStream):
    """A parse in progress."""

    own_blocks: ClassVar[bool] = True

    def __init__(self, parser: RegionReader, tools: Sequence[ToolSchema] | None, mode: ParseMode) -> None:
        super().__init__(parser, tools, mode)
        self._template = parser.regions

    def _block(self, told: int, start: int) -> Generator[str, None, int]:
        scan, regions = self._scan, self._template
        if scan.text.startswith(regions.alone, start):
            return self._silence(told, start)
        begin = (yield from regions.begin(scan, told, start)) if regions.leading else start
        for field, is_content in regions.fields:
            end = yield from regions.match_opening(field, scan, begin)
            if end >= 0:
                return (yield from self._region(field, told, begin, end, is_content=is_content))
        end = yield from super()._block(told, begin)
        return self._silence(told, start) if end < 0 and scan.text.startswith(regions.silent, start) else end

    def _silence(self, told: int, start: int) -> int:
        """Consume a mark that is not content, and return where it ends."""
        mark = next(mark for mark in self._template.silent if self._scan.text.startswith(mark, start))
        self._mark(super()._text(told, start, before_call=True), start + len(mark))
        return start + len(mark)

    def _text(self, start: int, end: int, *, before_call: bool = False, is_last: bool = False) -> int:
        """Treat newlines before a call as part of the call.

        Metadata strips content, and templates put calls on separate lines.
        """
        if before_call:
            end = start + len(self._scan.text[start:end].rstrip("\n"))
        return super()._text(start, end, before_call=before_call, is_last=is_last)

    def _let_go(self, told: int) -> tuple[int, int]:
        if self._template.leading:
            # Any text could still be the beginning of an opening.
            return told, max(told, len(self._scan.text) - self._parser.marks.longest)
        return super()._let_go(told)

    def _region(
        self, field: TextField, told: int, start: int, body: int, *, is_content: bool
    ) -> Generator[str, None, int]:
        """Consume reasoning or content between its marks."""
        scan, ends = self._scan, self._template.ends[field]
        begin = self._text(told, start, before_call=True)
        if is_content:
            self._mark(begin, body)
            return (yield from self._content(field, ends, body))
        found = yield from ends.seek(scan, body)
        stop, end = (len(scan.text), len(scan.text)) if found is None else found.span()
        self._finish_thought(begin, body, stop, end)
        return end

    def _content(self, field: TextField, ends: Marks, told: int) -> Generator[str, None, int]:
        """Emit content as it arrives, without the space around it if the metadata strips it."""
        scan = self._scan
        at, is_begun = told, not field.strips
        while True:
            found = ends.search(scan.text, at)
            stop = found.start() if found else len(scan.text) if scan.final else ends.partial_start(scan.text, at)
            text = scan.text[told:stop]
            solid = text.rstrip() if field.strips or not (found or scan.final) else text
            if solid:
                begin = told if is_begun else told + len(text) - len(text.lstrip())
                self._mark(told, begin)
                told = self._text(begin, told + len(solid))
                is_begun = True
            if found or scan.final:
                end = found.end() if found else stop
                self._mark(told, end)
                return end
            at = stop
            yield ""

    def _mark(self, start: int, end: int) -> None:
        """Add a mark that is not content to the segment before it, or make it a separate segment next to text.

        That is a reasoning segment without reasoning, because a call segment would need an attempt.
        """
        if start == end:
            return
        if self._spans and self._spans[-1].kind != "text":
            self._spans[-1].end = self._base + end
        else:
            self._spans.append(Span("reasoning", self._base + start, self._base + end))
