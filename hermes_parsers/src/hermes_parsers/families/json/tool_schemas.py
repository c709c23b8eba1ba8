"""Distinguish the declaration of a tool in an answer from a call: both are an object with a name and parameters."""

from __future__ import annotations

from typing import Any, Final

from hermes_parsers.engine.scanning.scan import Draft
from hermes_parsers.engine.values.declared_texts import declared_parameters
from hermes_parsers.engine.values.json_calls import without_spans
from hermes_parsers.engine.values.json_text import members_at

_DESCRIPTION: Final = '"description"'
_SCHEMA_KEYS: Final = frozenset(
    {"type", "properties", "required", "additionalProperties", "description", "title", "strict", "$schema", "$defs"}
)


def is_declaration(tools: Any, text: str, at: int, draft: Draft) -> bool:
    """Whether the object at `at`, from which a draft was built, describes a tool rather than calls it.

    A description has a `description` beside its name and parameters, or a schema as its arguments.
    """
    value = draft.value
    if not draft.is_good or draft.name is None or not isinstance(value, dict):
        return False
    declared = declared_parameters(tools, draft.name)
    if "properties" in value and "properties" in declared:
        return False
    return (_is_schema(value) and not ("type" in declared and "properties" not in value)) or _is_described(
        text, at, draft.end
    )


def _is_schema(value: dict[str, Any]) -> bool:
    """Whether arguments are a JSON schema: of an object, with properties, or both."""
    kind = value.get("type")
    is_object = isinstance(kind, str) and kind.casefold() == "object"
    has_properties = isinstance(value.get("properties"), dict)
    return (is_object and has_properties) or ((is_object or has_properties) and _SCHEMA_KEYS.issuperset(value))


def _is_described(text: str, at: int, end: int) -> bool:
    if text.find(_DESCRIPTION, at, end) < 0:
        return False
    found, _ = members_at(text[at:end], 0)
    function = found.get("function")
    if function is not None and isinstance(function[0], dict) and "name" not in found:
        found = without_spans(function[0])
    return "description" in found and "parameters" in found
