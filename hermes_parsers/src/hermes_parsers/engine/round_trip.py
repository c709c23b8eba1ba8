"""Read a written message back with the tools that it calls: a reader who knows the tools must read the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from hermes_core.contracts.parsing import ParseResult
    from hermes_parsers.engine.rendering import WrittenCall

_MOST: Final = 8
"""If calls of one tool give its parameters different types, the message is read back once per set of types."""
_KINDS: Final = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}

Group = tuple[list[Mapping[str, Any]], list[int]]
"""Tools, and the indices of the calls that they cover."""


def refuse_unless_read_with_tools(
    parse: Callable[[str, list[Mapping[str, Any]]], ParseResult],
    text: str,
    calls: Sequence[WrittenCall],
    others: Sequence[str] = (),
) -> None:
    """Raise ValueError unless a written text reads back the same when the tools are known.

    `others` are further parameters of the tools: names of tags that occur in the text.
    """
    for tools, places in groups_of(calls, others):
        found = parse(text, tools).calls
        for place in places:
            name, wanted = calls[place].name, _canonical(calls[place].arguments)
            read = found[place] if len(found) == len(calls) else None
            if read is None or (read.name, _canonical(read.arguments)) != (name, wanted):
                has = "a different number of calls" if read is None else repr((read.name, read.arguments))
                raise ValueError(
                    f"the call of {name!r} cannot be written in this format: with its tool's schema it would be read "
                    f"as {has:.300}"
                )


def _canonical(arguments: str) -> str:
    return json.dumps(json.loads(arguments), sort_keys=True)


def groups_of(calls: Sequence[WrittenCall], others: Sequence[str] = ()) -> Iterator[Group]:
    """Yield tools whose parameters have the types of the calls' arguments; all have the parameters `others` too."""
    groups: list[tuple[dict[str, dict[str, Any]], list[int]]] = []
    for place, call in enumerate(calls):
        declared = {key: _schema_of(value) for key, value in call.value.items()}
        for tools, _ in groups:
            known = tools.get(call.name, {})
            if all(known.get(key, schema) == schema for key, schema in declared.items()):
                break
        else:
            if len(groups) == _MOST:
                continue
            groups.append(({}, []))
            tools = groups[-1][0]
        tools.setdefault(call.name, {}).update(declared)
        next(places for one, places in groups if one is tools).append(place)
    for named, places in groups:
        yield (
            [_tool(name, {**{key: {"type": "string"} for key in others}, **one}) for name, one in named.items()],
            places,
        )


def _tool(name: str, properties: Mapping[str, Any]) -> Mapping[str, Any]:
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def _schema_of(value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return {"type": "object", "properties": {key: _schema_of(member) for key, member in value.items()}}
    if isinstance(value, list | tuple):
        return {"type": "array", "prefixItems": [_schema_of(item) for item in value]}
    return {"type": _KINDS.get(type(value), "string")}
