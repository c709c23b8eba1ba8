"""Read the ids of Kimi's calls: the tool's name and the number of the call.

The form is `functions.NAME:N`. Models also write `functions_bash_2`, `functions.bash5`, `functions-bash-2`, `bash:2`,
`bash_2_3`, `Tools.Bash()`, and ids without a name: those of other services, and `functions:0`. If the tools are known,
an id means the tool that fits it.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

_WIRE: Final = re.compile(r"functions\.(\S+):[0-9]+").fullmatch
_WHOLE: Final = re.compile(r"(?>(functions\.))?+((?!:).+?)(?::[^:]*)?", re.DOTALL).fullmatch
_SLIP: Final = re.compile(r"functions[._\-]([^:\s]+?)(?:[._\-:# ]{1,4}[0-9]{1,9})+").fullmatch
_OPAQUE: Final = re.compile(
    r"(?i:functions?|tools?)?[._\-:/# 0-9]*|(?:call|toolu|chatcmpl-tool|tool_call)[_-][\w-]*[0-9][\w-]*"
).fullmatch
"""An id without a name: only the prefix and numbers, or one of another service."""
_PREFIX: Final = re.compile(r"[`'(]*+(?i:functions?|tools?)[._\-:/]*")
_SEPARATORS: Final = "._-:/# "
_AROUND: Final = "`'()"
"""Text that models put around a name."""
_NUMBERS: Final = re.compile(r"[._\-:/# `'()0-9]*?(?<![0-9])([0-9]++)[._\-:/# `'()]*").fullmatch
_DIGITS: Final = "0123456789"
_MOST: Final = 4
"""The number of prefixes before a name, and of numbers after it, that are examined."""
_LONGEST: Final = 32
"""The number of digits at the end of an id that may belong to the name or the number."""


def name_in(written: str, known: Collection[str] | None) -> str | None:
    """Return the name an id holds, or None: that of the meant tool, or else the likeliest.

    A tool with exactly this name comes first, then the longest name that the id can mean.
    """
    found = _WHOLE(written)
    if found is None:
        return None
    names = known or ()
    for whole in (found[2], written) if _WIRE(written) else (written, found[2]):
        if whole in names:
            return str(whole)
    if names and (fitting := _fitting(_readings(written), names)):
        return max(fitting, key=len)
    # The family's standard form holds a name, even `functions.0:1`, unless no tool has that name.
    if _OPAQUE(written) and (names or not _WIRE(written)):
        return None
    slip = None if _WIRE(written) else _SLIP(written)
    return slip[1] if slip else found[2]


def _fitting(readings: Collection[str], names: Collection[str]) -> list[str]:
    """Return the matching names: exact matches, or else matches that ignore case."""
    if exact := [name for name in readings if name in names]:
        return exact
    folded = {name.casefold() for name in readings}
    alike = [name for name in names if name.casefold() in folded]
    longest = max(map(len, alike), default=0)
    return alike if [len(name) for name in alike].count(longest) == 1 else []


def _readings(written: str) -> set[str]:
    """Return the possible names in an id: without the prefix `functions`, without text around it, or without both."""
    readings = set()
    for whole in _without_prefixes(written):
        rest = whole
        for _ in range(_MOST):
            digits = len(rest) - len(rest.rstrip(_DIGITS))
            for size in range(min(digits, _LONGEST) + 1):
                name = rest[: len(rest) - size]
                readings |= {name, name.rstrip(_SEPARATORS), name.strip(_SEPARATORS + _AROUND)}
            rest = rest[: len(rest) - digits].rstrip(_SEPARATORS + _AROUND)
    return readings - {""}


def _without_prefixes(written: str) -> list[str]:
    rests = [written]
    while len(rests) <= _MOST and (prefix := _PREFIX.match(rests[-1])):
        rests.append(rests[-1][prefix.end() :])
    return rests


def own_form(written: str, name: str) -> str | None:
    """Return an id in the model's form for a call with this name; None if the model's id has no number."""
    found = _WIRE(written)
    if found is not None and found[1] == name:
        return written
    spelled = [*re.finditer(re.escape(name), written, re.IGNORECASE)]
    numbers = _NUMBERS(written[spelled[-1].end() :] if spelled else _without_prefixes(written)[-1])
    return f"functions.{name}:{int(numbers[1])}" if numbers else None
