"""The base class of families with tagged parameters: reads blocks of calls, types values, writes calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from hermes_core.contracts.parsing import AttemptStatus, ParseResult
from hermes_parsers.engine.rendering import WrittenCall, read_message, refuse_unless_same
from hermes_parsers.engine.round_trip import refuse_unless_read_with_tools
from hermes_parsers.engine.scanning.parser import ScanningParser
from hermes_parsers.engine.scanning.scan import UNDECIDED, Draft, Scan, Wait
from hermes_parsers.markup.blocks import Block, pass_repeated_end
from hermes_parsers.markup.dialect import Dialect
from hermes_parsers.markup.fast_path import QuickCall, QuickReader
from hermes_parsers.markup.reader import CallReader
from hermes_parsers.markup.source import IncompleteError, Source
from hermes_parsers.schemas import parameter_schemas
from hermes_parsers.writing import dumps


class MarkupParser(CallReader, ScanningParser):
    """Reads its dialects; a subclass names them and defines how values and calls are written."""

    def read(self, scan: Scan, at: int) -> Wait:
        """Read a block of calls, or a call without a block."""
        dialect = self._dialect(scan.text, at)
        quick = _quick_reader(dialect).read(scan.text, at, is_single=self.wraps)
        block = None if quick is not None else Block(self, scan, at, dialect)
        end = self._take(scan, at, *quick) if quick is not None else UNDECIDED
        while True:
            try:
                source = Source(scan.text, final=scan.final)
                if block is not None and end == UNDECIDED:
                    end = block.read(source)
                return pass_repeated_end(source, end, dialect)
            except IncompleteError as incomplete:
                wakes = incomplete.wakes
            yield wakes

    def read_now(self, scan: Scan, at: int) -> int:
        """Read like `read`, from complete text."""
        dialect = self._dialect(scan.text, at)
        source = Source(scan.text, final=True)
        quick = _quick_reader(dialect).read(scan.text, at, is_single=self.wraps)
        end = Block(self, scan, at, dialect).read(source) if quick is None else self._take(scan, at, *quick)
        return pass_repeated_end(source, end, dialect)

    def _take(self, scan: Scan, at: int, calls: Sequence[QuickCall], end: int) -> int:
        """Add the calls of a complete block."""
        for start, stop, written, found in calls:
            name = self.name_of(written, scan.tools)
            draft = Draft(at, end, AttemptStatus.OK, name) if self.wraps else Draft(start, stop, AttemptStatus.OK, name)
            schemas = parameter_schemas(scan.tools, name) if scan.tools else None
            if schemas is None and self._is_untyped:
                draft.value = self._texts(found)
            else:
                has_attribute = bool(found) and len(found[0]) > 2
                parameters = [(one[0], one[1] if has_attribute else "", one[-1], True) for one in found]
                draft.value, notes = self.arguments_of(parameters, schemas)
                draft.reason = "; ".join(notes)
            draft.arguments = dumps(draft.value)
            scan.drafts.append(draft)
        return end

    def _dialect(self, text: str, at: int) -> Dialect:
        for dialect in self.dialects:
            if text.startswith(dialect.openers, at):
                return dialect
        raise AssertionError("the engine calls `read` at an opening mark only")

    def render(self, message: ParseResult | Mapping[str, Any]) -> str:
        """Write a message back: byte for byte what was parsed, otherwise as the model's template does.

        Raises:
            ValueError: It cannot be written so that it reads back the same.
        """
        if isinstance(message, ParseResult):
            return super().render(message)
        reasoning, content, calls = read_message(message)
        text = self.write_reasoning(reasoning) + self.write(content, calls)
        # Without the tools, each value is read back as its text.
        expected = [self._as_read(call) for call in calls]
        try:
            refuse_unless_same(self.parse(text), reasoning, content, expected)
            refuse_unless_read_with_tools(self.parse, text, calls, self._tags_in(text, calls))
        except ValueError as error:
            raise self._refusal(calls, error) from error
        return text

    def _tags_in(self, text: str, calls: Sequence[WrittenCall]) -> list[str]:
        """Return the names in a text's tags if there are more than were written: some are inside values."""
        tags = [tag[1].strip() for one in self.dialects if not one.element for tag in one.parameter.find_all(text)]
        return tags if len(tags) > sum(len(call.value) for call in calls) else []

    def _refusal(self, calls: Sequence[WrittenCall], error: ValueError) -> ValueError:
        """Name the value that contains a mark, if that is the cause."""
        mark = self.dialects[0].parameter_close
        for call in calls:
            for name, value in call.value.items():
                if mark in self.write_value(value):
                    return ValueError(
                        f"the value of {name!r} of {call.name!r} contains {mark!r}, which would end it: {error}"
                    )
        return error

    def _as_read(self, call: WrittenCall) -> WrittenCall:
        value = {name: self.read_back(value) for name, value in call.value.items()}
        return WrittenCall(name=call.name, arguments=call.arguments, value=value, id=call.id)

    def read_back(self, value: Any) -> Any:
        """Return the value as it will be read back without a schema."""
        return self.write_value(value)

    def write_value(self, value: Any) -> str:
        """Write a value: a string unchanged, anything else as JSON."""
        return value if isinstance(value, str) else dumps(value)


# One per dialect of this package; they are few and never change.
_quick_reader = lru_cache(maxsize=None)(QuickReader)
