"""Convert the text of a parameter to a value by the tool's JSON schema; never raises, whatever the schema is.

A text is tried as the types its schema allows in the order null, integer, number, boolean, object, array, string
(vLLM's order). A text that fits none of them stays text, with a note that says so. The rules beyond the order:

* A declared string stays verbatim. `none`, `nil` and `null` are legal strings (vllm#39567); only if the schema allows
  null *and* string do the exact words `null` and `None` mean null (vllm#38885: templates write Python's).
* `True`, `False` and `None` count as JSON's words, in any case where no string is allowed. Other words are never
  guessed to be false.
* Integers are JSON integers of any size, or decimals without a fraction (`1.0`, `1e3`: JSON Schema calls them
  integers). A number with a leading zero (`03106`, `0755`) stays text, because JSON gives it no meaning.
* A number keeps the kind of its literal: `1` is an int, `1.0` a float. NaN and infinities are refused.
* Objects and arrays are strict JSON. Strings inside them are read by the schema of their place (`{"n": "5"}` with an
  integer `n`), and where only a string is allowed, numbers and booleans become the string as it was written (`[1.10]`
  for an array of strings); both are noted.
* Only where no string is allowed, and noted: `1` and `0` for a boolean, `+5` and `.5` for a number, a Python literal
  for an object or an array.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, NoReturn

from hermes_parsers.schemas import (
    COMPOSITIONS,
    OF_TYPE,
    allowed_types,
    is_among,
    subschema,
)

Reading = tuple[Any, str]
"""A value, and a note on how it was read; the note is empty if the value matched the schema as written."""

_MAX_DEPTH: Final = 128
"""Values nested deeper stay text: writing them again could exhaust the interpreter's stack."""
_MAX_FIT_DEPTH: Final = 32
_MAX_NOTES: Final = 3
_SURE_DIGITS: Final = 15
"""The number of decimal digits that a float holds without loss."""
_NUMERAL: Final = re.compile(r"([+-]?)([0-9]*)(\.[0-9]*)?([eE][+-]?[0-9]+)?")
_PLAIN_STRING: Final = {"type": "string"}
_STRING: Final = frozenset({"string"})
_TEXTS: Final = frozenset({"string", "null"})
_INNER: Final = frozenset({"properties", "items", "prefixItems", "additionalProperties", "$ref"} | set(COMPOSITIONS))
_DECLARED_TEXTS: Final = "numbers and words in it were read as strings, as the schema declares"
_NULLS: Final = frozenset({"null", "none"})
_WORDS: Final[Mapping[str, Any]] = {"true": True, "false": False, "null": None}
_BOOLEANS: Final = {"true": True, "false": False}
_DIGITS: Final = {"1": True, "0": False}


def coerce_text(text: str, schema: Any, *, declared: Literal["text", "json"] | None = None) -> Reading:
    """Return a parameter's value and a note, which is empty if the value matches the schema.

    Without a schema the value is the text. `declared` is the type that the wire format itself gives (DSML's
    `string="true|false"`): "text" is final, "json" is read as JSON first.
    """
    if declared == "json":
        return coerce_json(text, schema)
    if schema is None or declared == "text" or schema == _PLAIN_STRING:
        return text, ""
    allowed = allowed_types(schema)
    if not allowed or allowed == _STRING or is_among(text, schema):
        return text, ""
    value, note = _read(text, allowed)
    if note and value is text and (found := _with_declared_texts(text, schema, allowed)) is not None:
        value, note = found, _DECLARED_TEXTS
    if isinstance(value, dict | list) and not _INNER.isdisjoint(schema):
        value, inner = coerce_value(value, schema, text)
        note = "; ".join(part for part in (note, inner) if part)
    return value, note


def _with_declared_texts(text: str, schema: Any, allowed: frozenset[str]) -> Any:
    """Return an object or array whose members are strings by the schema (`[007]`), or None."""
    from hermes_parsers.engine.values.declared_texts import settle_written

    text = text.strip()
    if not text.startswith(("[", "{")) or _INNER.isdisjoint(schema) or _may_be_too_deep(text):
        return None
    found = settle_written(text, schema)
    return found if OF_TYPE.get(type(found)) in allowed else None


