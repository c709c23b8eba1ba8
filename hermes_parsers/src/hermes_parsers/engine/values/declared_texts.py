"""Keep values as strings where the tool's schema declares a string but the notation would make a number or a word."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NoReturn, final

from hermes_parsers.engine.values.literals import LiteralReader, read_literal
from hermes_parsers.engine.values.quoted_strings import LiteralError, Repairs
from hermes_parsers.schemas import allowed_types, parameter_schemas, subschema

_TEXT_OR_NULL: Final = frozenset({"string", "null"})
_BARE: Final = re.compile(r"[+\-]?+(?=\.?[0-9])[\w.+/:\-]++|(?:True|False|true|false)(?!\w)")
"""Matches numbers and texts that begin like one (a date, a version), and words other than null."""
_BRACKETS: Final = ("[", "{", "(")
_NO_SCHEMAS: Final[Mapping[str, Any]] = {}


def declared_parameters(tools: Any, name: str | None) -> Mapping[str, Any]:
    """Return the schemas of a tool's parameters; empty if the tool is unknown."""
    return (parameter_schemas(tools, name) if tools and name else None) or _NO_SCHEMAS


def is_text(schema: Any, root: Any = None) -> bool:
    """Whether a schema allows strings and, except null, nothing else; its references point into `root`."""
    return schema is not None and "string" in (kinds := allowed_types(schema, root)) and kinds <= _TEXT_OR_NULL


def allows_null(schema: Any, root: Any = None) -> bool:
    """Whether a schema names null among the types it allows."""
    return "null" in allowed_types(schema, root)


def lacks_texts(arguments: Mapping[str, Any], schemas: Mapping[str, Any]) -> bool:
    """Whether the arguments have another value where a string is declared, so that the slow path must read them.

    A null counts: only the source text shows whether it was written as a word.
    """
    return bool(schemas) and any(
        not isinstance(value, str) and lacks_text(value, schemas.get(key), schemas.get(key))
        for key, value in arguments.items()
    )


def lacks_text(value: Any, schema: Any, root: Any) -> bool:
    """Whether a value has anything else where a string is declared."""
    if schema is None or isinstance(value, str):
        return False
    if is_text(schema, root):
        return True
    return any(lacks_text(member, subschema(schema, root, key), root) for key, member in _members(value))


def _members(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, dict):
        return value.items()
    return enumerate(value) if isinstance(value, list) else ()


def read_declared(
    text: str, at: int, end: int, schema: Any, *, repairs: Repairs | None, notes: dict[str, None]
) -> tuple[Any, int]:
    """Read a literal as `read_literal` does; where its schema declares a string, return the source text.

    None stays null, since Python would quote a string.

    Raises:
        LiteralError: There is no literal at `at`.
    """
    if is_text(schema):
        return _read_text(text, at, end, repairs, notes)
    try:
        value, after = read_literal(text, at, end, repairs)
    except LiteralError as error:
        if error.is_truncated or not text.startswith(_BRACKETS, at):
            raise
    else:
        if not lacks_text(value, schema, schema):
            return value, after
    value, after = _WrittenReader(text, end, None).value(at)
    return _settle(value, schema, schema, repairs), after


def settle_written(text: str, schema: Any) -> Any:
    """Return the value of a whole text, with strings where its schema declares them; None if it cannot be read so."""
    try:
        value, after = _read_written(text)
        return _settle(value, schema, schema, None) if after == len(text) else None
    except LiteralError:
        return None


def _read_written(text: str) -> tuple[Any, int]:
    try:
        return _decode(text, 0)
    except (ValueError, RecursionError):
        return _WrittenReader(text, len(text), None).value(0)


def _read_text(text: str, at: int, end: int, repairs: Repairs | None, notes: dict[str, None]) -> tuple[Any, int]:
    if bare := _BARE.match(text, at, end):
        return bare[0], bare.end()
    value, after = read_literal(text, at, end, repairs)
    if not text.startswith(_BRACKETS, at):
        return value, after
    notes["a bracketed value was kept as text, as the schema declares"] = None
    return text[at:after], after


class _Written(str):
    """A number or a word as it was written."""

    __slots__ = ()


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not valid JSON")


_decode: Final = json.JSONDecoder(parse_int=_Written, parse_float=_Written, parse_constant=_refuse).raw_decode


@final
class _WrittenReader(LiteralReader):
    """Keeps numbers and words as they were written; the schema of their place decides what they become."""

    __slots__ = ()

    def _number(self, at: int) -> tuple[Any, int]:
        found = _BARE.match(self._text, at, self._end)
        return (_Written(found[0]), found.end()) if found else super()._number(at)

    def _word(self, at: int) -> tuple[Any, int]:
        value, after = super()._word(at)
        return (_Written(self._text[at:after]) if isinstance(value, bool) else value), after


def _settle(value: Any, schema: Any, root: Any, repairs: Repairs | None) -> Any:
    """Return a value with its numbers and words converted. Raises LiteralError."""
    if isinstance(value, _Written):
        if is_text(schema, root):
            return str(value)
        read, after = read_literal(value, 0, len(value), repairs)
        if after < len(value):
            raise LiteralError(f"{value[:40]!r} is not a valid number", 0)
        return read
    if isinstance(value, bool) and is_text(schema, root):
        return str(value).lower()
    settled = {key: _settle(member, subschema(schema, root, key), root, repairs) for key, member in _members(value)}
    if isinstance(value, list):
        return [*settled.values()]
    return settled if isinstance(value, dict) else value
