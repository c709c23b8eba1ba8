"""Read tool lists and their JSON schemas without raising on malformed ones.

Local references (`#/$defs/…`), `anyOf`, `oneOf` and `allOf` are followed, with limits against cycles and excessive
size.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

# More than JSON Schema's names: tool lists made from Python or SQL signatures use these, and servers accept them.
_KINDS: Final[Mapping[str, str]] = {
    alias: kind
    for kind, aliases in {
        "null": "null none nil nonetype",
        "integer": "integer int int8 int16 int32 int64 uint uint8 uint16 uint32 uint64 long short unsigned bigint",
        "number": "number num float float32 float64 double decimal",
        "boolean": "boolean bool",
        "object": "object dict map mapping",
        "array": "array arr list tuple set sequence",
        "string": "string str text varchar char enum",
    }.items()
    for alias in aliases.split()
}
OF_TYPE: Final[Mapping[type, str]] = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}
_ALONE: Final[Mapping[str, frozenset[str]]] = {alias: frozenset((kind,)) for alias, kind in _KINDS.items()}
COMPOSITIONS: Final = ("anyOf", "oneOf", "allOf")
_DEFINITIONS: Final = ("$defs", "definitions")
_MAX_BRANCHES: Final = 64
_MAX_POINTER_STEPS: Final = 16
_NOTHING: Final[frozenset[str]] = frozenset()


def known_names(tools: Any) -> frozenset[str] | None:
    """Return the names in a tool list, or None if it has none; then no tool can be reported as unknown."""
    return frozenset(function["name"] for function in functions(tools)) or None


def parameter_schemas(tools: Any, name: str) -> Mapping[str, Any] | None:
    """Return the schemas of a tool's parameters by name, or None if the list has no such tool.

    Each schema includes the definitions of the whole, so its local references resolve.
    """
    for function in functions(tools):
        if function["name"] == name:
            return _properties(function.get("parameters"))
    return None


def tools_that_take(tools: Any, arguments: Mapping[str, Any]) -> list[str]:
    """Return the names of the tools that have a parameter for each argument and require no other."""
    found: dict[str, None] = {}
    for function in functions(tools):
        parameters = function.get("parameters")
        required = parameters.get("required") if isinstance(parameters, Mapping) else None
        needed = [key for key in required if isinstance(key, str)] if isinstance(required, list | tuple) else []
        if arguments.keys() <= _properties(parameters).keys() and all(key in arguments for key in needed):
            found[function["name"]] = None
    return list(found)


def allowed_types(schema: Any, root: Any = None) -> frozenset[str]:
    """Return the JSON types a schema allows; empty if it does not say, which allows all.

    An explicit `type` decides; without one, enum and const values, then the alternatives. `root` is the document that
    local references point into, by default the schema itself.
    """
    if type(schema) is dict and "nullable" not in schema:
        declared = schema.get("type")
        alone = _ALONE.get(declared) if type(declared) is str else None
        if alone is not None:
            return alone
    found: set[str] = set()
    for branch in branches(schema, schema if root is None else root, into_typed=False):
        found |= _own_types(branch)
    return frozenset(found)


def branches(schema: Any, root: Any, *, into_typed: bool = True) -> Iterator[Mapping[str, Any]]:
    """Yield a schema and all its alternatives and parts, each once, up to a fixed number.

    Without `into_typed`, the parts of a schema with an explicit `type` are left out.
    """
    pending, seen = deque([schema]), 0
    met: set[int] = set()
    while pending and seen < _MAX_BRANCHES:
        branch = pending.popleft()
        if not isinstance(branch, Mapping) or id(branch) in met:
            continue
        met.add(id(branch))
        seen += 1
        yield branch
        if into_typed or not _declared_types(branch):
            pending += _parts(branch, root)


def subschema(schema: Any, root: Any, key: str | int) -> Any:
    """Return the schema for a member of an object or array value, None if there is none."""
    for branch in branches(schema, root):
        found = _property(branch, key) if isinstance(key, str) else _item(branch, key)
        if isinstance(found, Mapping):
            return found
    return None


def is_among(text: str, schema: Mapping[str, Any]) -> bool:
    """Tell whether a text is, as a string, one of the values a schema lists."""
    listed = schema.get("enum")
    return schema.get("const") == text or (isinstance(listed, list) and text in listed)


def functions(tools: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the functions of a tool list that have a name."""
    if not isinstance(tools, Sequence) or isinstance(tools, str | bytes):
        return
    for tool in tools:
        if isinstance(tool, Mapping):
            function = tool.get("function", tool)
            if isinstance(function, Mapping) and isinstance(function.get("name"), str):
                yield function


