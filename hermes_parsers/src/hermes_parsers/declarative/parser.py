"""The parser that is built from a response template."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, ClassVar

from hermes_core.contracts.parsing import ParseMode, ParseResult, ToolSchema
from hermes_parsers.declarative.errors import TemplateError
from hermes_parsers.declarative.patterns.delimiters import Delimiter
from hermes_parsers.declarative.regions import RegionReader, Regions
from hermes_parsers.declarative.stream import TemplateStream
from hermes_parsers.declarative.template import CallField, ResponseTemplate, TextField
from hermes_parsers.engine.rendering import WrittenCall, read_message, refuse_other_text
from hermes_parsers.engine.round_trip import refuse_unless_read_with_tools
from hermes_parsers.engine.scanning.closed_blocks import unread_reason
from hermes_parsers.engine.scanning.parser import ScanningParser
from hermes_parsers.engine.scanning.scan import INVALID_JSON, UNCLOSED, Draft, Marks, Scan, Wait, skip_space


class TemplateParser(RegionReader, ScanningParser):
    """A parser built from metadata; see `hermes_parsers.declarative`.

    Args:
        template: The template, as read from the metadata.
        end_marks: The texts of special tokens that may end a message.
        promote_drafts: Turn calls that were drafted in reasoning into calls when no call follows.
        reasoning_opened: The prompt has already opened the reasoning, so the text begins inside it.
    """

    # The metadata does not say which marks are special tokens.
    ends_reasoning: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        template: ResponseTemplate,
        *,
        end_marks: Sequence[str] = (),
        promote_drafts: bool = False,
        reasoning_opened: bool = False,
    ) -> None:
        self.template = template
        self.regions = _regions(template, end_marks)
        tags = _tags(template)
        marks = [*self.regions.silent]
        for field, _ in self.regions.fields:
            marks += field.header.marks if field.header else field.openings
        if template.calls is not None:
            marks += [mark for mark in template.calls.opening.marks if mark not in template.calls.opening.weak]
        # Other families declare these on their class; here they come from the metadata and belong to this object.
        vars(self).update(openers=tuple(dict.fromkeys(marks)), reasoning_tags=tags, other_thinking=())
        vars(self).update(stop_tokens=tuple(dict.fromkeys(end_marks)))
        if reasoning_opened and tags is None:
            raise TemplateError(
                "reasoning_opened: not supported for this template, because its marks of reasoning are not a "
                "pair that nothing else uses",
                hint="omit reasoning_opened, and give the parser the text including the opening of the reasoning",
            )
        super().__init__(promote_drafts=promote_drafts, reasoning_opened=reasoning_opened)

    def prepare(self) -> None:
        """Compile a pattern for where an unreadable call may end: at its closing or at the opening of another field."""
        closing = self.template.calls.closing if self.template.calls else None
        openers = [mark for mark in self.openers if mark not in self.template.anchors]
        self._ends = Marks((*openers, *(closing.marks if closing else ())))

    def read(self, scan: Scan, at: int) -> Wait:
        """Read the calls that begin here."""
        calls = self.template.calls
        if calls is None:
            return -1
        end = yield from self._read_call(scan, at, calls)
        while end >= 0 and (yield from self._continues(scan, end)):
            at = yield from skip_space(scan, end)
            after = yield from self._read_call(scan, at, calls)
            if after < 0:
                break
            end = after
        return end if end < 0 or calls.closing is None else (yield from self._leave(scan, end, calls.closing))

    def _opens(self, scan: Scan, at: int, calls: CallField) -> Generator[str, None, bool]:
        """Whether a call or another field of the template begins here."""
        for field, _ in self.regions.fields:
            if (yield from self.regions.match_opening(field, scan, at)) >= 0:
                return True
        is_region = self.reasoning_tags is not None and scan.text.startswith(self.reasoning_tags[0], at)
        return is_region or (yield from calls.opening.match(scan, at)) >= 0

    def _leave(self, scan: Scan, end: int, closing: Delimiter) -> Wait:
        """Skip a duplicate closing, and report the text before the missing closing of the last call."""
        is_open = scan.drafts[-1].status is UNCLOSED
        while True:
            at = yield from skip_space(scan, end)
            if is_open and (found := (yield from self._next_closing(scan, at, closing))) is not None:
                rest = scan.text[at : found[0]].strip()
                reason = f"expected a call or {closing.marks[0]} after the call, got {rest!r:.80}"
                scan.drafts.append(Draft(at, found[1], INVALID_JSON, reason=reason))
                end, is_open = found[1], False
                continue
            after = yield from closing.match(scan, at)
            mark = scan.text[at:after].strip() if after >= 0 else ""
            # A bracket after a call need not be its closing.
            if len(mark) < 2 or not scan.text[max(0, end - len(mark) - 9) : end].rstrip().endswith(mark):
                return end
            scan.drafts[-1].note_repeated(mark)
            end = after

    def _next_closing(self, scan: Scan, at: int, closing: Delimiter) -> Generator[str, None, tuple[int, int] | None]:
        """Return where the next mark begins and where its closing ends, or None if the mark belongs to no closing."""
        found = self._ends.sure(scan.text, at) if scan.final else (yield from self._ends.seek(scan, at))
        if found is None or found[0] not in closing.marks or len(found[0]) < 2:
            return None
        after = yield from closing.match(scan, found.start())
        return (found.start(), after) if after >= 0 else None

    def _continues(self, scan: Scan, end: int) -> Generator[str, None, bool]:
        """Whether an opening follows that only separates calls, such as a comma, and has no meaning elsewhere."""
        calls = self.template.calls
        if calls is None or not calls.opening.weak:
            return False
        at = yield from skip_space(scan, end)
        return scan.text.startswith(calls.opening.weak, at)

    def _read_call(self, scan: Scan, at: int, calls: CallField) -> Wait:
        body, captures = yield from calls.opening.read(scan, at)
        if body < 0:
            return -1
        end = yield from calls.body.read(scan, at, body, captures)
        return end if end >= 0 else (yield from self._report(scan, at, body, calls))

    def _report(self, scan: Scan, start: int, body: int, calls: CallField) -> Wait:
        """Report text between a call's marks that is not a call; return -1 if no closing mark follows."""
        if calls.closing is None or scan.text.startswith(calls.opening.weak, start):
            return -1
        ends = self._ends
        found = ends.sure(scan.text, body) if scan.final else (yield from ends.seek(scan, body))
        while found is not None and found[0] not in calls.closing.marks:
            # A mark that only begins an opening is text, as it is outside a call.
            if (yield from self._opens(scan, found.start(), calls)):
                return -1
            found = ends.sure(scan.text, found.end()) if scan.final else (yield from ends.seek(scan, found.end()))
        if found is None:
            return -1
        end = yield from calls.closing.match(scan, found.start())
        if end >= 0:
            reason = unread_reason(scan.text[start:body].strip(), scan.text[body : found.start()].strip(), found[0])
            scan.drafts.append(Draft(start, end, INVALID_JSON, reason=reason))
        return end

    def stream(self, tools: Sequence[ToolSchema] | None = None, mode: ParseMode = "strict") -> TemplateStream:
        """Start parsing text that arrives in pieces."""
        return TemplateStream(self, tools, mode)

    def parse(self, text: str, tools: Sequence[ToolSchema] | None = None, mode: ParseMode = "strict") -> ParseResult:
        """Parse a complete text."""
        return TemplateStream(self, tools, mode).whole(text)

    def render(self, message: ParseResult | Mapping[str, Any]) -> str:
        """Write a message back: byte for byte what was parsed, otherwise as the metadata says.

        Raises:
            ValueError: It does not say how, or the result would not read back the same.
        """
        if isinstance(message, ParseResult):
            return super().render(message)
        reasoning, content, calls = read_message(message)
        text = f"{self.write_reasoning(reasoning)}{self._written_content(content)}{self.write_calls(calls)}"
        # This template may write values as plain text, whose type only a schema tells.
        refuse_other_text(self.parse(text), reasoning, content)
        refuse_unless_read_with_tools(self.parse, text, calls)
        return text

    def write_reasoning(self, reasoning: str) -> str:
        """Write the reasoning between its marks."""
        if not reasoning:
            return ""
        field = self.template.reasoning
        if field is None:
            raise ValueError(
                "expected no reasoning, since this template has no field for it, got some in the message; remove it"
            )
        return f"{field.openings[0]}{reasoning}{field.closings[0]}"

    def _written_content(self, content: str) -> str:
        field = self.template.content
        if not content or field is None or not field.openings:
            return content
        return f"{field.openings[0]}{content}{field.closings[0] if field.closings else ''}"

    def write_calls(self, calls: Sequence[WrittenCall]) -> str:
        """Write the calls."""
        if not calls:
            return ""
        if self.template.calls is None:
            raise ValueError(
                "expected no calls, since this template has no field 'tool_calls', got some in the message; remove them"
            )
        return self.template.calls.body.write_calls(list(calls))


