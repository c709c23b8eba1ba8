"""Read one Python or JSON literal from a text in linear time, and JSON with unambiguous mistakes."""

from __future__ import annotations

import json
import re
from functools import cache
from math import isfinite
from typing import Any, Final, final

from hermes_parsers.engine.values.quoted_strings import (
    LiteralError,
    Repairs,
    as_json_string,
    read_python_string,
    read_raw_string,
    read_repaired_string,
)

MAX_DEPTH: Final = 128

_WORDS: Final = {"True": True, "False": False, "None": None, "true": True, "false": False, "null": None}
_JSON_WORDS: Final = frozenset({"true", "false", "null"})
_NOT_FINITE: Final = frozenset({"NaN", "Infinity", "nan", "inf"})
_STRING_PREFIXES: Final = frozenset("rRuU")

_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z_0-9]*+")
_NUMBER: Final = re.compile(r"-?+(?:0|[1-9][0-9]*+)(?>(\.[0-9]++))?+(?>([eE][+-]?+[0-9]++))?+(?![0-9A-Za-z_.])")
_LEADING_ZEROS: Final = re.compile(r"([+-]?+)0++([1-9][0-9]{0,999}+)(?![0-9A-Za-z_.])")
_ODD_NUMBER: Final = re.compile(r"[+-]?+(?>[0-9A-Za-z_.]|(?<=[eE])[+-])*+")

_STRING: Final = r"""'(?>[^'\\]++|\\.)*+'|"(?>[^"\\]++|\\[^/])*+\""""
_OTHER: Final = rf"""[^\[\]{{}}()'"]++|{_STRING}"""
_FLAT: Final = rf"[\[{{](?>{_OTHER})*+[\]}}]"
_DEEPER: Final = rf"[\[{{](?>{_OTHER}|{_FLAT})*+[\]}}]"
_PYTHON_TOKEN: Final = re.compile(r"""'((?>[^'\\]++|\\.)*+)'|"(?>[^"\\]++|\\.)*+"|True|False|None""", re.DOTALL)
_PYTHONIC: Final = re.compile(r"'|True|False|None")
_JSON_WORD: Final = {"True": "true", "False": "false", "None": "null"}

# Python limits reading digits only in base 10, but writing them in any case: to 4300.
_MAX_BITS: Final = 14_284


def read_literal(text: str, at: int, end: int, repairs: Repairs | None = None) -> tuple[Any, int]:
    """Read the Python or JSON literal at `at` and return it as a JSON value, with the place after it.

    A literal that reaches `end` may continue in a longer text. Tuples and sets become lists, keys become text. NaN,
    infinities, and numbers too long to be written again are refused. If `repairs` is given, leading zeros of a decimal
    number are accepted and noted there.

    Raises:
        LiteralError: There is no literal at `at`.
    """
    if text[at : at + 1] in {"[", "{"}:
        found = _read_shallow(text, at, end)
        if found is not None:
            return found
    reader = LiteralReader(text, end, None) if repairs is None else _LenientReader(text, end, repairs)
    return reader.value(at)


@cache
def _shallow() -> re.Pattern[str]:
    """Compile three levels of lists and objects.

    No text is read twice on one level, because everything is possessive.
    """
    return re.compile(rf"[\[{{](?>{_OTHER}|{_DEEPER})*+[\]}}]", re.DOTALL)


def _read_shallow(text: str, at: int, end: int) -> tuple[Any, int] | None:
    """Read a container with the C decoder if it is shallow and nearly JSON; None leaves it to the slow path."""
    found = _shallow().match(text, at, end)
    if found is None:
        return None
    written = found[0]
    if _PYTHONIC.search(written):
        written = _PYTHON_TOKEN.sub(_json_token, written)
    try:
        value, after = _decode(written, 0)
    except ValueError:
        return None
    return (value, found.end()) if after == len(written) else None


def _json_token(token: re.Match[str]) -> str:
    if token[1] is not None:
        return as_json_string(token[1], "'")
    text = token[0]
    return _JSON_WORD.get(text, text)


