"""Read calls with missing opening marks: `<tool_call>fa</arg_key><arg_value>1</arg_value></tool_call>`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from hermes_parsers.markup.call import Parameter, parameter_of
from hermes_parsers.markup.dialect import SPACES, Dialect
from hermes_parsers.markup.source import text_without
from hermes_parsers.schemas import known_names, parameter_schemas

_BLANKS: Final = " \t\n\r"


def split_glued(dialect: Dialect, text: str, tools: Any) -> tuple[str, list[Parameter]] | None:
    """Return the name and parameters between a call's marks, if only one tool can be meant.

    The tool's name must come first; everything else must be its declared parameters, each once and with its closing
    mark.
    """
    known = known_names(tools) if tools else None
    text = text.strip(_BLANKS)
    readings = []
    for name in known or ():
        schemas = parameter_schemas(tools, name) if text.startswith(name) else None
        found = _parameters(dialect, text[len(name) :], schemas) if schemas else None
        if found is not None:
            readings.append((name, found))
    return readings[0] if len(readings) == 1 else None


def _parameters(dialect: Dialect, text: str, schemas: Mapping[str, Any]) -> list[Parameter] | None:
    text = text.lstrip(_BLANKS)
    if dialect.call.optional:
        text = text.removeprefix(dialect.call.optional)
    found: dict[str, Parameter] = {}
    at = 0
    while at < len(text):
        tag = _parameter(dialect).match(text, at)
        name = tag[1].strip() if tag else ""
        if tag is None or name not in schemas or name in found:
            return None
        found[name] = parameter_of(tag, tag["value"])
        at = tag.end()
    return list(found.values())


@cache
def _parameter(dialect: Dialect) -> re.Pattern[str]:
    """Return a pattern for a parameter whose opening mark may be missing, and the space around it."""
    tag, closing = dialect.parameter, dialect.parameter_close
    value = text_without(tag.opening, closing, dialect.call.opening)
    opening = f"(?:{re.escape(tag.opening)})?"
    return re.compile(f"{SPACES}{opening}{tag.rest}(?P<value>{value}){re.escape(closing)}{SPACES}")