def coerce_value(value: Any, schema: Any, text: str | None = None) -> Reading:
    """Read the strings inside a JSON value by the schema of their place; return the value and a note.

    If the text that the value was read from is given, numbers and booleans become strings where the schema asks for
    strings.
    """
    fitter = _Fitter(schema)
    if text is not None:
        value = fitter.with_texts(value, text)
    fitted = fitter.fit(value, schema)
    return fitted, "; ".join(fitter.notes[:_MAX_NOTES])


def misfit(value: Any, schema: Any) -> str:
    """Return a note if the type of a JSON value is not allowed by its schema."""
    allowed = allowed_types(schema)
    kind = OF_TYPE.get(type(value))
    is_number = kind == "integer" or (isinstance(value, float) and value.is_integer())
    if not allowed or kind in allowed or (is_number and not allowed.isdisjoint({"integer", "number"})):
        return ""
    return f"{_quote(str(value))} is not of type {' or '.join(sorted(allowed))}, kept as it is"


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _float(literal: str) -> float:
    value = float(literal)
    if math.isinf(value):
        raise ValueError(f"{literal[:40]} is out of range for a number")
    return value


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse, parse_float=_float)


def _read(text: str, allowed: frozenset[str]) -> Reading:
    for kind, reader in _READERS:
        if kind in allowed:
            found = reader(text, allowed)
            if found is not None:
                return found
    if "string" in allowed:
        return text, ""
    return text, f"{_quote(text)} is not of type {' or '.join(sorted(allowed))}, kept as a string"


def _null(text: str, allowed: frozenset[str]) -> Reading | None:
    is_null = text.strip().lower() in _NULLS if "string" not in allowed else text in {"null", "None"}
    return (None, "") if is_null else None


def _integer(text: str, allowed: frozenset[str]) -> Reading | None:
    found = _numeral(text, allowed)
    if found is None or isinstance(found[0], int):
        return found
    value, note = found
    digits = sum(letter.isdigit() for letter in text)
    if value.is_integer() and digits <= _SURE_DIGITS and abs(value) < 10**_SURE_DIGITS:
        return int(value), note
    return None


def _numeral(text: str, allowed: frozenset[str]) -> Reading | None:
    text = text.strip()
    shape = _NUMERAL.fullmatch(text)
    if shape is None:
        return None
    sign, whole, fraction, exponent = shape.groups()
    if (len(whole) > 1 and whole[0] == "0") or not (whole or (fraction and len(fraction) > 1)):
        return None
    is_json = sign != "+" and whole != "" and fraction != "."
    if not is_json and "string" in allowed:
        return None
    try:
        value = int(text) if fraction is None and exponent is None else float(text)
    except ValueError:  # more digits than the interpreter converts
        return None
    if value in {float("inf"), float("-inf")}:
        return None
    return value, "" if is_json else f"{_quote(text)} was read as {value}"


def _boolean(text: str, allowed: frozenset[str]) -> Reading | None:
    if "string" in allowed:
        found = _BOOLEANS.get(text.lower()) if text in {"true", "false", "True", "False"} else None
        return None if found is None else (found, "")
    word = text.strip().lower()
    if word in _BOOLEANS:
        return _BOOLEANS[word], ""
    return (_DIGITS[word], f"{word} was read as {str(_DIGITS[word]).lower()}") if word in _DIGITS else None


def _structure(wanted: type) -> Callable[[str, frozenset[str]], Reading | None]:
    def read(text: str, allowed: frozenset[str]) -> Reading | None:
        for reader, note in ((_read_json, ""), (_read_python, "a Python literal was read as JSON")):
            try:
                value = reader(text)
            except ValueError:
                value = None
            if isinstance(value, wanted):
                return None if _is_too_deep(value, text) else (value, note)
            if "string" in allowed:
                return None
        return None

    return read