def _to_finite(text: str) -> float:
    return _to_float(text, 0)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not a JSON value")


def read_repaired(text: str, at: int, end: int) -> tuple[Any, int, tuple[str, ...]]:
    """Read JSON at `at`; raw control characters, trailing commas and Python's ways of writing are repaired.

    The third item names the repairs in order; it is empty for valid JSON. Missing parts are never invented.

    Raises:
        LiteralError: The text is neither JSON nor repairable.
    """
    repairs: Repairs = {}
    value, after = LiteralReader(text, end, repairs).value(at)
    return value, after, tuple(repairs)


class LiteralReader:
    """Recursive descent over one value; without `repairs` it reads Python literals, which need no repair."""

    __slots__ = ("_depth", "_end", "_repairs", "_text")

    def __init__(self, text: str, end: int, repairs: Repairs | None) -> None:
        self._text = text
        self._end = end
        self._repairs = repairs
        self._depth = 0

    def value(self, at: int) -> tuple[Any, int]:
        """Read any value. Raises LiteralError."""
        char = self._peek(at)
        if char in "\"'":
            return self._string(at)
        if char in "-+.0123456789":
            return self._number(at)
        return self._container(at, char) if char in "[({" else self._word(at)

    def _container(self, at: int, char: str) -> tuple[Any, int]:
        if self._depth == MAX_DEPTH:
            raise LiteralError(f"nested deeper than {MAX_DEPTH} levels", at)
        self._depth += 1
        container: tuple[Any, int]
        if char == "{":
            container = self._braces(at + 1)
        elif char == "[":
            container = self._items(at + 1, [], "]")
        else:
            container = self._tuple(at + 1)
        self._depth -= 1
        return container

    def _peek(self, at: int) -> str:
        if at >= self._end:
            raise LiteralError("the text ends inside a value", at, is_truncated=True)
        return self._text[at]

    def _skip_space(self, at: int) -> int:
        text, end = self._text, self._end
        while at < end and text[at] in " \n\t\r":
            at += 1
        return at

    def _note(self, repair: str) -> None:
        if self._repairs is not None:
            self._repairs[repair] = None

    def _items(self, at: int, items: list[Any], closer: str) -> tuple[list[Any], int]:
        at = self._skip_space(at)
        while self._peek(at) != closer:
            item, at = self.value(at)
            items.append(item)
            at = self._separator(at, closer)
        return items, at + 1

    def _separator(self, at: int, closer: str) -> int:
        """Advance to what follows a comma, or to the closer."""
        at = self._skip_space(at)
        char = self._peek(at)
        if char == closer:
            return at
        if char != ",":
            raise LiteralError(f"expected ',' or '{closer}', got {char!r}", at)
        return self._behind_comma(at + 1, closer)

    def _behind_comma(self, at: int, closer: str) -> int:
        at = self._skip_space(at)
        if self._peek(at) == closer:
            self._note_comma(at)
        return at

    def _note_comma(self, at: int) -> None:  # noqa: ARG002 - for readers that refuse it
        self._note("trailing comma")

    def _tuple(self, at: int) -> tuple[Any, int]:
        self._note("Python literal")
        at = self._skip_space(at)
        if self._peek(at) == ")":
            return [], at + 1
        first, at = self.value(at)
        at = self._skip_space(at)
        char = self._peek(at)
        if char == ")":
            return first, at + 1
        if char != ",":
            raise LiteralError(f"expected ',' or ')', got {char!r}", at)
        return self._items(at + 1, [first], ")")

    def _braces(self, at: int) -> tuple[Any, int]:
        at = start = self._skip_space(at)
        members: dict[str, Any] = {}
        while self._peek(at) != "}":
            key_at = at
            key, at = self.value(at)
            at = self._skip_space(at)
            char = self._peek(at)
            if char != ":":
                # In JSON a lone member is a missing value rather than a set.
                if self._repairs is not None or key_at != start or char not in ",}":
                    raise LiteralError(f"expected ':', got {char!r}", at)
                return self._items(self._separator(at, "}"), [key], "}")
            name = key if isinstance(key, str) else self._key_text(key_at, key)
            members[name], at = self.value(self._skip_space(at + 1))
            at = self._separator(at, "}")
        return members, at + 1

    def _key_text(self, at: int, key: object) -> str:
        if self._text[at] in "[{":
            raise LiteralError("a list or an object cannot be a key", at)
        self._note("Python literal")
        return json.dumps(key, ensure_ascii=False)

    def _string(self, at: int) -> tuple[str, int]:
        if self._repairs is None:
            return read_python_string(self._text, at, self._end)
        return read_repaired_string(self._text, at, self._end, self._repairs)

    def _word(self, at: int) -> tuple[Any, int]:
        match = _WORD.match(self._text, at, self._end)
        if match is None:
            raise LiteralError(f"expected a value, got {self._text[at]!r}", at)
        word, after = match[0], match.end()
        if word in _WORDS:
            if word not in _JSON_WORDS:
                self._note("Python literal")
            return _WORDS[word], after
        if after < self._end and word in _STRING_PREFIXES and self._text[after] in "\"'":
            self._note("Python literal")
            read = read_raw_string if word in "rR" else read_python_string
            return read(self._text, after, self._end)
        raise self._no_value(word, at, after)

    def _no_value(self, word: str, at: int, after: int) -> LiteralError:
        # A word at the end may continue in a longer text, so it cannot be judged yet.
        what = f"{word} is not a JSON value" if word in _NOT_FINITE else f"{word[:40]!r} is not a valid value"
        return LiteralError(what, at, is_truncated=after == self._end)

    def _number(self, at: int) -> tuple[int | float, int]:
        match = _NUMBER.match(self._text, at, self._end)
        if match is None:
            return self._odd_number(at)
        if match.lastindex is None:
            return _to_integer(match[0], at, 10), match.end()
        return _to_float(match[0], at), match.end()

    def _odd_number(self, at: int) -> tuple[int | float, int]:
        """Read numbers that Python allows and JSON does not: `0x1F`, `1_000`, `.5`, `+1`."""
        match = _ODD_NUMBER.match(self._text, at, self._end)
        word = match[0] if match else ""
        try:
            # Base 0 accepts exactly Python's integer literals.
            number = _to_float(word, at) if _is_float(word) else _to_integer(word, at, 0)
        except LiteralError as error:
            error.is_truncated = at + len(word) == self._end
            raise
        self._note("Python literal")
        return number, at + len(word)


