"""The options that a component's model declares, at every level, read from its JSON schema."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import BaseModel

_WRAPPERS = ("anyOf", "oneOf", "allOf")
_IS_SECRET = re.compile(r"(?:typing\.Optional\[|<class ')?pydantic\.types\.Secret\w*(?:\[[^][]*])?(?:]|'>| \| None)?")


class OptionSchema:
    """The names of options, and which of them are `SecretStr` or `SecretBytes`, at any depth."""

    def __init__(self, model: type[BaseModel]) -> None:
        self._definitions: dict[str, Any] = {}
        try:
            forms = [self._form(model, by_alias=by_alias) for by_alias in (False, True)]
            # A validator can have its own schema, which does not describe what it returns.
            for name, field in model.model_fields.items():
                if _IS_SECRET.fullmatch(repr(field.annotation)):
                    for form in forms:
                        form["properties"] |= {key: {"writeOnly": True} for key in {name, field.alias or name}}
        except Exception:  # noqa: BLE001 - the plugin boundary: types are the author's code; then all may be secret
            forms = [{"type": "object", "properties": {name: {"writeOnly": True} for name in model.model_fields}}]
        self._root = list(self._kinds({"anyOf": forms}))

    def mark(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return options with a `SecretStr` wherever the model declares one, and for unknown options."""
        return {name: self._mark(item, list(_parts(self._root, name))) for name, item in options.items()}

    def names_at(self, place: Sequence[str | int]) -> list[str]:
        """Return the names of the options at a place, given as in an error of pydantic's."""
        kinds = self._root
        for step in place:
            # A step that is not in the options is pydantic's name for a union's member.
            kinds = [kind for part in _parts(kinds, step) for kind in self._kinds(part)] or kinds
        return list(dict.fromkeys(name for kind in kinds for name in kind.get("properties", ())))

    def _form(self, model: type[BaseModel], *, by_alias: bool) -> dict[str, Any]:
        """Return the schema of options by aliases or by fields' names; each of the two has its own references."""
        from pydantic.json_schema import GenerateJsonSchema

        class Schema(GenerateJsonSchema):
            ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - pydantic's own form

            def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> dict[str, Any]:
                del schema, error_info
                return {}  # an object of Python, which no config can hold

        template = f"#/{by_alias}/{{model}}"
        form = model.model_json_schema(by_alias=by_alias, ref_template=template, schema_generator=Schema)
        self._definitions |= {template.format(model=name): item for name, item in form.pop("$defs", {}).items()}
        return form

    def _mark(self, value: Any, schemas: Sequence[Any]) -> Any:
        kinds = [kind for schema in schemas for kind in self._kinds(schema)]
        types = {kind.get("type") for kind in kinds}
        if value is None or hasattr(value, "get_secret_value"):
            return value
        if not kinds or any(kind.get("writeOnly") is True for kind in kinds):
            return mark_all(value)
        if isinstance(value, Mapping) and types & {"object", None}:
            return {name: self._mark(item, list(_parts(kinds, name))) for name, item in value.items()}
        if isinstance(value, list | tuple | set | frozenset) and types & {"array", None}:
            return [self._mark(item, list(_parts(kinds, n))) for n, item in enumerate(value)]
        # Not written in a form that the model declares, but such a form would hold a secret.
        return mark_all(value) if self._holds_secret(kinds, set()) else value

    def _kinds(self, schema: Any) -> Iterator[Mapping[str, Any]]:
        """Yield the kinds of value that a schema allows; a schema without a type allows any."""
        schema = schema if isinstance(schema, Mapping) else {}
        inner = [part for word in _WRAPPERS for part in schema.get(word, ())]
        if "$ref" in schema:
            inner.append(self._definitions[schema["$ref"]])
        for part in inner:
            yield from self._kinds(part)
        if not inner:
            yield schema

    def _holds_secret(self, part: Any, seen: set[str]) -> bool:
        if isinstance(part, list):
            return any(self._holds_secret(item, seen) for item in part)
        if not isinstance(part, Mapping):
            return False
        inner = list(part.values())
        if isinstance(reference := part.get("$ref"), str) and reference not in seen:
            seen.add(reference)
            inner.append(self._definitions.get(reference))
        return part.get("writeOnly") is True or any(self._holds_secret(item, seen) for item in inner)


def mark_all(value: Any) -> Any:
    """Return a value with a `SecretStr` for each value in it; its lists and mappings stay."""
    from pydantic import SecretStr

    if isinstance(value, Mapping):
        return {name: mark_all(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [mark_all(item) for item in value]
    return value if value is None or hasattr(value, "get_secret_value") else SecretStr(str(value))


def _parts(kinds: Sequence[Mapping[str, Any]], step: str | int) -> Iterator[Any]:
    """Yield the schemas of the values one step inside these kinds; none for a name that a model lacks."""
    for kind in kinds:
        if "type" not in kind:
            yield True
        elif kind["type"] == "array" and isinstance(step, int):
            first = kind.get("prefixItems", ())
            yield first[step] if step < len(first) else kind.get("items", True)
        elif kind["type"] == "object":
            yield from kind.get("patternProperties", {}).values()
            # A model accepts other names only if it says so; a mapping, which declares no names, accepts any.
            takes_any = not {"properties", "patternProperties"} & kind.keys()
            if step in kind.get("properties", ()):
                yield kind["properties"][step]
            elif others := kind.get("additionalProperties", takes_any):
                yield others
