"""The base of the families with tagged parameters: reading blocks of calls, typing values, writing calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Literal

from hermes_core.contracts.parsing import AttemptStatus, ParseResult
from hermes_parsers.coercion import coerce_json, coerce_text, coerce_value, misfit
from hermes_parsers.engine.rendering import WrittenCall, read_message, refuse_unless_same
from hermes_parsers.engine.round_trip import refuse_unless_read_with_tools
from hermes_parsers.engine.scanning.parser import ScanningParser
from hermes_parsers.engine.scanning.scan import UNDECIDED, Draft, Scan, Wait
from hermes_parsers.markup.blocks import Block, pass_repeated_end
from hermes_parsers.markup.call import Call, Parameter
from hermes_parsers.markup.dialect import Dialect
from hermes_parsers.markup.fast_path import QuickCall, QuickReader
from hermes_parsers.markup.source import IncompleteError, Source
from hermes_parsers.markup.values import BodyReader
from hermes_parsers.schemas import parameter_schemas
from hermes_parsers.writing import dumps

Declared = Literal["text", "json"]
Schemas = Mapping[str, Any] | None


class MarkupParser(ScanningParser):
    """Reads its dialects; a subclass names them and says how values and calls are written."""

    dialects: ClassVar[tuple[Dialect, ...]] = ()
    wraps: ClassVar[bool] = False
    """Whether the block belongs to its one call; otherwise it is framing around any number of them."""
    declared: ClassVar[Mapping[str, Declared]] = {}
    """What the text behind the name in a parameter's tag says of its value; without it the schema alone decides."""
    wrappers: ClassVar[tuple[str, ...]] = ()
    """Names under which a model may have put all its arguments in one object (vllm#41240)."""

    def prepare(self) -> None:
        """See whether the family takes values as they stand, which is quicker."""
        self._is_verbatim = type(self).text_of is MarkupParser.text_of
        self._is_untyped = not self.declared and not any(dialect.element for dialect in self.dialects)

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
        """Read as `read` does, all the text being there."""
        dialect = self._dialect(scan.text, at)
        source = Source(scan.text, final=True)
        quick = _quick_reader(dialect).read(scan.text, at, is_single=self.wraps)
        end = Block(self, scan, at, dialect).read(source) if quick is None else self._take(scan, at, *quick)
        return pass_repeated_end(source, end, dialect)

    def _take(self, scan: Scan, at: int, calls: Sequence[QuickCall], end: int) -> int:
        """Hand in the calls of a block that was wholly there."""
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

    def _texts(self, found: Sequence[tuple[str, ...]]) -> dict[str, str]:
        """Return arguments of which nothing is known but their texts."""
        if self._is_verbatim:
            return {parameter[0]: parameter[-1] for parameter in found}
        text_of = self.text_of
        return {parameter[0]: text_of(parameter[-1], True) for parameter in found}

    def _dialect(self, text: str, at: int) -> Dialect:
        for dialect in self.dialects:
            if text.startswith(dialect.openers, at):
                return dialect
        raise AssertionError("the engine calls `read` at an opening mark only")

    def read_body(self, source: Source, call: Call, at: int) -> None:
        """Read the parameters that begin at `at`, and the end of the call. Raises IncompleteError."""
        BodyReader(source, call).read(at)

    def reads_otherwise(self, source: Source, at: int) -> bool:  # noqa: ARG002 - for families with another form
        """Whether the call that begins here is none of tagged parameters. Raises IncompleteError."""
        return False

    def name_of(self, written: str, tools: Any) -> str:  # noqa: ARG002 - for families whose names need the tools
        """Return the tool's name, of what stands in the call's tag."""
        return written

    def draft(self, call: Call) -> Draft:
        """Return what is to be said of a call that is read."""
        name = self.name_of(call.name, call.tools)
        draft = Draft(call.start, call.end, call.status, name or None, reason=call.reason)
        self._set_arguments(draft, call.parameters, call.tools)
        return draft

    def draft_glued(self, draft: Draft, name: str, parameters: Sequence[Parameter], tools: Any) -> Draft:
        """Return what is to be said of a call in which a parameter lacks its opening mark, in place of a draft."""
        missing = f"repaired: an opening {self.dialects[0].parameter.opening} is missing"
        found = Draft(draft.start, draft.end, AttemptStatus.REPAIRED, name, reason=missing)
        self._set_arguments(found, parameters, tools)
        return found

    def _set_arguments(self, draft: Draft, parameters: Sequence[Parameter], tools: Any) -> None:
        schemas = parameter_schemas(tools, draft.name or "") if tools else None
        draft.value, notes = self.arguments_of(parameters, schemas)
        draft.arguments = dumps(draft.value)
        if notes:
            draft.reason = "; ".join([draft.reason, *notes] if draft.reason else notes)

    def arguments_of(self, parameters: Sequence[Parameter], schemas: Schemas) -> tuple[dict[str, Any], list[str]]:
        """Return the arguments of a call by the schemas of its tool's parameters, and notes."""
        text_of, declared, is_verbatim = self.text_of, self.declared, self._is_verbatim
        if schemas is None and not declared:
            return {name: text_of(text, is_closed) for name, _, text, is_closed in parameters}, []
        arguments: dict[str, Any] = {}
        notes = []
        for name, attribute, raw, is_closed in parameters:
            text = raw if is_verbatim and is_closed else text_of(raw, is_closed)
            kind = declared.get(attribute)
            if kind is None and attribute:
                kind = self._find_declared(attribute)
            schema = None if schemas is None else schemas.get(name)
            if kind == "text":
                value, note = text, ""
            else:
                value, note = (coerce_json if kind else coerce_text)(text, schema)
            arguments[name] = value
            if kind and schema is not None and not note:
                note = misfit(value, schema)
            if note:
                notes.append(f"{name}: {note}")
        if self.wrappers and len(arguments) == 1 and schemas is not None:
            arguments = self._unwrap(arguments, schemas, notes)
        return arguments, notes

    def _find_declared(self, attributes: str) -> Declared | None:
        """Return what is said of a value by a tag with more, or other, attributes than the format's own."""
        return next((kind for said, kind in self.declared.items() if said.strip() in attributes), None)

    def _unwrap(self, arguments: dict[str, Any], schemas: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
        [(name, value)] = arguments.items()
        if name not in self.wrappers or name in schemas:
            return arguments
        if isinstance(value, str):
            value, _ = coerce_text(value, {"type": "object"})
        if not isinstance(value, dict):
            return arguments
        notes.append(f"the arguments stood inside one parameter {name!r}")
        value, note = coerce_value(value, {"type": "object", "properties": schemas})
        if note:
            notes.append(note)
        return dict(value)

    def text_of(self, text: str, is_closed: bool) -> str:  # noqa: FBT001 - called for every parameter
        """Return a value without what the template writes around it; verbatim unless a family says otherwise."""
        return text if is_closed else text.removesuffix("\n")

    def render(self, message: ParseResult | Mapping[str, Any]) -> str:
        """Write a message back: byte for byte what was parsed, otherwise as the model's template does.

        Raises:
            ValueError: It cannot be written so that it reads back the same.
        """
        if isinstance(message, ParseResult):
            return super().render(message)
        reasoning, content, calls = read_message(message)
        text = self.write_reasoning(reasoning) + self.write(content, calls)
        # Without the tools, what is read back is the text of each value.
        expected = [self._as_read(call) for call in calls]
        try:
            refuse_unless_same(self.parse(text), reasoning, content, expected)
            refuse_unless_read_with_tools(self.parse, text, calls, self._tags_in(text, calls))
        except ValueError as error:
            raise self._refusal(calls, error) from error
        return text

    def _tags_in(self, text: str, calls: Sequence[WrittenCall]) -> list[str]:
        """Return the names in a text's tags where more stand there than were written: values hold some."""
        tags = [tag[1].strip() for one in self.dialects if not one.element for tag in one.parameter.find_all(text)]
        return tags if len(tags) > sum(len(call.value) for call in calls) else []

    def _refusal(self, calls: Sequence[WrittenCall], error: ValueError) -> ValueError:
        """Name the value that holds a mark, where that is the cause."""
        mark = self.dialects[0].parameter_close
        for call in calls:
            for name, value in call.value.items():
                if mark in self.write_value(value):
                    return ValueError(
                        f"the value of {name!r} of {call.name!r} holds {mark!r}, which would end it: {error}"
                    )
        return error

    def _as_read(self, call: WrittenCall) -> WrittenCall:
        value = {name: self.read_back(value) for name, value in call.value.items()}
        return WrittenCall(name=call.name, arguments=call.arguments, value=value, id=call.id)

    def read_back(self, value: Any) -> Any:
        """Return what a written value is read as when nothing is known of its type."""
        return self.write_value(value)

    def write_value(self, value: Any) -> str:
        """Write a value: a string as it is, anything else as JSON."""
        return value if isinstance(value, str) else dumps(value)


# One for each dialect of this package, which are few and never change.
_quick_reader = lru_cache(maxsize=None)(QuickReader)
