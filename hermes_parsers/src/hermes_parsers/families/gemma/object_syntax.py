"""Gemma's notation of objects: bare keys, strings between quote tokens, otherwise like JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ClassVar, Final

from hermes_parsers.engine.scanning.scan import OK, Draft
from hermes_parsers.engine.values.declared_texts import allows_null, is_text
from hermes_parsers.engine.values.literals import LiteralReader, read_literal
from hermes_parsers.engine.values.quoted_strings import LiteralError
from hermes_parsers.schemas import subschema
from hermes_parsers.writing import dumps

_KEY: Final = re.compile(r"""[^:,{}\[\]<>"'\n]++""")
# Without colons, since a text with a colon may be a member after a missing comma.
_BARE_TEXT: Final = re.compile(r"""[^:,{}\[\]<>"'\n]*+(?=[ \t\r\n]*+[,}\]])""")
_CUT_TEXT: Final = re.compile(r"""[^:,{}\[\]<>"'\n]*+[ \t\r\n]*+\Z""")
_NO_TEXT: Final = frozenset({"NaN", "Infinity", "-Infinity"})
_OUTSIDE: Final = re.compile(r"[^{}<]*+")


def find_end(text: str, at: int, quote: str, marks: tuple[str, ...]) -> int | None:
    """Return the place after the brace that ends an object whose first brace is before `at`.

    None if the text ends first. A mark of the format outside strings cannot be part of an object: return -1.
    """
    depth, size, longest = 1, len(text), max(map(len, (quote, *marks)))
    while depth:
        at = _OUTSIDE.match(text, at).end()  # type: ignore[union-attr]  # the pattern matches everywhere
        if text.startswith(marks, at):
            return -1
        if text.startswith(quote, at):
            at = text.find(quote, at + len(quote)) + len(quote)
            if at < len(quote):
                return None
        elif at == size or (text[at] == "<" and at + longest > size):
            return None
        else:
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            at += 1
    return at


_STRING: Final = 2
_NUMBER: Final = 3
_FRACTION: Final = 4
_WORD: Final = 5
_WORDS: Final = {"true": True, "false": False, "null": None, "None": None}
_Match = Callable[[str, int], re.Match[str] | None]


def _scalar(member: re.Match[str]) -> str | float | bool | None:
    kind = member.lastindex
    if kind == _NUMBER:
        return int(member[_NUMBER])
    if kind == _FRACTION:
        return float(member[_NUMBER] + member[_FRACTION])
    return _WORDS[member[_WORD]] if kind == _WORD else member[2]


@cache
def compile_member(quote: str) -> _Match:
    """Compile a simple member that needs no further checks, with the comma or brace after it."""
    return re.compile(
        rf"[ \t\r\n]*+([\w.$@/-]++)[ \t\r\n]*+:[ \t\r\n]*+(?:{re.escape(quote)}([^<]*+){re.escape(quote)}"
        r"|(-?+(?:0|[1-9][0-9]{0,999}+))(?>(\.[0-9]++))?+|(true|false|null|None))[ \t\r\n]*+[,}]"
    ).match


