"""Checks callers' arguments before they are sent, so that an error names what is wrong."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_TIMEOUT_MAX: Final = 1e9
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def encode_text(text: str, what: str) -> bytes:
    """Encode text for a process: UTF-8, with bytes that were not UTF-8 restored."""
    try:
        data = text.encode(errors="surrogateescape")
    except UnicodeEncodeError as error:
        raise ValueError(f"{what} cannot contain the lone surrogate {text[error.start]!r}") from error
    if b"\0" in data:
        raise ValueError(f"{what} cannot contain a NUL character; it has one at byte {data.index(0)}")
    return data


def check_path(path: str) -> str:
    """Return a path that the operating system accepts."""
    if not path:
        raise FileNotFoundError(2, "No such file or directory", path)
    encode_text(path, "a path")
    return path


def check_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables that bash accepts."""
    for name, value in variables.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"expected an environment variable of letters, digits and '_', got {name!r}")
        encode_text(value, f"the variable {name}")
    return dict(variables)


def check_range(offset: int, length: int | None) -> None:
    """Raise `ValueError` unless a file has such a range; None is all that follows."""
    if offset < 0 or (length is not None and length < 0):
        raise ValueError(f"expected an offset and a length of 0 or more, got {offset} and {length}")


def check_timeout(seconds: float) -> float:
    """Return a number of seconds that is valid as a timeout."""
    if not 0 <= seconds < _TIMEOUT_MAX:  # NaN fails this too
        raise ValueError(f"timeout: expected seconds from 0 to below {_TIMEOUT_MAX:g}, got {seconds!r}")
    return seconds
