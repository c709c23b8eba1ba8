"""Read a field's `transform`: where in a region to find the name, the arguments and the id of a call."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from hermes_parsers.declarative.errors import TemplateError, fault
from hermes_parsers.engine.values.json_calls import CallKeys

_PLACEHOLDER: Final = re.compile(r"\{(\w+(?:\.\w+)*)\}")
_EXAMPLE: Final = '{"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}'


class CallShape(NamedTuple):
    """Where the parts of a call are.

    `name` and `id` are captures of the delimiters, or None if they are members of the parsed content, under `keys`; the
    arguments are then a member too. With a captured name or a `fixed_name` the content is the arguments, unless
    `arguments_in_content` says that they are a member of it.
    """

    keys: CallKeys
    name: str | None = None
    id: str | None = None
    fixed_name: str = ""
    arguments_in_content: bool = True

    @property
    def is_named(self) -> bool:
        """Whether the name is known before the content is read."""
        return self.name is not None or bool(self.fixed_name)

    def name_in(self, captures: Mapping[str, str]) -> str:
        """Return the name, given the captures of the opening."""
        return self.fixed_name or (captures.get(self.name, "") if self.name is not None else "")


def call_shape(place: str, transform: Any, captures: Collection[str], *, each: bool) -> CallShape:
    """Read a transform; without one the content is a call or a list of calls.

    Raises:
        TemplateError: It does not say where the parts of a call are.
    """
    if transform is None:
        return CallShape(CallKeys())
    _refuse_mixed(place, transform)
    function = transform.get("function", transform) if isinstance(transform, Mapping) else transform
    if function == "{content}":
        return CallShape(CallKeys())
    if not isinstance(function, Mapping) or "name" not in function:
        raise fault(place, f"a mapping like {_EXAMPLE}", transform)
    reader = _Places(place, frozenset(captures), each=each)
    name = function["name"]
    arguments = reader.member(function.get("arguments", "{content}"))
    written = transform.get("id", function.get("id"))
    known_id = written is None or reader.capture(written) is not None
    id_keys = ("id",) if known_id else (reader.member(written) or "id",)
    capture = reader.capture(name)
    fixed = name if isinstance(name, str) and not _PLACEHOLDER.fullmatch(name) else ""
    name_keys = ("name",) if capture or fixed else (reader.member(name) or "name",)
    return CallShape(
        CallKeys(name=name_keys, arguments=(arguments,) if arguments else (), id=id_keys),
        name=capture,
        id=reader.capture(written) if written is not None else None,
        fixed_name=fixed,
        arguments_in_content=arguments is not None,
    )


class _Places(NamedTuple):
    place: str
    captures: frozenset[str]
    each: bool

    def capture(self, value: Any) -> str | None:
        """Return the capture that a placeholder names, or None."""
        path = self._path(value)
        return path[0] if path and len(path) == 1 and path[0] in self.captures else None

    def member(self, value: Any) -> str | None:
        """Return the key of the content that a placeholder names; None for the whole content."""
        path = self._path(value)
        if path == ["content"] and not self.each:
            return None
        inside = path if self.each else path[1:] if path and path[0] == "content" else None
        if inside is None or len(inside) != 1:
            raise fault(self.place, "placeholders for a capture, {content}, or a key of it like {content.name}", value)
        return inside[0]

    def _path(self, value: Any) -> list[str]:
        found = _PLACEHOLDER.fullmatch(value) if isinstance(value, str) else None
        return found.group(1).split(".") if found else []


def _refuse_mixed(place: str, transform: Any) -> None:
    if isinstance(transform, Mapping):
        for key, value in transform.items():
            _refuse_mixed(f"{place}.{key}", value)
    elif isinstance(transform, list):
        for value in transform:
            _refuse_mixed(place, value)
    elif isinstance(transform, str) and _PLACEHOLDER.search(transform) and not _PLACEHOLDER.fullmatch(transform):
        raise TemplateError(
            f"{place}: expected a placeholder alone, got {transform!r:.120}, which mixes one with other text",
            hint='write it like "{content}"',
        )