class ObjectReader(LiteralReader):
    """Reads one object; `repairs` lists the faults that lenient mode accepted, `notes` other remarks.

    `schemas` are those of the object's members: a value declared as a string, at any depth, is the source text, even
    without quotes.
    """

    __slots__ = ("_is_lenient", "_member", "_quote", "_root", "_schema", "_schemas", "notes", "repairs")

    bare_text: ClassVar[re.Pattern[str]] = _BARE_TEXT
    """A text without quotes."""

    def __init__(
        self, text: str, quote: str, member: _Match, *, is_lenient: bool, schemas: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(text, len(text), None)
        self._quote = quote
        self._member = member
        self._is_lenient = is_lenient
        self._schemas = schemas or {}
        self._schema: Any = None
        self._root: Any = None
        self.repairs: dict[str, None] = {}
        self.notes: dict[str, None] = {}

    def read(self, at: int) -> tuple[dict[str, Any], int]:
        """Read the object at `at`; return it and the place after it. Raises LiteralError."""
        self._depth = 1
        return self._braces(at + 1)

    def value(self, at: int) -> tuple[Any, int]:
        """Read any value. Raises LiteralError."""
        if self._is_quoted(at):
            return self._string(at)
        char = self._peek(at)
        return self._container(at, char) if char in "{[" else self._literal(at)

    def _braces(self, at: int) -> tuple[dict[str, Any], int]:
        members: dict[str, Any] = {}
        while True:
            found = self._member(self._text, at)
            if found is not None and (found.lastindex == _STRING or not self._is_text(found[1])):
                members[found[1]] = _scalar(found)
                at = found.end()
                if self._text[at - 1] == "}":
                    return members, at
                at = self._behind_comma(at, "}")
                continue
            at = self._skip_space(at)
            if self._peek(at) == "}":
                return members, at + 1
            key, at = self._member_name(at)
            members[key], at = self._member_value(key, at)
            at = self._separator(at, "}")

    def _items(self, at: int, items: list[Any], closer: str) -> tuple[list[Any], int]:
        at = self._skip_space(at)
        while self._peek(at) != closer:
            item, at = self._member_value(len(items), at)
            items.append(item)
            at = self._separator(at, closer)
        return items, at + 1

    def _member_name(self, start: int) -> tuple[str, int]:
        """Return the key at `start` and the place of its value; an equals sign may replace the colon."""
        key, at = self._key(start)
        at = self._skip_space(at)
        if self._peek(at) != ":":
            name = self._text[start:at].partition("=")[0]
            if not name.strip() or name[0] in "\"'<" or start + len(name) == at:
                raise LiteralError(f"expected ':', got {self._text[at]!r}", at)
            key, at = name.rstrip(), start + len(name)
        return key, self._skip_space(at + 1)

    def _schema_of(self, key: str | int) -> Any:
        if self._depth > 1:
            return None if self._schema is None else subschema(self._schema, self._root, key)
        self._root = self._schemas.get(key) if isinstance(key, str) else None
        return self._root

    def _is_text(self, key: str) -> bool:
        return is_text(self._schema_of(key), self._root)

    def _member_value(self, key: str | int, at: int) -> tuple[Any, int]:
        """Read the value of a member of the object or list that is being read."""
        around, self._schema = self._schema, self._schema_of(key)
        is_declared = is_text(self._schema, self._root)
        found = self._declared_text(key, at) if is_declared and not self._is_quoted(at) else self.value(at)
        self._schema = around
        return found

    def _declared_text(self, key: str | int, at: int) -> tuple[Any, int]:
        """Read a value without quotes that is declared as a string: it is the source text."""
        if _CUT_TEXT.match(self._text, at):
            raise LiteralError("the text ends inside a value", at, is_truncated=True)
        found = self.bare_text.match(self._text, at)
        bare = found[0].rstrip() if found else ""
        if bare:
            is_null = bare in {"null", "None"} and allows_null(self._schema, self._root)
            return None if is_null else bare, at + len(bare)
        value, end = self.value(at)
        if self._text[at] not in "{[":
            return value, end
        self.notes[f"the tool declares {key} as a string: a bracketed value was kept as text"] = None
        return self._text[at:end].replace(self._quote, '"'), end

    def _literal(self, at: int) -> tuple[Any, int]:
        found = self.bare_text.match(self._text, at) if self._is_lenient else None
        if self._is_lenient and _CUT_TEXT.match(self._text, at):
            raise LiteralError("the text ends inside a value", at, is_truncated=True)
        if found is None or (bare := found[0].rstrip()) in _NO_TEXT:
            return read_literal(self._text, at, len(self._text))
        end = at + len(bare)
        try:
            value, after = read_literal(self._text, at, end)
        except LiteralError:
            after = -1
        if after == end:
            return value, end
        self.repairs["text without quotes"] = None
        return bare, end

    def _key(self, at: int) -> tuple[str, int]:
        if self._is_quoted(at):
            return self._string(at)
        if self._text[at] in "\"'":
            key, after = read_literal(self._text, at, len(self._text))
            return str(key), after
        found = _KEY.match(self._text, at)
        if found is None:
            raise LiteralError(f"expected a key, got {self._text[at]!r}", at)
        return found[0].rstrip(), found.end()

    def _is_quoted(self, at: int) -> bool:
        if self._text.startswith(self._quote, at):
            return True
        rest = self._text[at : at + len(self._quote)]
        if at + len(rest) == len(self._text) and self._quote.startswith(rest):
            raise LiteralError("the text ends inside a value", at, is_truncated=True)
        return False

    def _string(self, at: int) -> tuple[str, int]:
        start = at + len(self._quote)
        end = self._text.find(self._quote, start)
        if end < 0:
            raise LiteralError("the text ends inside a string", start, is_truncated=True)
        return self._text[start:end], end + len(self._quote)

    def _note_comma(self, at: int) -> None:
        if not self._is_lenient:
            raise LiteralError(f"expected a value after ',', got {self._text[at]!r}", at)
        self.repairs["trailing comma"] = None


_TIDY_KEY: Final = r"[A-Za-z_]\w*+"


@cache
def _tidy(quote: str) -> tuple[_Match, Callable[[str], list[tuple[str, str, str]]]]:
    mark = re.escape(quote)
    text = rf"{mark}[^<]*+{mark}"
    other = rf"true|false|null|0|-?+[1-9][0-9]{{0,999}}+|\[{text}(?>,{text})*+\]"
    pair = rf"{_TIDY_KEY}:(?:{text}|{other})"
    whole = re.compile(rf"\{{((?>{pair}(?>,{pair})*+)?+)\}}")
    member = re.compile(rf"({_TIDY_KEY}):(?:{mark}([^<]*+){mark}|({other}))")
    return whole.match, member.findall


_DOUBLE: Final = '"'


def _json_text(quote: str, text: str, other: str) -> str:
    if not other:
        return dumps(text)
    if other[0] != "[":
        return other
    # A JSON quote in a string would be read as the string's end, which would not be valid JSON.
    is_plain = other.count(_DOUBLE) == other.count(quote) * quote.count(_DOUBLE)
    return other.replace(f"{quote},{quote}", '", "').replace(quote, _DOUBLE) if is_plain else ""


_decode: Final = json.JSONDecoder().raw_decode


def read_tidy_object(text: str, at: int, quote: str, start: int, name: str) -> Draft | None:
    """Read an object written like the template's, mostly with the C decoder; None leaves it to the slow path.

    The draft begins at `start`; its arguments are exactly what `dumps` writes.
    """
    match, find = _tidy(quote)
    found = match(text, at)
    if found is None or "\\" in found[1]:
        return None
    members = [
        f'"{key}": {_json_text(quote, text, other)}'
        if other or _DOUBLE in text or "\n" in text
        else f'"{key}": "{text}"'
        for key, text, other in find(found[1])
    ]
    written = f"{{{', '.join(members)}}}"
    try:
        value, end = _decode(written, 0)
        if not written.isascii():
            # Lone surrogates cannot be written this way.
            written.encode()
    except ValueError:
        return None
    if len(value) != len(members) or end != len(written):
        return None
    return Draft(start, found.end(), OK, name, written, value)
