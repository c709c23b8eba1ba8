"""Load a template from a mapping, JSON text, a tokenizer_config.json, or a model's folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import PathLike
from typing import Any, Final, NamedTuple

from hermes_parsers.declarative.errors import TemplateError, fault

FILE: Final = "tokenizer_config.json"
OLDER: Final = "response_schema"
_MARKERS: Final = ("fields", "start_anchor", "start_anchor_pattern")


class Source(NamedTuple):
    """A template as found, with the end-of-text tokens of its tokenizer."""

    spec: Any
    place: str
    end_marks: tuple[str, ...] = ()


def find_template(source: Mapping[str, Any] | str | PathLike[str], name: str) -> Source:
    """Find the metadata; `name` is its key in a tokenizer's configuration.

    Raises:
        TemplateError: There is none, or it is not a JSON object.
    """
    if isinstance(source, Mapping):
        return _of_mapping(source, name, "the mapping")
    if isinstance(source, str) and source.lstrip().startswith("{"):
        return _of_mapping(_object(source, "the text"), name, "the text")
    if isinstance(source, str | PathLike):
        return _of_path(source, name)
    raise fault("source", f"a mapping, JSON text, or the path of a {FILE} or of a model's folder", source)


def _of_path(source: str | PathLike[str], name: str) -> Source:
    # Importing it costs more than the rest of this package, and most templates come as mappings.
    from pathlib import Path

    path = Path(source)
    file = path / FILE if path.is_dir() else path
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise TemplateError(
            f"the template cannot be read from {str(file)!r:.300}: {error}",
            hint=f"give the path of a {FILE}, of the folder it is in, or the JSON itself",
        ) from error
    return _of_mapping(_object(text, str(file)), name, str(file))


def _object(text: str, place: str) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TemplateError(f"{place} is not valid JSON: {error}", hint="check it with: python -m json.tool") from error
    if not isinstance(found, Mapping):
        raise fault(place, "a JSON object", found)
    return found


def _of_mapping(found: Mapping[str, Any], name: str, place: str) -> Source:
    if name in found:
        return Source(found[name], name, _end_marks(found))
    if any(marker in found for marker in _MARKERS) or _is_older(found):
        return Source(found, name)
    if OLDER in found:
        return Source(found[OLDER], OLDER)
    raise TemplateError(
        f"{place} has no {name!r}, and is not a template itself: its keys are "
        f"{', '.join(map(repr, list(found)[:8])) or 'none'}",
        hint="use a revision of the model that has one, or a parser by name: hermes-core parsers list",
    )


def _is_older(found: Mapping[str, Any]) -> bool:
    return "properties" in found or any(str(key).startswith("x-") for key in found)


def _end_marks(config: Mapping[str, Any]) -> tuple[str, ...]:
    token = config.get("eos_token")
    text = token.get("content") if isinstance(token, Mapping) else token
    return (text,) if isinstance(text, str) and text.strip() else ()
