"""Read quoted strings of Python and JSON with escapes, in linear time."""

from __future__ import annotations

import json
import re
from typing import Final

Repairs = dict[str, None]
"""The repairs, in order and once each."""

_PLAIN_JSON: Final = re.compile(r'"([^"\\\x00-\x1f]*+)"(?!")')
_CONTROL: Final = re.compile(r"[\x00-\x1f]")
_CHUNKS: Final = {"'": re.compile(r"[^'\\]*+"), '"': re.compile(r'[^"\\]*+')}
_BODIES: Final = {
    "'": re.compile(r"(?>[^'\\]++|\\.)*+'", re.DOTALL),
    '"': re.compile(r'(?>[^"\\]++|\\.)*+"', re.DOTALL),
}
_HEX: Final = re.compile(r"[0-9a-fA-F]*+")
_OCTAL: Final = re.compile(r"[0-7]{1,3}+")
_CHARACTER_NAME: Final = re.compile(r"\{([A-Za-z0-9 -]{1,99}+)\}")
_CUT_CHARACTER_NAME: Final = re.compile(r"(?:\{[A-Za-z0-9 -]{0,99}+)?\Z")

_JSON_ESCAPES: Final = {"\\": "\\", '"': '"', "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_PYTHON_ESCAPES: Final = {
    "\\": "\\",
    "'": "'",
    '"': '"',
    "\n": "",
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
}
_HEX_DIGITS: Final = {"x": 2, "u": 4, "U": 8}
_decode: Final = json.JSONDecoder(strict=False).raw_decode
_LARGE: Final = 1 << 15
"""In a larger text the decoder gets only the part it needs, because its errors count the lines of the whole text."""


class LiteralError(ValueError):
    """The text is not a literal; `is_truncated` says that it ended inside one, so more text may complete it."""

    def __init__(self, message: str, at: int, *, is_truncated: bool = False) -> None:
        super().__init__(message)
        self.at = at
        self.is_truncated = is_truncated


def read_python_string(text: str, at: int, end: int) -> tuple[str, int]:
    """Read a string like Python, but accept line breaks and join surrogate pairs like JSON."""
    quote = text[at]
    if quote == '"' and end == len(text) <= _LARGE and (found := _read_at_once(text, at)) is not None:
        return found
    closing = text.find(quote, at + 1, end)
    if closing > 0 and text[closing - 1] == "\\":
        whole = _BODIES[quote].match(text, at + 1, end)
        closing = -1 if whole is None else whole.end() - 1
    body = text[at + 1 : closing]
    if closing > 0 and (body or not text.startswith(quote, closing + 1, end)):
        if "\\" not in body:
            return body, closing + 1
        written = as_json_string(body, quote)
        if written:
            try:
                return str(_decode(written, 0)[0]), closing + 1
            except ValueError:
                # It has escapes that JSON does not have.
                pass
    return _read_pieces(text, at, end, is_raw=False)


def _read_at_once(text: str, at: int) -> tuple[str, int] | None:
    """Read a string that means the same in JSON and Python; None leaves it to the slow path."""
    try:
        value, after = _decode(text, at)
    except ValueError:
        return None
    if text.find("\\/", at, after) >= 0 or text.startswith('"', after):
        return None
    return value, after


def as_json_string(body: str, quote: str) -> str:
    """Return a Python string in double quotes; "" leaves it to the slow path."""
    if "\\/" in body:
        return ""
    if quote == "'":
        # An unescaped single quote would have ended the string, so each one has a backslash.
        body = body.replace("\\'", "'")
        if '"' in body:
            if '\\"' in body:
                return ""
            body = body.replace('"', '\\"')
    return f'"{body}"'


def read_raw_string(text: str, at: int, end: int) -> tuple[str, int]:
    """Read what follows the `r` of a Python string without escapes."""
    return _read_pieces(text, at, end, is_raw=True)


def read_repaired_string(text: str, at: int, end: int, repairs: Repairs) -> tuple[str, int]:
    """Read a JSON string, or a Python string in its place; repairs are noted."""
    match = _PLAIN_JSON.match(text, at, end)
    if match is not None:
        return match[1], match.end()
    if text[at] == "'":
        repairs["single quotes"] = None
        return read_python_string(text, at, end)
    if text.startswith('"""', at, end):
        repairs["Python literal"] = None
        return read_python_string(text, at, end)
    return _read_json_pieces(text, at, end, repairs)


