"""Gemma's arguments in Python's style, as some models write them: `call:f(a:1)`, `call:f(a=1)`, `call:f({a:1})`."""

from __future__ import annotations

import re
from typing import Any, ClassVar, Final

from hermes_parsers.engine.values.literals import read_literal
from hermes_parsers.engine.values.quoted_strings import LiteralError
from hermes_parsers.families.gemma.object_syntax import ObjectReader

_KEY: Final = re.compile(r"""[^:=,(){}\[\]<>"'\s]++""")


class ParenthesesReader(ObjectReader):
    """Reads the arguments between parentheses; a value without a key has no name and cannot be read."""

    __slots__ = ()

    bare_text: ClassVar[re.Pattern[str]] = re.compile(r"""[^:=,(){}\[\]<>"'\n]*+(?=[ \t\r\n]*+[,)}\]])""")

    def read(self, at: int) -> tuple[dict[str, Any], int]:
        """Read the arguments whose parenthesis is at `at`; return them and the place after them."""
        self._depth = 1
        members: dict[str, Any] = {}
        at = self._skip_space(at + 1)
        if self._peek(at) == "{":
            members, at = self._braces(at + 1)
            at = self._skip_space(at)
            if self._peek(at) != ")":
                raise LiteralError(f"expected ')', got {self._text[at]!r}", at)
        while self._peek(at) != ")":
            key, at = self._argument_name(at)
            members[key], at = self._member_value(key, at)
            at = self._separator(at, ")")
        return members, at + 1

    def _argument_name(self, at: int) -> tuple[str, int]:
        """Return the key at `at` and the place of its value."""
        if self._is_quoted(at):
            key, after = self._string(at)
        elif self._text[at] in "\"'":
            read, after = read_literal(self._text, at, len(self._text))
            key = str(read)
        else:
            found = _KEY.match(self._text, at)
            if found is None:
                raise LiteralError(f"expected the name of an argument, got {self._text[at]!r}", at)
            key, after = found[0], found.end()
        after = self._skip_space(after)
        if self._peek(after) not in ":=":
            raise LiteralError(f"expected ':' or '=', got {self._text[after]!r}", after)
        return key, self._skip_space(after + 1)
