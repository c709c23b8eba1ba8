"""Parts of a text besides calls: fields between marks, and marks that are not content."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from hermes_parsers.declarative.patterns.delimiters import Delimiter
from hermes_parsers.declarative.template import TextField
from hermes_parsers.engine.scanning.reader import FormatReader
from hermes_parsers.engine.scanning.scan import Marks, Scan, Wait, sees


class Regions(NamedTuple):
    """What the stream handles besides calls: fields between marks, and marks that are not content.

    `silent` are the latter, the longest first; `alone` are those with which nothing else can begin.
    """

    fields: tuple[tuple[TextField, bool], ...]
    ends: Mapping[TextField, Marks]
    silent: tuple[str, ...]
    alone: tuple[str, ...]
    leading: tuple[Delimiter, ...]

    def begin(self, scan: Scan, told: int, start: int) -> Wait:
        """Return where the opening with a mark at `start` begins: text before the mark can belong to it."""
        for opening in self.leading if told < start else ():
            end = yield from opening.match(scan, start)
            if end >= 0 and (yield from opening.match(scan, told)) == end:
                return told
        return start

    def match_opening(self, field: TextField, scan: Scan, at: int) -> Wait:
        """Return where the opening of a field that begins here ends, or -1."""
        if field.header is not None:
            return (yield from field.header.match(scan, at))
        for opening in field.openings:
            if (yield from sees(scan, opening, at)):
                return at + len(opening)
        return -1


class RegionReader(FormatReader):
    """A mixin for the reader of a format with regions. List it before the format's parser base."""

    regions: Regions