def _read_pieces(text: str, at: int, end: int, *, is_raw: bool) -> tuple[str, int]:
    quote = text[at]
    delimiter = quote * 3 if text.startswith(quote * 3, at, end) else quote
    at += len(delimiter)
    pieces: list[str] = []
    while True:
        at = _read_chunk(text, at, end, quote, pieces)
        if text.startswith(delimiter, at, end):
            return "".join(pieces), at + len(delimiter)
        if text[at] == "\\":
            piece, at = _read_raw_pair(text, at, end) if is_raw else _read_python_escape(text, at, end)
        else:
            piece, at = quote, at + 1
        pieces.append(piece)


def _read_json_pieces(text: str, at: int, end: int, repairs: Repairs) -> tuple[str, int]:
    pieces: list[str] = []
    at += 1
    while True:
        at = _read_chunk(text, at, end, '"', pieces)
        if _CONTROL.search(pieces[-1]):
            repairs["raw control character"] = None
        if text[at] == '"':
            return "".join(pieces), at + 1
        piece, at = _read_json_escape(text, at, end, repairs)
        pieces.append(piece)


def _read_chunk(text: str, at: int, end: int, quote: str, pieces: list[str]) -> int:
    """Consume the text before the next quote or backslash, and advance to it."""
    match = _CHUNKS[quote].match(text, at, end)
    after = at if match is None else match.end()
    if after >= end:
        raise LiteralError("the text ends inside a string", end, is_truncated=True)
    pieces.append(text[at:after])
    return after


def _read_escaped(text: str, at: int, end: int) -> str:
    if at + 1 >= end:
        raise LiteralError("the text ends inside a string", end, is_truncated=True)
    return text[at + 1]


def _read_json_escape(text: str, at: int, end: int, repairs: Repairs) -> tuple[str, int]:
    char = _read_escaped(text, at, end)
    if char in _JSON_ESCAPES:
        return _JSON_ESCAPES[char], at + 2
    if char == "u":
        return _read_code_point(text, at, end, 4)
    if char not in "'x":
        raise LiteralError(f"\\{char} is not a JSON escape", at)
    repairs["Python escape"] = None
    return _read_python_escape(text, at, end)


def _read_raw_pair(text: str, at: int, end: int) -> tuple[str, int]:
    return "\\" + _read_escaped(text, at, end), at + 2


def _read_python_escape(text: str, at: int, end: int) -> tuple[str, int]:
    char = _read_escaped(text, at, end)
    if char in _PYTHON_ESCAPES:
        return _PYTHON_ESCAPES[char], at + 2
    if char in _HEX_DIGITS:
        return _read_code_point(text, at, end, _HEX_DIGITS[char])
    if char == "N":
        return _read_character_name(text, at, end)
    octal = _OCTAL.match(text, at + 1, end)
    if octal is not None:
        return chr(int(octal[0], 8)), octal.end()
    return "\\" + char, at + 2


def _read_code_point(text: str, at: int, end: int, digits: int) -> tuple[str, int]:
    code, after = _read_hex(text, at, end, digits)
    if 0xD800 <= code <= 0xDBFF and text.startswith("\\u", after, end):
        low, after_low = _read_hex(text, after, end, 4)
        if 0xDC00 <= low <= 0xDFFF:
            return chr(0x10000 + ((code - 0xD800) << 10) + low - 0xDC00), after_low
    if code > 0x10FFFF:
        raise LiteralError("an escape beyond the last Unicode character", at)
    return chr(code), after


def _read_hex(text: str, at: int, end: int, digits: int) -> tuple[int, int]:
    start = at + 2
    match = _HEX.match(text, start, min(start + digits, end))
    after = start if match is None else match.end()
    if after - start < digits:
        raise LiteralError("an escape without its digits", at, is_truncated=after >= end)
    return int(text[start:after], 16), after


def _read_character_name(text: str, at: int, end: int) -> tuple[str, int]:
    # It loads a table of a megabyte that few texts need.
    import unicodedata

    match = _CHARACTER_NAME.match(text, at + 2, end)
    if match is None:
        is_truncated = _CUT_CHARACTER_NAME.match(text, at + 2, end) is not None
        raise LiteralError("an escape without its name", at, is_truncated=is_truncated)
    try:
        return unicodedata.lookup(match[1]), match.end()
    except KeyError as error:
        raise LiteralError(f"there is no character named {match[1]!r}", at) from error
