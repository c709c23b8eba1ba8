"""A list of calls where a format has one object, apart from the objects since few texts need it."""

from __future__ import annotations

from collections.abc import Mapping

from hermes_parsers.engine.json_calls import CallKeys
from hermes_parsers.families.json_array import JsonArrayParser


class TaggedListParser(JsonArrayParser):
    """`<tool_call>[{"name": "f", "arguments": {}}, …]</tool_call>`, with the marks and keys of the format it is in."""

    def __init__(self, openers: tuple[str, ...], closers: Mapping[str, str], keys: CallKeys) -> None:
        vars(self).update(openers=openers, closers=closers, keys=keys)
        super().__init__()