@final
class _LenientReader(LiteralReader):
    """Accepts a number that Python refuses but models write: `month=07`."""

    __slots__ = ("_overlooked",)

    def __init__(self, text: str, end: int, repairs: Repairs) -> None:
        super().__init__(text, end, None)
        self._overlooked = repairs

    def _odd_number(self, at: int) -> tuple[int | float, int]:
        found = _LEADING_ZEROS.match(self._text, at, self._end)
        if found is None:
            return super()._odd_number(at)
        self._overlooked["leading zeros"] = None
        return int(found[1] + found[2]), found.end()


def _is_float(word: str) -> bool:
    return word.lstrip("+-")[:2].lower() != "0x" and any(mark in word for mark in ".eE")


def _to_integer(word: str, at: int, base: int) -> int:
    try:
        number = int(word, base)
    except ValueError as error:
        raise LiteralError(f"{word[:40]!r} is not a valid number", at) from error
    if base == 0 and number.bit_length() > _MAX_BITS:
        raise LiteralError("the integer has too many digits", at)
    return number


def _to_float(word: str, at: int) -> float:
    try:
        number = float(word)
    except ValueError as error:
        raise LiteralError(f"{word[:40]!r} is not a number", at) from error
    if not isfinite(number):
        raise LiteralError(f"{word[:40]!r} is not a finite number", at)
    return number


_decode: Final = json.JSONDecoder(strict=False, parse_float=_to_finite, parse_constant=_refuse).raw_decode