_READERS: Final = (
    ("null", _null),
    ("integer", _integer),
    ("number", _numeral),
    ("boolean", _boolean),
    ("object", _structure(dict)),
    ("array", _structure(list)),
)


def _read_json(text: str) -> Any:
    text = text.strip(" \t\n\r")
    try:
        value, end = _DECODER.raw_decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if end != len(text):
        raise ValueError("more text follows the value")
    return value


def _read_python(text: str) -> Any:
    from hermes_parsers.engine.values.literals import read_literal

    text = text.strip()
    value, end = read_literal(text, 0, len(text))
    if end != len(text):
        raise ValueError("more text follows the literal")
    return value


def coerce_json(text: str, schema: Any) -> Reading:
    """Return the value of a text that the wire calls JSON, and a note.

    Text that is not valid JSON is read by the schema.
    """
    if schema is None:
        if text in _WORDS:
            return _WORDS[text], ""
        if text.isdigit() and text.isascii() and len(text) <= _SURE_DIGITS and text[0] != "0":
            return int(text), ""
    is_text = schema is not None and allowed_types(schema) <= _TEXTS and "string" in allowed_types(schema)
    try:
        value = _read_json(text)
        if is_text and not isinstance(value, str):
            # The tool's schema outranks the type in the tag.
            return coerce_text(text, schema)
    except ValueError:
        value, note = coerce_text(text, schema)
        if value is text and not note:
            note = f"{_quote(text)} is not valid JSON, kept as a string"
        return value, note
    if isinstance(value, dict | list) and _is_too_deep(value, text):
        return text, "nested too deeply, kept as a string"
    return (value, "") if schema is None else coerce_value(value, schema, text)


def _is_too_deep(value: Any, text: str) -> bool:
    if not _may_be_too_deep(text):
        return False
    level = [value]
    for _ in range(_MAX_DEPTH):
        level = [child for parent in level for child in _children(parent)]
        if not level:
            return False
    return True


def _may_be_too_deep(text: str) -> bool:
    return len(text) > _MAX_DEPTH and text.count("[") + text.count("{") + text.count("(") > _MAX_DEPTH


def _children(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


class _Fitter:
    """Converts the misplaced strings of a value; a value that needs no change is returned unchanged."""

    __slots__ = ("notes", "root")

    def __init__(self, root: Any) -> None:
        self.root = root
        self.notes: list[str] = []

    def with_texts(self, value: Any, text: str) -> Any:
        """Return a value with numbers and booleans replaced by their text where only strings are allowed."""
        from hermes_parsers.engine.values.declared_texts import lacks_text, settle_written

        if not lacks_text(value, self.root, self.root):
            return value
        found = settle_written(text.strip(), self.root)
        if found is None or found == value:
            return value
        self.notes.append(_DECLARED_TEXTS)
        return found

    def fit(self, value: Any, schema: Any, path: str = "", depth: int = 0) -> Any:
        if not isinstance(schema, Mapping) or depth > _MAX_FIT_DEPTH:
            return value
        if isinstance(value, str):
            return self._string(value, schema, path)
        if isinstance(value, dict):
            return {**value, **self._fit_members(value.items(), schema, path, depth)}
        if isinstance(value, list):
            changed = self._fit_members(enumerate(value), schema, path, depth)
            return [changed.get(index, member) for index, member in enumerate(value)]
        return value

    def _fit_members(self, members: Iterable[tuple[Any, Any]], schema: Any, path: str, depth: int) -> dict[Any, Any]:
        changed = {}
        for key, member in members:
            place = f"{path}.{key}" if path else str(key)
            changed[key] = self.fit(member, subschema(schema, self.root, key), place, depth + 1)
        return changed

    def _string(self, text: str, schema: Any, path: str) -> Any:
        allowed = allowed_types(schema, self.root)
        if not allowed or "string" in allowed:
            return text
        value, note = _read(text, allowed)
        where = f"{path}: " if path else ""
        self.notes.append(where + (note or f"the string {_quote(text)} was read as {type(value).__name__}"))
        return value


def _quote(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")
