"""Calls whose strings contain unescaped quotes; some templates only put a quote on either side.

`f(command='sed -n '1,5p' a.py', n=1)`: a string ends at the first quote after which an argument can end: before the
keyword of the next argument, or before the parenthesis that ends the call in its list.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from functools import cache
from typing import Any, Final

from hermes_parsers.engine.scanning.scan import OK, Draft, Scan
from hermes_parsers.engine.values.declared_texts import read_declared
from hermes_parsers.engine.values.quoted_strings import LiteralError, read_python_string
from hermes_parsers.families.pythonic.call_syntax import ARGUMENTS_OPEN, KEYWORD, NAME, SPACES, PythonCall
from hermes_parsers.schemas import known_names
from hermes_parsers.writing import dumps

_ARGUMENT: Final = re.compile(rf"{SPACES}({KEYWORD}){SPACES}=(?!=){SPACES}")
_VALUE: Final = r"""(?=["'\d\-\[{]|(?:True|False|None|true|false|null)\b)"""
_LINE_ENDS: Final = r"(?=[ \t]*+(?:[\r\n<]|\Z))"
_BEGINS: Final = re.compile(
    rf"""\){SPACES}(?>\]{SPACES},?+{SPACES}\[?+|,){SPACES}(?P<name>{NAME}){ARGUMENTS_OPEN}|,{SPACES}(?P<keyword>{KEYWORD}){SPACES}=(?!=){SPACES}["']"""
)
_STRING_ARGUMENT: Final = re.compile(rf"""{SPACES}{KEYWORD}{SPACES}=(?!=){SPACES}["']""")
_QUOTES: Final = frozenset("'\"")
_AFTER: Final = re.compile(rf"{SPACES}([,)])")
_MOST: Final = 256
"""The number of quotes examined per string; with more of them, the end of a call is too uncertain."""


class LooseCall:
    """Reads the arguments that begin at `at` in the first `limit` characters of a text, after their list has ended.

    With `ends_at_mark`, only the closing mark ends the list, because a bracket at the end of a line turned out not to.
    """

    __slots__ = ("_closer", "_ends_at_mark", "_known", "_limit", "_schemas", "_text", "at", "values")

    def __init__(
        self,
        text: str,
        at: int,
        limit: int,
        closer: str,
        *,
        known: Container[str] | None,
        schemas: Mapping[str, Any],
        ends_at_mark: bool = False,
    ) -> None:
        self._text = text
        self._limit = limit
        self._closer = closer
        self._ends_at_mark = ends_at_mark
        self._known = known
        self._schemas = schemas
        self.at = at
        self.values: dict[str, Any] = {}

    def read(self) -> bool:
        """Read past the call's closing parenthesis; return whether that succeeded."""
        while True:
            found = _ARGUMENT.match(self._text, self.at, self._limit)
            if found is None:
                return False
            end = self._value(found[1], found.end())
            after = _AFTER.match(self._text, end, self._limit) if end >= 0 else None
            if after is None:
                return False
            self.at = after.end()
            if after[1] == ")":
                return True

    def _value(self, keyword: str, at: int) -> int:
        """Read an argument's value; return the place after it, or -1."""
        if self._text[at : at + 1] not in _QUOTES:
            try:
                schema = self._schemas.get(keyword)
                self.values[keyword], end = read_declared(self._text, at, self._limit, schema, repairs=None, notes={})
            except LiteralError:
                return -1
            return end
        end = self._end_of_text(self._text[at], at + 1)
        if end >= 0 and self._holds_more(at + 1, end - 1):
            return -1
        if end >= 0:
            self.values[keyword] = self._text_between(at, end)
        return end

    def _end_of_text(self, quote: str, at: int) -> int:
        pattern = _end_of_text(quote, self._closer, ends_at_mark=self._ends_at_mark)
        for _ in range(_MOST):
            found = pattern.search(self._text, at, self._limit)
            if found is None:
                return -1
            if self._is_end(found):
                return found.start() + 1
            at = found.start() + 1
        return -1

    def _is_end(self, found: re.Match[str]) -> bool:
        """Whether the tool has the parameter that would come next, or there is a tool of the next call's name."""
        if found["keyword"]:
            return not self._schemas or found["keyword"] in self._schemas
        return not found["name"] or self._known is None or found["name"] in self._known

    def _holds_more(self, at: int, end: int) -> bool:
        """Whether another call or argument begins inside: then a quote is missing and must not be swallowed."""
        return any(self._is_end(found) for found in _BEGINS.finditer(self._text, at, end))

    def _text_between(self, at: int, end: int) -> str:
        """Return a string as Python reads it, or unchanged if a quote in it shows that nothing is escaped."""
        try:
            value, after = read_python_string(self._text[:end], at, end)
        except LiteralError:
            after = -1
        return value if after == end else self._text[at + 1 : end - 1]


def has_quotes(text: str, call: PythonCall) -> bool:
    """Whether a string occurred in the readable part of a call, or begins where reading failed."""
    read = call.opened, call.at
    return text.find("'", *read) >= 0 or text.find('"', *read) >= 0 or _STRING_ARGUMENT.match(text, call.at) is not None


def read_loosely(
    scan: Scan, start: int, call: PythonCall, limit: int, closer: str, *, beyond: int, ends_at_mark: bool = False
) -> Draft | None:
    """Read a call again, like `LooseCall`; None if that fails, or if it does not end after `beyond`."""
    known = known_names(scan.tools) if scan.tools else None
    loose = LooseCall(
        scan.text, call.opened, limit, closer, known=known, schemas=call.schemas, ends_at_mark=ends_at_mark
    )
    if not loose.read() or loose.at <= beyond:
        scan.faults += 1
        return None
    reason = "unescaped quotes inside a string were read as part of it"
    return Draft(start, loose.at, OK, call.name, dumps(loose.values), loose.values, reason)


@cache
def _end_of_text(quote: str, closer: str, *, ends_at_mark: bool) -> re.Pattern[str]:
    """Compile a quote with what must follow if it ends a string."""
    following = rf",{SPACES}(?P<keyword>{KEYWORD}){SPACES}=(?!=){SPACES}{_VALUE}"
    call = rf",{SPACES}(?P<name>{NAME}){ARGUMENTS_OPEN}"
    by_mark = [rf"(?>\]{SPACES})?+{re.escape(closer)}"] if closer else []
    ends = "|".join(by_mark if ends_at_mark else [*by_mark, rf"\]{_LINE_ENDS}"])
    return re.compile(rf"{quote}(?={SPACES}(?:{following}|\){SPACES}(?:{call}|{ends})))")