def _properties(parameters: Any) -> Mapping[str, Any]:
    properties = parameters.get("properties") if isinstance(parameters, Mapping) else None
    if not isinstance(properties, Mapping):
        return {}
    definitions = {key: parameters[key] for key in _DEFINITIONS if isinstance(parameters.get(key), Mapping)}
    if not definitions:
        return properties
    return {
        name: {**schema, **definitions} if isinstance(schema, Mapping) else schema
        for name, schema in properties.items()
    }


def _own_types(schema: Mapping[str, Any]) -> frozenset[str]:
    declared = _declared_types(schema)
    found = declared or _listed_types(schema) or _implied_types(schema)
    # OpenAPI's keyword; alone it does not restrict the other types.
    return found | {"null"} if found and schema.get("nullable") is True else found


def _declared_types(schema: Mapping[str, Any]) -> frozenset[str]:
    declared = schema.get("type")
    if isinstance(declared, str):
        kind = _kind(declared)
        return frozenset((kind,)) if kind else _NOTHING
    if isinstance(declared, list | tuple):
        kinds = (_kind(one) for one in declared if isinstance(one, str))
        return frozenset(kind for kind in kinds if kind)
    return _NOTHING


def _kind(name: str) -> str | None:
    # `list[str]` and `Dict[str, int]` come from annotations copied into schemas unchanged.
    return _KINDS.get(name) or _KINDS.get(name.strip().lower().partition("[")[0])


def _listed_types(schema: Mapping[str, Any]) -> frozenset[str]:
    listed = schema.get("enum")
    values = list(listed) if isinstance(listed, list | tuple) else []
    if "const" in schema:
        values.append(schema["const"])
    return frozenset(kind for kind in (OF_TYPE.get(type(value)) for value in values) if kind)


def _implied_types(schema: Mapping[str, Any]) -> frozenset[str]:
    # Not declared, so a string remains possible.
    if isinstance(schema.get("properties"), Mapping):
        return frozenset(("object", "string"))
    if isinstance(schema.get("items"), Mapping):
        return frozenset(("array", "string"))
    return _NOTHING


def _parts(schema: Mapping[str, Any], root: Any) -> list[Any]:
    parts: list[Any] = []
    if "$ref" in schema:
        parts.append(_resolve_pointer(schema["$ref"], root))
    for key in COMPOSITIONS:
        choices = schema.get(key)
        if isinstance(choices, list | tuple):
            parts += choices
    return parts


def _resolve_pointer(pointer: Any, root: Any) -> Any:
    if not isinstance(pointer, str) or not pointer.startswith("#"):
        return None
    found = root
    for step in pointer[1:].split("/", _MAX_POINTER_STEPS)[1:]:
        found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
    return found


def _property(schema: Mapping[str, Any], key: str) -> Any:
    properties = schema.get("properties")
    if isinstance(properties, Mapping) and key in properties:
        return properties[key]
    return schema.get("additionalProperties")


def _item(schema: Mapping[str, Any], index: int) -> Any:
    first = schema.get("prefixItems")
    if isinstance(first, list) and index < len(first):
        return first[index]
    return schema.get("items")
