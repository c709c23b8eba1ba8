"""Write values as JSON text, fast and encodable in UTF-8."""

from __future__ import annotations

import json
from collections.abc import Mapping
from json.encoder import encode_basestring
from typing import Any, Final

_FEW: Final = 16
"""Up to this number of members, writing them one by one is faster."""
_WRITTEN: Final[Mapping[Any, str]] = {True: "true", False: "false", None: "null"}
_PLAIN: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
_ASCII: Final = json.JSONEncoder(allow_nan=False)


def dumps(value: Any) -> str:
    """Write a value as JSON, unescaped unless it holds lone surrogates, which UTF-8 cannot carry.

    Raises:
        ValueError: It contains NaN or an infinity, or is nested too deeply.
    """
    try:
        text = _write(value)
        if not text.isascii():
            text.encode()
    except UnicodeEncodeError:
        return _ASCII.encode(value)
    except RecursionError:
        raise ValueError("nested too deeply to be written as JSON") from None
    return text


def _write(value: Any) -> str:
    """Write common values without the encoder, which the library creates again for each value."""
    kind = type(value)
    if kind is str:
        return encode_basestring(value)
    if kind is int:
        return str(value)
    if value is None or kind is bool:
        return _WRITTEN[value]
    try:
        if kind is list and len(value) <= _FEW:
            return f"[{', '.join([_write(item) for item in value])}]"
        if kind is dict and len(value) <= _FEW:
            quote = encode_basestring
            members = [
                f"{quote(key)}: {quote(member) if type(member) is str else _write(member)}"
                for key, member in value.items()
            ]
            return f"{{{', '.join(members)}}}"
    except TypeError:  # a key that is not a str
        pass
    return _PLAIN.encode(value)
