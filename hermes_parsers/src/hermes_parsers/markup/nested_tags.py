"""The nested reading: balanced tags inside a value belong to the value."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from hermes_parsers.markup.call import Parameter, parameter_of
from hermes_parsers.markup.dialect import Dialect
from hermes_parsers.markup.source import IncompleteError, Source
from hermes_parsers.markup.swallowed_parameters import is_enclosed

_MAX_CALLS: Final = 8
_MAX_DEPTH: Final = 1
"""A value with more calls is read flat: otherwise the search would go to the end of the text for each unclosed call."""


class NestedReading:
    """Counts the open parameters, and the open calls inside a value; resumes when more text has arrived.

    After `read`, `end` is the place of the call's closing mark, or of the text in its place if not `is_closed`, or -1;
    with `is_uneven`, the tags are unbalanced and the parameters must not be used; with `has_repeated`, a parameter was
    given before. `doubled` names those with a duplicate closing mark. `flat_at` is how far the flat reading has
    searched, which follows if there is no end.
    """

    __slots__ = (
        "_at",
        "_calls",
        "_depth",
        "_dialect",
        "_free",
        "_given",
        "_has_stray",
        "_is_doubled",
        "_last",
        "_seen",
        "_source",
        "_tag",
        "begin",
        "doubled",
        "end",
        "flat_at",
        "has_repeated",
        "is_closed",
        "is_uneven",
        "junk",
        "known",
        "parameters",
    )

    def __init__(self, dialect: Dialect, at: int, known: Collection[str] | None, given: Collection[str]) -> None:
        self.begin = self.flat_at = self._at = self._free = at
        self.known = known
        self._dialect = dialect
        self._tag: re.Match[str] | None = None
        self._depth = 0
        self._calls = 0
        self._last = -1
        self._seen = 0
        self._given = set(given)
        self.has_repeated = self._has_stray = self._is_doubled = False
        self.doubled: list[str] = []
        self.junk = ""
        self.parameters: list[Parameter] = []
        self.end = -1
        self.is_closed = False
        self.is_uneven = False

    def read(self, source: Source) -> bool:
        """Read to the call's end; return False if no balanced end is found. Raises IncompleteError."""
        self._source = source
        if not self.is_uneven:
            for token in self._dialect.tokens(source.text, self._at):
                is_over = self._take(str(token.lastgroup), token.start(), token.end())
                self._at = token.end()
                if is_over:
                    break
            else:
                if not source.final:
                    raise IncompleteError(">")
        return self.end >= 0

    def _take(self, kind: str, start: int, end: int) -> bool:
        """Consume the next mark; return whether reading is complete."""
        if kind == "open":
            return self._open(start)
        if kind == "close":
            return self._close(start)
        if kind == "end":
            return self._call_end(start, end)
        if kind == "call":
            return self._call(start)
        return self._depth == 0 and self._stop(start, is_closed=False)

    def _open(self, start: int) -> bool:
        tag = None if self._calls else self._source.tag(self._dialect.parameter, start)
        if tag is not None:
            name = tag[1].strip()
            if self._depth == 0 and self._is_next(tag, name):
                self._commit(start)
                self._tag = tag
                self.has_repeated = self.has_repeated or name in self._given
                self._given.add(name)
            self._depth += 1
        return False

    def _is_next(self, tag: re.Match[str], name: str) -> bool:
        """Whether a tag outside any other begins a parameter: it follows the last one, or is expected."""
        text, start = self._source.text, tag.start()
        if self._tag is None or not text[self._free : start].strip():
            return True
        if self.known is not None:
            return name in self.known and name not in self._given and not is_enclosed(tag)
        return not self._dialect.own_lines or text[start - 1] == "\n"

    def _close(self, start: int) -> bool:
        if self._calls:
            return False
        if self._tag is None:
            # A value with an unreadable tag.
            self.junk = self.junk or self._source.text[self._free : start].strip() or self._dialect.parameter_close
        is_stray = self._depth == 0
        self._has_stray = self._has_stray or is_stray
        self._depth = max(self._depth - 1, 0)
        if self._depth == 0:
            # If the mark is written twice, the first ends the value; with text between the two, the first is text.
            self._is_doubled = is_stray and not self._source.text[self._free : start].strip()
            self._last = self._last if self._is_doubled else start
            self._free = start + len(self._dialect.parameter_close)
        return False

    def _call(self, start: int) -> bool:
        if self._source.tag(self._dialect.call, start) is None:
            return False
        if self._depth == 0:
            return self._stop(start, is_closed=False)
        self._calls += 1
        self._seen += 1
        self.is_uneven = self._seen > _MAX_CALLS or self._calls > _MAX_DEPTH
        return self.is_uneven

    def _call_end(self, start: int, end: int) -> bool:
        if self._calls:
            self._calls -= 1
            return False
        if self._depth == 0:
            return self._stop(start, is_closed=True)
        if is_last_mark(self._source, self._dialect, end, or_call=not self._dialect.blocks):
            self.is_uneven = True
            return self._stop(start, is_closed=True)
        return False

    def _stop(self, at: int, *, is_closed: bool) -> bool:
        self._commit(at)
        # A repeated parameter, and surplus text or marks: it may be part of a value (hermes-agent's rule).
        self.is_uneven = self.is_uneven or (self.has_repeated and (self._has_stray or bool(self.junk)))
        self.end = at
        self.is_closed = is_closed
        return True

    def _commit(self, before: int) -> None:
        """Accept the open parameter, and note the text between its end and the next mark."""
        text = self._source.text
        if self._tag is not None:
            self.parameters.append(parameter_of(self._tag, text[self._tag.end() : self._last]))
            if self._is_doubled:
                self.doubled.append(self._tag[1])
        self._tag = None
        self.junk = self.junk or text[self._free : before].strip()


def is_last_mark(source: Source, dialect: Dialect, at: int, *, or_call: bool) -> bool:
    """Whether the text after `at` shows that the mark before it ended a call: the end of the block or of the text."""
    at = source.space(at)
    if at == len(source.text):
        return True
    if dialect.suffix and source.sees(dialect.suffix, at):
        return True
    if source.sees_any(dialect.block_closes, at):
        return True
    return or_call and source.sees_any(dialect.openers, at) is not None