def _tags(template: ResponseTemplate) -> tuple[str, str] | None:
    """Return the marks of reasoning if they are one pair that nothing else uses; a lone closing one then counts."""
    field = template.reasoning
    if field is None or field.header is not None or len(field.openings) != 1 or len(field.closings) != 1:
        return None
    others = template.content.closings if template.content else ()
    others += template.calls.closing.marks if template.calls and template.calls.closing else ()
    if field.closings[0] in others or not (template.takes_rest or field.is_opened_by_prompt):
        return None
    return field.openings[0], field.closings[0]


def _regions(template: ResponseTemplate, end_marks: Sequence[str]) -> Regions:
    fields: list[tuple[TextField, bool]] = []
    if template.reasoning is not None and _tags(template) is None:
        fields.append((template.reasoning, False))
    content = template.content
    if content is not None and content.openings:
        fields.append((content, True))
        # An anchor like "Assistant:" is text anywhere else.
        silent = (*(anchor for anchor in template.anchors if anchor.startswith("<")), *end_marks)
    else:
        silent = (*(content.closings if content else ()), *end_marks)
    ends = {field: Marks(field.closings) for field, _ in fields}
    openings = [field.header for field, _ in fields if field.header is not None]
    if template.calls is not None:
        openings.append(template.calls.opening)
    begun = [mark for opening in openings for mark in opening.marks]
    begun += [mark for field, _ in fields for mark in field.openings]
    ordered = tuple(sorted(set(silent), key=len, reverse=True))
    alone = tuple([mark for mark in ordered if not any(one.startswith(mark) or mark.startswith(one) for one in begun)])
    return Regions(tuple(fields), ends, ordered, alone, tuple([opening for opening in openings if opening.leads]))
