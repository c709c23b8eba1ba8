"""The fast path for the usual case: a complete block of well-formed calls.

It accepts only blocks that the slow path (`markup.call_reader`, `markup.values`) reads in the same way, and nothing
unusual: the suite compares both for every way of cutting a text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from hermes_parsers.markup.dialect import Dialect
from hermes_parsers.markup.source import text_without

_SPACE: Final = "[ \t\n\r]*"
QuickCall = tuple[int, int, str, list[tuple[str, ...]]]
"""Where a call begins and ends, its name, and its parameters: name, attribute if the dialect has one, and text."""


class QuickReader:
    """Reads blocks of one dialect."""

    __slots__ = (
        "_after",
        "_close",
        "_head",
        "_is_blockless",
        "_is_nesting",
        "_next",
        "_opening",
        "_parameters",
        "_self_close",
        "_suffix",
    )

    def __init__(self, dialect: Dialect) -> None:
        self._is_blockless = not dialect.blocks
        self._is_nesting = bool(dialect.element)
        self._opening = dialect.call.opening
        self._close = dialect.call_close
        self._suffix = dialect.suffix
        self._self_close = dialect.call.self_close
        prefix = f"(?:{re.escape(dialect.prefix)}{_SPACE})?" if dialect.prefix else ""
        call = f"{prefix}({dialect.call.pattern}){_SPACE}"
        self._head = re.compile(f"{_any_of([opening for opening, _ in dialect.blocks])}{_SPACE}{call}").match
        self._next = re.compile(f"{_SPACE}{call}").match
        # Text that is not a parameter also matches, as one without a name, so that no text between them is skipped.
        self._parameters = re.compile(rf"{dialect.element or _parameter(dialect)}{_SPACE}|[\s\S]+").findall
        suffix = f"(?:{_SPACE}{re.escape(dialect.suffix)})?" if dialect.suffix else ""
        self._after = re.compile(f"{suffix}{_SPACE}{_any_of(dialect.block_closes)}").match

    def read(self, text: str, at: int, *, is_single: bool) -> tuple[list[QuickCall], int] | None:
        """Return the calls of the block that begins at `at`, and its end; None leaves it to the slow path."""
        head = self._head(text, at)
        calls: list[QuickCall] = []
        while head is not None:
            begin = head.end()
            # Not beyond the next call, so that no text is searched twice if a call lacks its mark.
            limit = text.find(self._opening, begin)
            end = text.find(self._close, begin, limit) if limit >= 0 else text.find(self._close, begin)
            if end < 0:
                return None
            parameters = self._parameters(text, begin, end)
            if self._is_nesting:
                # The parts of an element's value do not belong here.
                parameters = [parameter[:2] for parameter in parameters]
            name = head[2].strip()
            names = {parameter[0] for parameter in parameters}
            closes_itself = self._self_close and head[1].endswith(self._self_close)
            if not name or closes_itself or "" in names or len(names) < len(parameters):
                return None
            end += len(self._close)
            calls.append((head.start(1), end, name, parameters))
            if self._is_blockless:
                return calls, end
            closed = self._after(text, end)
            if closed is not None:
                return calls, closed.end()
            if is_single or not text.startswith(self._suffix, end):
                return None
            head = self._next(text, end + len(self._suffix))
        return None


def _parameter(dialect: Dialect) -> str:
    marks = (dialect.parameter.opening, dialect.parameter_close, dialect.call.opening)
    return f"{dialect.parameter.unpadded}({text_without(*marks)}){re.escape(dialect.parameter_close)}"


def _any_of(marks: Sequence[str]) -> str:
    return f"(?:{'|'.join(map(re.escape, marks))})" if marks else ""
