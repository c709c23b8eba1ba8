"""The parser suite for the reference parsers, and the part of it that runs on mutants."""

from __future__ import annotations

import json

from hermes_testing import ParserSuite
from reference.parser import FieldParser, TagParser
from reference.streaming import StreamedTagParser


class TagSuite(ParserSuite):
    plugin, component = "reference.plugin", "tags"
    parser_class = TagParser
    block_marks = (("<call>", "</call>"),)
    lacks = {"early_events": "it knows complete texts only"}  # noqa: RUF012 - as an author writes it

    def wire(self, calls, content=""):
        blocks = [json.dumps({"name": name, "arguments": arguments}) for name, arguments in calls]
        return "\n".join([*([content] if content else []), *(f"<call>{block}</call>" for block in blocks)])

    def make(self, registry):
        super().make(registry)
        return self.parser_class()


class StreamedSuite(TagSuite):
    parser_class = StreamedTagParser
    lacks = {}  # noqa: RUF012 - as an author writes it


class FieldSuite(TagSuite):
    component = "fields"
    parser_class = FieldParser
    lacks = {  # noqa: RUF012 - as an author writes it
        **TagSuite.lacks,
        "json_arguments": "fields hold text",
        "typed_values": "fields hold text",
        "own_marks": "fields cannot be escaped",
        "any_names": "names are words",
        "end_mark": "without the end tag, fields may be missing",
    }

    def wire(self, calls, content=""):
        blocks = [f"<call>{FieldParser().write_body(*call)}</call>" for call in calls]
        return "\n".join([*([content] if content else []), *blocks])


class Mutant(TagSuite):
    fuzz_messages = 100
    long_text = 100_000


class StreamedMutant(StreamedSuite):
    fuzz_messages = 100
    long_text = 100_000


class FieldMutant(FieldSuite):
    fuzz_messages = 100
    long_text = 100_000
