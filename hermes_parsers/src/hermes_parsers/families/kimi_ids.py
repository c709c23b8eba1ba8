"""What the ids of Kimi's calls say: the tool's name, and the number of the call.

The form is `functions.NAME:N`. Models also write `functions_bash_2`, `functions.bash5`, `functions-bash-2`, `bash:2`,
and ids of other services, which hold no name. Where the tools are known, an id means the one of them that fits it.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

_WIRE: Final = re.compile(r"functions\.(.+):\d+", re.DOTALL).fullmatch
_WHOLE: Final = re.compile(r"(?>(functions\.))?+((?!:).+?)(?::[^:]*)?", re.DOTALL).fullmatch
_SLIP: Final = re.compile(r"functions[._\-]([^:]+?)(?:[._\-# ]|: ?)\d{1,9}").fullmatch
_OPAQUE: Final = re.compile(r"\d+|(?:call|toolu|chatcmpl-tool|tool_call)[_-][\w-]*\d[\w-]*").fullmatch
"""Ids of other services."""
_PREFIX: Final = re.compile(r"functions?[._\-:/]*")
_SEPARATORS: Final = "._-:/# "
_NUMBER: Final = re.compile(r"\d{1,9}\Z")
_DIGITS: Final = "0123456789"
_LONGEST: Final = 32
"""So many digits at an id's end may be the name's or the number's."""


def name_in(written: str, known: Collection[str] | None) -> str | None:
    """Return the name an id holds, or None: that of a tool where one is meant, otherwise the likeliest.

    A tool that is really called so comes first, then the longest name that the id can mean.
    """
    found = _WHOLE(written)
    if found is None:
        return None
    names = known or ()
    for whole in (found[2], written) if _WIRE(written) else (written, found[2]):
        if whole in names:
            return str(whole)
    if not found[1] and _OPAQUE(found[2]):
        return None
    if names and (fitting := [name for name in _readings(written) if name in names]):
        return max(fitting, key=len)
    slip = None if _WIRE(written) else _SLIP(written)
    return slip[1] if slip else found[2]


def _readings(written: str) -> set[str]:
    """Return what an id can mean without `functions` before a name, without a number behind it, or without both."""
    prefix = _PREFIX.match(written)
    readings = set()
    for begin in {0, prefix.end() if prefix else 0}:
        rest = written[begin:]
        digits = len(rest) - len(rest.rstrip(_DIGITS))
        for size in range(min(digits, _LONGEST) + 1):
            name = rest[: len(rest) - size]
            readings |= {name, name.rstrip(_SEPARATORS)}
    return readings - {""}


def own_form(written: str, name: str) -> str | None:
    """Return an id of the model's own form for a call with this name; None where the model's id has no number."""
    found = _WIRE(written)
    if found is not None and found[1] == name:
        return written
    before, behind, number = written.rpartition(name)
    number = (number if behind else before + number).strip(_SEPARATORS)
    return f"functions.{name}:{int(number)}" if _NUMBER.fullmatch(number) else None
