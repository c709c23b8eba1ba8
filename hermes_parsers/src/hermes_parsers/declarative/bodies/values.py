"""Convert the text of one parameter by the tool's schema, or without one as the metadata says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from hermes_parsers.coercion import coerce_text
from hermes_parsers.declarative.bodies.json_dialects import Dialect, DialectReader, json_dialect
from hermes_parsers.declarative.errors import fault
from hermes_parsers.engine.values.json_text import JsonError, value_at

_PARSERS: Final = ("text", "json", "int", "float", "bool")
_BOOLEANS: Final = {"true": True, "1": True, "false": False, "0": False}


class ValueReader(NamedTuple):
    """The `value_parser` of a field; without one a value is its text."""

    kind: str = "text"
    dialect: Dialect = Dialect()

    def read(self, text: str, schema: Any) -> tuple[Any, str]:
        """Return a value, and a note if it does not have the expected type."""
        if schema is not None:
            return coerce_text(text, schema)
        if self.kind == "text":
            return text, ""
        if self.kind == "bool":
            lowered = text.strip().lower()
            return (_BOOLEANS[lowered], "") if lowered in _BOOLEANS else (text, "kept as text: it is not a boolean")
        value, is_read = self._json(text.strip())
        if self.kind == "float" and _is_number(value, int, float):
            return float(value), ""
        if is_read and (self.kind == "json" or (self.kind == "int" and _is_number(value, int))):
            return value, ""
        return text, "" if self.dialect.allows_text else f"kept as text: it is not a valid {self.kind}"

    def _json(self, text: str) -> tuple[Any, bool]:
        if not text:
            return None, False
        source, end = text, len(text)
        if not self.dialect.is_plain:
            reader = DialectReader(self.dialect, 0)
            if reader.advance(text, final=True) and not reader.reason:
                source, end = "".join(reader.written), reader.end
        try:
            value, stop = value_at(source, 0)
        except JsonError:
            return None, False
        return value, stop == len(source) and end == len(text)


def _is_number(value: Any, *kinds: type) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)


def value_reader(place: str, spec: Any) -> ValueReader:
    """Read a `value_parser`.

    Raises:
        TemplateError: It names no known parser.
    """
    if spec is None:
        return ValueReader()
    if not isinstance(spec, Mapping):
        raise fault(place, 'an object like {"name": "json"}', spec)
    kind = spec.get("name", "text")
    if kind not in _PARSERS:
        raise fault(f"{place}.name", f"one of {', '.join(_PARSERS)}", kind)
    arguments = spec.get("args") or {}
    if not isinstance(arguments, Mapping):
        raise fault(f"{place}.args", "an object", arguments)
    return ValueReader(kind, json_dialect(f"{place}.args", arguments)) if kind == "json" else ValueReader(kind)
