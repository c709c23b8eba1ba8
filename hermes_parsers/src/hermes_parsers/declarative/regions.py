"""What a template puts into text besides calls: fields with marks of their own, and marks that are no content."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from hermes_parsers.declarative.patterns.delimiters import Delimiter
from hermes_parsers.declarative.template import TextField
from hermes_parsers.engine.scanning.reader import FormatReader
from hermes_parsers.engine.scanning.scan import Marks, Scan, Wait, sees


class Regions(NamedTuple):
    """What the stream handles besides calls: fields with marks of their own, and marks that are no content.

    `silent` are the latter, the longest first; `alone` those of them that nothing else can begin with.
    """

    fields: tuple[tuple[TextField, bool], ...]
    ends: Mapping[TextField, Marks]
    silent: tuple[str, ...]
    alone: tuple[str, ...]
    leading: tuple[Delimiter, ...]

    def begin(self, scan: Scan, told: int, start: int) -> Wait:
        """Return where the opening with a mark at `start` begins: text in front of the mark can belong to it."""
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
    """A reader of a format that has regions; to be named before the base of the format's parser."""

    regions: Regions
