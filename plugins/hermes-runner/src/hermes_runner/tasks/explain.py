"""Converts pydantic errors to messages for the author of a task."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import ValidationError

from hermes_core.nearest import did_you_mean
from hermes_core.redaction import redact_at, validation_message

_SHOWN = 4


def explain(error: ValidationError, known: dict[str, Sequence[str]]) -> str:
    """Return one line that names the field, the expected value and the actual value of up to four problems.

    `known` maps the last field name before an unknown key ("" at the top) to the keys that exist there.
    """
    problems = [_one(problem, known) for problem in error.errors(include_url=False)]
    unique = list(dict.fromkeys(problems))
    rest = f"; and {len(unique) - _SHOWN} more" if len(unique) > _SHOWN else ""
    return "; ".join(unique[:_SHOWN]) + rest


def unknown_key(key: str, keys: Iterable[str]) -> str:
    """Return a message about an unknown key, with the nearest known key or all known keys."""
    keys = list(keys)
    return f"unknown key {key!r}; " + did_you_mean(key, keys, otherwise=f"known keys: {', '.join(keys)}")


def _one(problem: Any, known: dict[str, Sequence[str]]) -> str:
    where = [part for part in problem["loc"] if not _is_type_tag(part)]
    field = ".".join(map(str, where))
    kind = problem["type"]
    if kind == "extra_forbidden":
        parents = [part for part in where[:-1] if isinstance(part, str) and part in known]
        text = unknown_key(str(where[-1]), known[parents[-1] if parents else ""])
        return f"{'.'.join(map(str, where[:-1]))}: {text}" if where[:-1] else text
    if kind == "missing":
        return f"{field!r} is missing"
    # Harbor's section `environment` is not a table of variables; its `env` is.
    names = [part for part in where if part != "environment"]
    # Our own validators say what they got.
    found = "" if kind == "value_error" else short_json(redact_at(problem["input"], names))
    message = validation_message(problem, found)
    return f"{field!r}: {message[:1].lower()}{message[1:]}" if field else message


def _is_type_tag(part: object) -> bool:
    """Return whether a part of a location is pydantic's name of a union's member, not a key of the task."""
    return isinstance(part, str) and ("[" in part or part.endswith(("Record", "-str")) or part == "str")


def short_json(value: object) -> str:
    """Return a value as short JSON."""
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= 60 else f"{text[:57]}…"
