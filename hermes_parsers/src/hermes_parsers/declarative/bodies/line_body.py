"""Calls with one parameter per line: content `kv-lines`."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, Final, NamedTuple

from hermes_core.contracts.parsing import AttemptStatus
from hermes_parsers.declarative.bodies.transforms import CallShape
from hermes_parsers.declarative.bodies.values import ValueReader, value_reader
from hermes_parsers.declarative.errors import fault
from hermes_parsers.declarative.patterns.delimiters import Delimiter
from hermes_parsers.declarative.patterns.spelling import spell
from hermes_parsers.engine.rendering import WrittenCall
from hermes_parsers.engine.scanning.scan import Draft, Marks, Scan, Wait
from hermes_parsers.schemas import parameter_schemas
from hermes_parsers.writing import dumps

_KNOWN: Final = ("line_sep", "kv_sep", "strip", "value_parser")


class Lines(NamedTuple):
    """The separators between lines and between key and value."""

    between: str
    separator: str
    strips: bool
    values: ValueReader


def read_lines(place: str, arguments: Mapping[str, Any]) -> Lines:
    """Read the arguments of content `kv-lines`.

    Raises:
        TemplateError: An argument is unknown or has the wrong type.
    """
    for key in arguments:
        if key not in _KNOWN:
            raise fault(place, f"one of {', '.join(_KNOWN)}", key)
    between, separator = arguments.get("line_sep", "\n"), arguments.get("kv_sep", ":")
    for key, value in (("line_sep", between), ("kv_sep", separator)):
        if not isinstance(value, str) or not value:
            raise fault(f"{place}.{key}", "a text that is not empty", value)
    values = value_reader(f"{place}.value_parser", arguments.get("value_parser"))
    return Lines(between, separator, bool(arguments.get("strip", True)), values)


class LineBody:
    """Content `kv-lines`; a call ends at its closing, at the next opening, or with the text."""

    def __init__(self, opening: Delimiter, closing: Delimiter | None, shape: CallShape, lines: Lines) -> None:
        self._opening = opening
        self._closing = closing
        self._shape = shape
        self._lines = lines
        ends = (opening,) if closing is None else (closing, opening)
        self._marks = Marks(tuple({mark for end in ends for mark in end.marks}))

    def read(self, scan: Scan, start: int, at: int, captures: Mapping[str, str]) -> Wait:
        """Read up to the closing, then read the lines."""
        stop, end = yield from self._extent(scan, at)
        draft = Draft(start, end)
        if end == len(scan.text) and end == stop and self._closing is not None:
            draft.status, draft.reason = AttemptStatus.TRUNCATED, "the text ends inside the call"
        elif end == stop and self._closing is not None:
            draft.cut(f"the closing {self._closing.marks[0]} is missing")
        self._fill(scan, draft, scan.text[at:stop], captures)
        scan.drafts.append(draft)
        return end

    def _extent(self, scan: Scan, at: int) -> Generator[str, None, tuple[int, int]]:
        """Return where the body ends and where the call ends."""
        while (found := (yield from self._marks.seek(scan, at))) is not None:
            place = found.start()
            if self._closing is not None and (end := (yield from self._closing.match(scan, place))) >= 0:
                return place, end
            if (yield from self._opening.match(scan, place)) >= 0:
                return place, place
            at = place + 1
        return len(scan.text), len(scan.text)

    def _fill(self, scan: Scan, draft: Draft, body: str, captures: Mapping[str, str]) -> None:
        name = self._shape.name_in(captures)
        schemas: Mapping[str, Any] = parameter_schemas(scan.tools, name) or {}
        value: dict[str, Any] = {}
        notes: list[str] = []
        for line in body.split(self._lines.between):
            key, separator, text = line.partition(self._lines.separator)
            if not separator:
                continue
            if self._lines.strips:
                key, text = key.strip(), text.strip()
            value[key], note = self._lines.values.read(text, schemas.get(key))
            if note:
                notes.append(f"{key}: {note}")
        draft.value, draft.arguments = value, dumps(value)
        draft.reason = draft.reason or "; ".join(notes)
        draft.name = name.strip()

    def write_calls(self, calls: list[WrittenCall]) -> str:
        """Write the calls one after the other.

        Raises:
            ValueError: The metadata does not say how.
        """
        return "".join([self._write_call(call) for call in calls])

    def _write_call(self, call: WrittenCall) -> str:
        captures = {} if self._shape.name is None else {self._shape.name: call.name}
        lines = self._lines.between.join([self._line(key, value) for key, value in call.value.items()])
        closing = spell(self._closing.nodes, captures) if self._closing else ""
        return f"{spell(self._opening.nodes, captures)}{lines}{closing}"

    def _line(self, key: str, value: Any) -> str:
        text = value if isinstance(value, str) else dumps(value)
        return f"{key}{self._lines.separator} {text}" if self._lines.strips else f"{key}{self._lines.separator}{text}"
