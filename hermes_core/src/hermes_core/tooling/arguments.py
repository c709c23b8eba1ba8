"""From the text a model wrote to checked arguments, or to an answer the model can act on."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from hermes_core.contracts.errors import BrokenComponentError
from hermes_core.nearest import nearest_names
from hermes_core.specs import ToolSpec

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError

_MAX_PROBLEMS = 3
_MOST_COUNTED = 20
_SHOWN = 80
_JSON_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}


class ArgumentsError(ValueError):
    """The arguments cannot be used; the text is the answer to the model."""


class ArgumentChecker:
    """Checks and coerces arguments; compiles each spec's schema once, so keep one object per runtime."""

    __slots__ = ("_compiled",)

    def __init__(self) -> None:
        # By identity, because a spec holds its schema and cannot be hashed; the spec is kept so that the id stays its.
        self._compiled: dict[int, tuple[ToolSpec, Draft202012Validator]] = {}

    def prepare(self, spec: ToolSpec, text: str) -> dict[str, Any]:
        """Return the arguments as the tool expects them, or raise `ArgumentsError`."""
        from referencing.exceptions import Unresolvable

        validator = self._validator(spec)
        try:
            arguments = coerce(decode_arguments(text), spec.parameters)
            errors = list(islice(validator.iter_errors(arguments), _MOST_COUNTED))
        except RecursionError:
            raise ArgumentsError(_invalid("it is nested too deeply")) from None
        except Unresolvable as error:
            raise _broken_schema(spec, str(error)) from error
        if errors:
            raise ArgumentsError(_explain(spec, errors))
        assert isinstance(arguments, dict)
        return arguments

    def _validator(self, spec: ToolSpec) -> Draft202012Validator:
        known = self._compiled.get(id(spec))
        if known is None:
            known = self._compiled[id(spec)] = (spec, _compile(spec))
        return known[1]


def prepare_arguments(spec: ToolSpec, text: str) -> dict[str, Any]:
    """Check one call's arguments; an `ArgumentChecker` does the same and compiles each schema only once."""
    return ArgumentChecker().prepare(spec, text)


def unknown_tool_answer(name: str, available: Sequence[str]) -> str:
    """Answer a call of a tool that does not exist or was not offered."""
    near = nearest_names(name, available, 3, cutoff=0.5)
    guess = f" Did you mean {' or '.join(near)}?" if near else ""
    offer = f"Available tools: {', '.join(available)}." if available else "No tools are available."
    return f"Unknown tool {_shorten(name)}.{guess} {offer}"


def decode_arguments(text: str) -> dict[str, Any]:
    """Read a JSON object; one that was encoded twice is unwrapped, and no text at all means no arguments."""
    value = _loads(text) if text.strip() else {}
    if isinstance(value, str) and value.lstrip().startswith("{"):
        value = _loads(value)
    if not isinstance(value, dict):
        raise ArgumentsError(
            f'Tool arguments must be a JSON object such as {{"name": value}}, got {_kind(value)} {_shorten(value)}.'
        )
    return value


def is_whole(text: str) -> bool:
    """Tell whether a text is a call's arguments to their end: there is something, and it can be read."""
    try:
        return bool(text.strip()) and decode_arguments(text) is not None
    except ArgumentsError:
        return False


def coerce(value: Any, schema: Any) -> Any:
    """Bring a value to the type its schema declares where that is unambiguous; otherwise return it as it is.

    A declared string stays as the model wrote it, whatever it looks like.
    """
    types = _types(schema)
    if not types:
        return value
    if isinstance(value, str) and "string" not in types:
        value = _from_text(value, types)
    if type(value) is float and "number" not in types and "integer" in types and value.is_integer():
        value = int(value)
    if "array" in types and not isinstance(value, list | dict | None) and _kind(value) not in types:
        value = [value]
    if isinstance(value, dict) and (properties := schema.get("properties")):
        return {key: coerce(item, properties.get(key)) for key, item in value.items()}
    if isinstance(value, list) and (items := schema.get("items")):
        return [coerce(item, items) for item in value]
    return value


def _types(schema: Any) -> tuple[str, ...]:
    if not isinstance(schema, Mapping):
        return ()
    declared = schema.get("type")
    if isinstance(declared, str):
        return (declared, "null") if schema.get("nullable") is True else (declared,)
    if isinstance(declared, list):
        return tuple(declared)
    return tuple(name for branch in schema.get("anyOf") or schema.get("oneOf") or () for name in _types(branch))


