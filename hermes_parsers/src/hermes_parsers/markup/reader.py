"""The family-specific parts of reading a call with tagged parameters: body, name and types of values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from hermes_core.contracts.parsing import AttemptStatus
from hermes_parsers.coercion import coerce_json, coerce_text, coerce_value, misfit
from hermes_parsers.engine.scanning.reader import FormatReader
from hermes_parsers.engine.scanning.scan import Draft
from hermes_parsers.markup.call import Call, Parameter
from hermes_parsers.markup.dialect import Dialect
from hermes_parsers.markup.source import Source
from hermes_parsers.markup.values import BodyReader
from hermes_parsers.schemas import parameter_schemas
from hermes_parsers.writing import dumps

Declared = Literal["text", "json"]
Schemas = Mapping[str, Any] | None


class CallReader(FormatReader):
    """Builds drafts of calls; a family names its dialects, and defines how values are typed."""

    dialects: ClassVar[tuple[Dialect, ...]] = ()
    wraps: ClassVar[bool] = False
    """Whether the block belongs to its one call; otherwise it is framing around any number of them."""
    declared: ClassVar[Mapping[str, Declared]] = {}
    """Maps the text after the name in a parameter's tag to the value's type; without it only the schema decides."""
    wrappers: ClassVar[tuple[str, ...]] = ()
    """Names under which a model may put all its arguments as one object (vllm#41240)."""

    def prepare(self) -> None:
        """Check whether the family uses values unchanged, which is faster."""
        self._is_verbatim = type(self).text_of is CallReader.text_of
        self._is_untyped = not self.declared and not any(dialect.element for dialect in self.dialects)

    def _texts(self, found: Sequence[tuple[str, ...]]) -> dict[str, str]:
        """Return arguments as texts, without schemas."""
        if self._is_verbatim:
            return {parameter[0]: parameter[-1] for parameter in found}
        text_of = self.text_of
        return {parameter[0]: text_of(parameter[-1], True) for parameter in found}

    def read_body(self, source: Source, call: Call, at: int) -> None:
        """Read the parameters that begin at `at`, and the end of the call. Raises IncompleteError."""
        BodyReader(source, call).read(at)

    def reads_otherwise(self, source: Source, at: int) -> bool:  # noqa: ARG002 - for families with another form
        """Whether the call that begins here has another form than tagged parameters. Raises IncompleteError."""
        return False

    def name_of(self, written: str, tools: Any) -> str:  # noqa: ARG002 - for families whose names need the tools
        """Return the tool's name from the text in the call's tag."""
        return written

    def draft(self, call: Call) -> Draft:
        """Return the draft of a call that was read."""
        name = self.name_of(call.name, call.tools)
        draft = Draft(call.start, call.end, call.status, name or None, reason=call.reason)
        self._set_arguments(draft, call.parameters, call.tools)
        return draft

    def draft_glued(self, draft: Draft, name: str, parameters: Sequence[Parameter], tools: Any) -> Draft:
        """Return a draft for a call in which a parameter lacks its opening mark, in place of the given one."""
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
        """Return the type that a tag with additional or different attributes gives a value."""
        return next((kind for said, kind in self.declared.items() if said.strip() in attributes), None)

    def _unwrap(self, arguments: dict[str, Any], schemas: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
        [(name, value)] = arguments.items()
        if name not in self.wrappers or name in schemas:
            return arguments
        if isinstance(value, str):
            value, _ = coerce_text(value, {"type": "object"})
        if not isinstance(value, dict):
            return arguments
        notes.append(f"the arguments were inside one parameter {name!r}")
        value, note = coerce_value(value, {"type": "object", "properties": schemas})
        if note:
            notes.append(note)
        return dict(value)

    def text_of(self, text: str, is_closed: bool) -> str:  # noqa: FBT001 - called for every parameter
        """Return a value without the template's text around it; unchanged unless a family overrides this."""
        return text if is_closed else text.removesuffix("\n")
