"""Read and write the text between the opening and the closing of a call, by the kind of its content."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from hermes_parsers.declarative.bodies.transforms import call_shape
from hermes_parsers.declarative.errors import TemplateError, fault
from hermes_parsers.declarative.patterns.delimiters import Delimiter
from hermes_parsers.engine.rendering import WrittenCall
from hermes_parsers.engine.scanning.scan import Scan, Wait


class Body(Protocol):
    """A kind of content."""

    def read(self, scan: Scan, start: int, at: int, captures: Mapping[str, str]) -> Wait:
        """Read the body that begins at `at`, and the closing; add the drafts and return where the last one ends, or -1.

        `start` is where the opening began, `captures` are its captures.
        """
        ...

    def write_calls(self, calls: list[WrittenCall]) -> str:
        """Write calls, including openings and closings; raises ValueError if the template does not say how."""
        ...


def call_body(place: str, field: Mapping[str, Any], opening: Delimiter, closing: Delimiter | None) -> Body:
    """Build the reader of a call's content.

    Raises:
        TemplateError: The field does not say where the parts of a call are.
    """
    kind = field.get("content", "text")
    arguments = field.get("content_args") or {}
    each = bool(field.get("transform_each"))
    captures = opening.captures | (closing.captures if closing else frozenset())
    if captures and field.get("transform") is None:
        raise TemplateError(
            f"{place} captures {', '.join(sorted(captures))}, which only a transform can use",
            hint=f"add a transform to {place}, or remove the captures",
        )
    shape = call_shape(f"{place}.transform", field.get("transform"), opening.captures, each=each)
    if kind == "json":
        from hermes_parsers.declarative.bodies.json_body import JsonBody
        from hermes_parsers.declarative.bodies.json_dialects import json_dialect

        return JsonBody(opening, closing, shape, json_dialect(f"{place}.content_args", arguments), is_list=each)
    if not shape.is_named or shape.arguments_in_content:
        raise TemplateError(
            f"{place}.transform: with content {kind!r}, the opening must capture the name and the content must be the "
            f"arguments",
            hint='write "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}',
        )
    if kind == "xml-inline":
        from hermes_parsers.declarative.bodies.tag_body import TagBody
        from hermes_parsers.declarative.bodies.tags import read_tags

        return TagBody(opening, closing, shape, read_tags(f"{place}.content_args", arguments))
    if kind == "kv-lines":
        from hermes_parsers.declarative.bodies.line_body import LineBody, read_lines

        return LineBody(opening, closing, shape, read_lines(f"{place}.content_args", arguments))
    raise fault(f"{place}.content", "json, xml-inline or kv-lines, since arguments are an object", kind)