def _from_text(text: str, types: tuple[str, ...]) -> Any:
    plain = text.strip()
    if plain == "null" and "null" in types:
        return None
    if "boolean" in types and plain.lower() in {"true", "false"}:
        return plain.lower() == "true"
    if ("integer" in types or "number" in types) and (number := _number(plain, types)) is not None:
        return number
    wanted = tuple(kind for name, kind in (("array", list), ("object", dict)) if name in types)
    if wanted and plain[:1] in {"[", "{"}:
        try:
            value = _loads(plain)
        except ArgumentsError:
            return text
        return value if isinstance(value, wanted) else text
    return text


def _number(plain: str, types: tuple[str, ...]) -> int | float | None:
    if re.fullmatch(r"[+-]?\d{1,1000}", plain, re.ASCII):
        return int(plain)
    if re.fullmatch(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?", plain, re.ASCII):
        number = float(plain)
        if "number" in types:
            return number if abs(number) != float("inf") else None
        return int(number) if number.is_integer() else None
    return None


def _loads(text: str) -> Any:
    try:
        value = json.loads(text, parse_constant=_no_constant, object_pairs_hook=unique_keys)
        # Half a surrogate pair passes json.loads and fails later, in whatever writes it.
        if "\\u" in text or not text.isascii():
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ArgumentsError(_invalid("half of a surrogate pair is no character")) from None
    except (ValueError, RecursionError) as error:
        raise ArgumentsError(_invalid(str(error))) from error
    return value


def _invalid(reason: str) -> str:
    return f"Invalid JSON in tool arguments: {reason}. Please retry with valid JSON."


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of these pairs, for `json.loads`; raises ValueError for a key that occurs twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
        raise ValueError(f"the key {_shorten(twice)} occurs twice in one object")
    return found


def _compile(spec: ToolSpec) -> Draft202012Validator:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError
    from referencing import Registry

    try:
        Draft202012Validator.check_schema(spec.parameters)
    except SchemaError as error:
        raise _broken_schema(spec, error.message) from error
    # An empty registry: a "$ref" to an address is never fetched.
    return Draft202012Validator(dict(spec.parameters), registry=Registry())


def _broken_schema(spec: ToolSpec, reason: str) -> BrokenComponentError:
    return BrokenComponentError(
        f"tool {spec.name!r} declares parameters that are no usable JSON schema: {reason}",
        hint="report this to the plugin that declares the tool",
    )


def _explain(spec: ToolSpec, errors: list[ValidationError]) -> str:
    problems = [*dict.fromkeys(islice((line for error in errors for line in _problems(error)), _MOST_COUNTED))]
    more, least = len(problems) - _MAX_PROBLEMS, "at least " if len(problems) == _MOST_COUNTED else ""
    shown = "; ".join(problems[:_MAX_PROBLEMS]) + (f"; and {least}{more} more" if more > 0 else "")
    return f"Invalid arguments for {spec.name}: {shown}. Please correct the call and retry."


def _problems(error: ValidationError) -> Iterator[str]:
    where = error.json_path.removeprefix("$").removeprefix(".")
    known = list(error.schema.get("properties", {})) if isinstance(error.schema, Mapping) else []
    inside = f" in {where}" if where else ""
    instance: Any = error.instance
    wanted: Any = error.validator_value
    if error.validator == "required":
        absent = (name for name in wanted if name not in instance)
        yield from (f"missing argument '{name}'{inside}{_type_hint(error.schema, name)}" for name in absent)
    elif error.validator == "additionalProperties" and wanted is False:
        strangers = (name for name in instance if name not in known)
        yield from (f"unknown argument {_shorten(name)}{inside}{_nearest(name, known)}" for name in strangers)
    else:
        value = f"{_kind(instance)} {_shorten(instance)}"
        yield f"{where or 'arguments'}: expected {_expectation(error)}, got {value}"


def _type_hint(schema: Any, name: str) -> str:
    wanted = schema.get("properties", {}).get(name, {})
    return f" ({' or '.join(types)})" if (types := _types(wanted)) else ""


def _nearest(name: str, known: list[str]) -> str:
    if not known:
        return " (it takes no arguments)"
    near = nearest_names(name, known, cutoff=0.5)
    return f" (did you mean '{near[0]}'?)" if near else f" (known: {', '.join(known)})"


def _expectation(error: ValidationError) -> str:
    value: Any = error.validator_value
    match error.validator:
        case "type":
            return value if isinstance(value, str) else " or ".join(value)
        case "enum":
            return "one of " + ", ".join(json.dumps(item, ensure_ascii=False) for item in value)
        case "minLength" if value == 1:
            return "a text that is not empty"
        case "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum":
            return f"{error.validator} {value}"
        case _:
            return f"a value that satisfies {error.validator}: {_shorten(value)}"


def _kind(value: Any) -> str:
    return "null" if value is None else _JSON_TYPES.get(type(value), type(value).__name__)


def _shorten(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"
