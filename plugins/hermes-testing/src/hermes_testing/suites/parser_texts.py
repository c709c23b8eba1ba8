"""Texts that every parser must take, and what must hold of any result."""

from __future__ import annotations

import json
from typing import Any, Final

from hypothesis import strategies as st

from hermes_core.contracts.parsing import AttemptStatus, ParseResult

PLAIN: Final = {
    "prose": "The answer is 42.",
    "unicode": "Grüße ✓ 你好 🎉 - fine",
    "lines": "one\n\n  two\n\ttabbed\r\n\nlast\n",
    "json": 'Here is JSON: {"name": 1, "list": [1, 2, {"a": "}"}]} and more.',
    "code": "```python\nprint({'a': 1})\n```\nDone.",
    "html": "a < b and b > c, <b>bold</b>, </i> & [1] [/INST]",
    "spaces": "  leading and trailing  ",
}
HOSTILE: Final = {
    "lone_surrogate": "a \ud800 b \udfff",
    "nul": "a\0b",
    "replacement": b"\xff\xfe caf\xc3\xa9".decode("utf-8", "replace"),
    "only_quotes": '"' * 50,
    "only_backslashes": "\\" * 51,
    "open_braces": "{" * 200,
    "nested_lists": "[" * 5000,
}
TRICKY_VALUES: Final[dict[str, Any]] = {
    "empty": {},
    "braces_in_text": {"code": "if (a) { b[0] = '}'; } // ]]}"},
    "quotes": {"text": 'she said "it\'s" \\ and \\" left'},
    "unicode": {"grüße": "你好 🎉 \u2028 é"},
    "newlines": {"text": "one\ntwo\r\n\ttabbed\n"},
    "indentation": {"code": "def f():\n    return {\n        'a': 1,\n    }\n"},
    "nested": {"a": {"b": [{"c": []}, {}, [[1]], None, True, 1.5, -3]}},
    "big_integer": {"n": 12345678901234567890123},
    "tags": {"html": "</a><tool></tool>[/x]<|y|>```\n```"},
}
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
json_objects = st.dictionaries(st.text(min_size=1, max_size=8), json_values, max_size=3)

_CAN_BE_CALLS: Final = {AttemptStatus.OK, AttemptStatus.REPAIRED, AttemptStatus.UNCLOSED}


def violations(text: str, result: ParseResult) -> list[str]:
    """Return every promise of `ParseResult` that a result breaks for the text it was made from."""
    return [*_segment_problems(text, result), *_call_problems(result), *_attempt_problems(text, result)]


def _segment_problems(text: str, result: ParseResult) -> list[str]:
    problems, at = [], 0
    for segment in result.segments:
        if segment.start != at:
            problems.append(f"segment at {segment.start}, wanted {at}: gap or overlap")
        if segment.raw != text[segment.start : segment.end]:
            problems.append(f"segment {segment.start}-{segment.end}: raw is not the source")
        if segment.call is not None and not 0 <= segment.call < len(result.calls):
            problems.append(f"segment {segment.start}-{segment.end}: there is no call {segment.call}")
        at = segment.end
    if at != len(text):
        problems.append(f"segments end at {at}, the text at {len(text)}")
    pointers = [segment.call for segment in result.segments if segment.call is not None]
    if pointers and sorted(set(pointers)) != list(range(len(result.calls))):
        problems.append(f"segments point to calls {pointers}, there are {len(result.calls)}")
    return problems


def _call_problems(result: ParseResult) -> list[str]:
    problems = []
    for call in result.calls:
        if not call.name or not isinstance(call.name, str):
            problems.append(f"call without a name: {call!r}")
        if not is_json_object(call.arguments):
            problems.append(f"arguments are not a JSON object: {call.arguments!r}")
    if len({call.id for call in result.calls}) != len(result.calls) or not all(call.id for call in result.calls):
        problems.append("call ids are empty or not unique")
    return problems


def _attempt_problems(text: str, result: ParseResult) -> list[str]:
    problems = []
    for attempt in result.attempts:
        if attempt.raw != text[attempt.start : attempt.end]:
            problems.append(f"attempt {attempt.start}-{attempt.end}: raw is not the source")
        if attempt.status is not AttemptStatus.OK and not attempt.reason:
            problems.append(f"attempt {attempt.status} gives no reason")
    good = [attempt for attempt in result.attempts if attempt.status in _CAN_BE_CALLS | {AttemptStatus.UNKNOWN_TOOL}]
    if len(good) < len(result.calls):
        problems.append(f"{len(result.calls)} calls from {len(good)} good attempts")
    return problems


def is_json_object(text: str) -> bool:
    """Tell whether a text is one JSON object, without the constants that only Python reads."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        return isinstance(json.loads(text, parse_constant=refuse), dict)
    except (ValueError, RecursionError):
        return False


def meaning(result: ParseResult) -> list[tuple[str, Any]]:
    """Return the calls as names and argument values, which is what two spellings of a call have in common."""
    return [(call.name, json.loads(call.arguments)) for call in result.calls]
