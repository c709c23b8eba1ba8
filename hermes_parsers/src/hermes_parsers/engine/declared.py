"""What a tool's schema declares to be a text, where a format's own notation would make a number or a word of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from hermes_parsers.schemas import allowed_types, parameter_schemas, subschema

_TEXT_OR_NULL: Final = frozenset({"string", "null"})
_NO_SCHEMAS: Final[Mapping[str, Any]] = {}


def declared_parameters(tools: Any, name: str | None) -> Mapping[str, Any]:
    """Return the schemas of a tool's parameters; none where the tool is not known."""
    return (parameter_schemas(tools, name) if tools and name else None) or _NO_SCHEMAS


def is_text(schema: Any, root: Any = None) -> bool:
    """Whether a schema allows a text and, but for null, nothing else; `root` is what its references point into."""
    return schema is not None and "string" in (kinds := allowed_types(schema, root)) and kinds <= _TEXT_OR_NULL


def allows_null(schema: Any, root: Any = None) -> bool:
    """Whether a schema names null among the types it allows."""
    return "null" in allowed_types(schema, root)


def lacks_texts(arguments: Mapping[str, Any], schemas: Mapping[str, Any]) -> bool:
    """Whether something else stands in a call's arguments where a text is declared, so that these take a closer look.

    A null counts: only what was written shows whether it is the word.
    """
    return bool(schemas) and any(
        not isinstance(value, str) and _lacks_text(value, schemas.get(key), schemas.get(key))
        for key, value in arguments.items()
    )


def _lacks_text(value: Any, schema: Any, root: Any) -> bool:
    if schema is None or isinstance(value, str):
        return False
    if is_text(schema, root):
        return True
    return any(_lacks_text(member, subschema(schema, root, key), root) for key, member in _members(value))


def _members(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, dict):
        return value.items()
    return enumerate(value) if isinstance(value, list) else ()
