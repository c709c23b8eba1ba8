"""Build the contract's frozen records without their generated constructors.

A frozen dataclass sets each field through `object.__setattr__`, which takes a third of the whole parse for a result
with three calls; the setters of the slots take a third of that time.
"""

from __future__ import annotations

from typing import Any, Final

from hermes_core.contracts.parsing import ParseAttempt, ParsedCall, ParseResult, ParseSegment
from hermes_parsers.engine.scanning.scan import Draft
from hermes_parsers.engine.scanning.spans import Span

_new: Final = object.__new__
_status: Final[Any] = ParseAttempt.__dict__["status"].__set__
_raw: Final[Any] = ParseAttempt.__dict__["raw"].__set__
_start: Final[Any] = ParseAttempt.__dict__["start"].__set__
_end: Final[Any] = ParseAttempt.__dict__["end"].__set__
_name: Final[Any] = ParseAttempt.__dict__["name"].__set__
_arguments: Final[Any] = ParseAttempt.__dict__["arguments"].__set__
_value: Final[Any] = ParseAttempt.__dict__["value"].__set__
_reason: Final[Any] = ParseAttempt.__dict__["reason"].__set__
_call_name: Final[Any] = ParsedCall.__dict__["name"].__set__
_call_arguments: Final[Any] = ParsedCall.__dict__["arguments"].__set__
_call_id: Final[Any] = ParsedCall.__dict__["id"].__set__
_call_wire_id: Final[Any] = ParsedCall.__dict__["wire_id"].__set__
_content: Final[Any] = ParseResult.__dict__["content"].__set__
_reasoning: Final[Any] = ParseResult.__dict__["reasoning"].__set__
_calls: Final[Any] = ParseResult.__dict__["calls"].__set__
_attempts: Final[Any] = ParseResult.__dict__["attempts"].__set__
_segments: Final[Any] = ParseResult.__dict__["segments"].__set__
_segment_kind: Final[Any] = ParseSegment.__dict__["kind"].__set__
_segment_start: Final[Any] = ParseSegment.__dict__["start"].__set__
_segment_end: Final[Any] = ParseSegment.__dict__["end"].__set__
_segment_raw: Final[Any] = ParseSegment.__dict__["raw"].__set__
_segment_call: Final[Any] = ParseSegment.__dict__["call"].__set__


def attempt_of(text: str, draft: Draft) -> ParseAttempt:
    """Build the attempt of a draft that the driver accepted."""
    start, end = draft.base + draft.start, draft.base + draft.end
    attempt = _new(ParseAttempt)
    _status(attempt, draft.status)
    _raw(attempt, text[start:end])
    _start(attempt, start)
    _end(attempt, end)
    _name(attempt, draft.name)
    _arguments(attempt, draft.arguments)
    _value(attempt, draft.value)
    _reason(attempt, draft.reason)
    return attempt


def segment_of(text: str, span: Span) -> ParseSegment:
    """Build the segment of a span."""
    start, end, draft = span.start, span.end, span.draft
    segment = _new(ParseSegment)
    _segment_kind(segment, span.kind)
    _segment_start(segment, start)
    _segment_end(segment, end)
    _segment_raw(segment, text[start:end])
    _segment_call(segment, None if draft is None else draft.call)
    return segment


def build_call(name: str, arguments: str, id: str, wire_id: str | None) -> ParsedCall:
    """Build a call."""
    call = _new(ParsedCall)
    _call_name(call, name)
    _call_arguments(call, arguments)
    _call_id(call, id)
    _call_wire_id(call, wire_id)
    return call


def build_result(
    content: str | None,
    reasoning: str | None,
    calls: tuple[ParsedCall, ...],
    attempts: tuple[ParseAttempt, ...],
    segments: tuple[ParseSegment, ...],
) -> ParseResult:
    """Build the result."""
    result = _new(ParseResult)
    _content(result, content)
    _reasoning(result, reasoning)
    _calls(result, calls)
    _attempts(result, attempts)
    _segments(result, segments)
    return result


def text_only(found: object) -> str:
    """Return the plain text of a subclass of str; raise TypeError for anything else."""
    if isinstance(found, str):
        return found
    remedy = "; decode it first, with errors='replace'" if isinstance(found, bytes | bytearray) else ""
    raise TypeError(f"expected a model's text as str, got {type(found).__name__}: {found!r:.80}{remedy}")
