"""Invariants of any result for its text, and comparison of two results."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, Final

from hermes_core.contracts.parsing import AttemptStatus, ParseAttempt, ParseResult, ParseSegment

_CALLED: Final = {AttemptStatus.OK, AttemptStatus.REPAIRED, AttemptStatus.UNCLOSED, AttemptStatus.UNKNOWN_TOOL}


def violations(text: str, result: ParseResult) -> list[str]:
    """Return every invariant of `ParseResult` that a result violates for its text."""
    return [*_segment_problems(text, result), *_call_problems(result), *_attempt_problems(text, result)]


def _segment_problems(text: str, result: ParseResult) -> list[str]:
    problems, at = [], 0
    for segment in result.segments:
        if segment.start != at or segment.end <= at:
            problems.append(f"segment {segment.start}-{segment.end}, expected one from {at}: a gap, overlap or nothing")
        if segment.raw != text[segment.start : segment.end]:
            problems.append(f"segment {segment.start}-{segment.end}: raw is not the source")
        at = segment.end
    if at != len(text):
        problems.append(f"segments end at {at}, the text at {len(text)}")
    if (result.content or "") != "".join(segment.raw for segment in result.segments if segment.kind == "text"):
        problems.append(f"content is not the text segments: {result.content!r}")
    if result.reasoning and not any(segment.kind == "reasoning" for segment in result.segments):
        problems.append(f"reasoning comes from no segment: {result.reasoning!r}")
    return problems


def _call_problems(result: ParseResult) -> list[str]:
    problems = []
    for call in result.calls:
        name: Any = call.name
        if not isinstance(name, str) or not name.strip():
            problems.append(f"call without a name: {call!r}")
        if not is_json_object(call.arguments):
            problems.append(f"arguments are not a JSON object: {call.arguments!r}")
        if call.wire_id == "":
            problems.append(f"an empty wire_id is none: {call!r}")
    if len({call.id for call in result.calls}) != len(result.calls) or not all(call.id for call in result.calls):
        problems.append("call ids are empty or not unique")
    return problems


def _attempt_problems(text: str, result: ParseResult) -> list[str]:
    problems = []
    for attempt in result.attempts:
        if attempt.raw != text[attempt.start : attempt.end] or not attempt.raw:
            problems.append(f"attempt {attempt.start}-{attempt.end}: raw is not the source")
        if attempt.status is not AttemptStatus.OK and not attempt.reason:
            problems.append(f"attempt {attempt.status} gives no reason")
    places = [segment for segment in result.segments if segment.kind == "call"]
    attempts = [attempt for attempt in result.attempts if attempt.status is not AttemptStatus.IN_REASONING]
    if len(places) != len(attempts):
        return [*problems, f"{len(attempts)} attempts in {len(places)} segments, expected one in each"]
    called = [segment.call for segment in places if segment.call is not None]
    if called != list(range(len(result.calls))):
        return [*problems, f"segments point to calls {called}, there are {len(result.calls)}"]
    for attempt, place in zip(attempts, places, strict=True):
        problems += _place_problems(attempt, place, result)
    return problems


def _place_problems(attempt: ParseAttempt, place: ParseSegment, result: ParseResult) -> list[str]:
    where = f"attempt {attempt.start}-{attempt.end} ({attempt.status})"
    if not place.start <= attempt.start <= attempt.end <= place.end:
        return [f"{where} is not inside its segment {place.start}-{place.end}"]
    if (attempt.status in _CALLED) != (place.call is not None):
        return [f"{where} became call {place.call}"]
    if place.call is None:
        return []
    call = result.calls[place.call]
    return [] if (attempt.name, attempt.arguments) == (call.name, call.arguments) else [f"{where} is not {call!r}"]


def value_problems(result: ParseResult) -> list[str]:
    """Return the attempts whose value does not equal their arguments."""
    read = [
        attempt for attempt in result.attempts if attempt.arguments is not None and is_json_object(attempt.arguments)
    ]
    return [
        f"attempt {attempt.start}-{attempt.end} has the value {attempt.value!r:.200} for {attempt.arguments!r:.200}"
        for attempt in read
        if encode([("", attempt.value)]) != encode([("", json.loads(attempt.arguments or ""))])
    ]


def is_json_object(text: str) -> bool:
    """Tell whether a text is one JSON object without NaN and infinities, which only Python reads."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    def finite(number: str) -> float:
        value = float(number)
        if math.isinf(value):
            refuse(number)
        return value

    try:
        return isinstance(json.loads(text, parse_constant=refuse, parse_float=finite), dict)
    except (ValueError, RecursionError):
        return False


def meaning(result: ParseResult) -> list[tuple[str, str]]:
    """Return a normal form of calls for comparison: names and values, with 1, 1.0 and true kept distinct."""
    return encode([(call.name, json.loads(call.arguments)) for call in result.calls])


def encode(calls: Sequence[tuple[str, Any]]) -> list[tuple[str, str]]:
    """Return calls in the form that `meaning` returns for a result."""
    return [(name, json.dumps(arguments, sort_keys=True)) for name, arguments in calls]


def statuses(result: ParseResult) -> list[AttemptStatus]:
    """Return the statuses of the attempts, in order."""
    return [attempt.status for attempt in result.attempts]
