"""A parser for calls in fenced code blocks.

```tool
{"name": "get_weather", "arguments": {"city": "Paris"}}
```
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal

from hermes_core.contracts.parsing import (
    AttemptStatus,
    BufferedParser,
    ParseAttempt,
    ParsedCall,
    ParseMode,
    ParseResult,
    ParseSegment,
    ToolSchema,
)

_OPEN: Final = re.compile(r"^```tool[ \t]*\n", re.MULTILINE)
_CLOSE: Final = re.compile(r"^```(?=[ \t]*(?:\n|\Z))", re.MULTILINE)
_HALF_A_FENCE: Final = re.compile(r"\n`{1,2}\Z")
_CALLED: Final = (AttemptStatus.OK, AttemptStatus.REPAIRED, AttemptStatus.UNCLOSED, AttemptStatus.UNKNOWN_TOOL)
_FRAMING: Final = "\n"
_IN_PYTHON: Final = {"true": "True", "false": "False", "null": "None"}
_UNREADABLE: Final = (ValueError, TypeError, SyntaxError, RecursionError, MemoryError)

Kind = Literal["text", "reasoning", "call"]


class FenceParser(BufferedParser):
    """Finds the blocks line by line: JSON strings hold no raw newline, so a block ends at the next line of fence."""

    def parse(self, text: str, tools: Sequence[ToolSchema] | None = None, mode: ParseMode = "strict") -> ParseResult:
        """Parse a complete text."""
        known = None if tools is None else _names(tools)
        calls: list[ParsedCall] = []
        attempts: list[ParseAttempt] = []
        segments: list[ParseSegment] = []
        thought_ends = _reasoning_end(text)
        if thought_ends:
            segments.append(_segment("reasoning", text, 0, thought_ends))
            attempts += [
                replace(attempt, status=AttemptStatus.IN_REASONING, reason="drafted in the reasoning")
                for attempt in _attempts(text, 0, thought_ends, known, mode)
            ]
        at = thought_ends
        for attempt in _attempts(text, thought_ends, len(text), known, mode):
            start, end = _span_with_breaks(text, at, attempt)
            if at < start:
                segments.append(_segment("text", text, at, start))
            segment = _segment("call", text, start, end)
            if attempt.status in _CALLED:
                segment = replace(segment, call=len(calls))
                calls.append(_call(attempt))
            segments.append(segment)
            attempts.append(attempt)
            at = end
        if at < len(text):
            segments.append(_segment("text", text, at, len(text)))
        return ParseResult(
            content="".join(s.raw for s in segments if s.kind == "text") or None,
            reasoning=_reasoning(text[:thought_ends]),
            calls=tuple(calls),
            attempts=tuple(attempts),
            segments=tuple(segments),
        )

    def render(self, message: ParseResult | Mapping[str, Any]) -> str:
        """Write a message back; a parsed one comes out byte for byte."""
        if isinstance(message, ParseResult):
            return "".join(segment.raw for segment in message.segments)
        reasoning = message.get("reasoning_content")
        thought = f"<think>{reasoning}</think>\n" if reasoning else ""
        content = message.get("content") or ""
        blocks = [_block(call["function"]) for call in message.get("tool_calls") or ()]
        text = thought + content + (_FRAMING if content and blocks else "") + "".join(blocks)
        if len(self.parse(text).calls) != len(blocks):
            raise ValueError("the content cannot be written, it would be read as another number of tool calls")
        return text


def _names(tools: Sequence[Any]) -> set[str]:
    # The list is the caller's word, and may hold anything.
    functions = [tool.get("function") for tool in tools if isinstance(tool, Mapping)]
    names = [function.get("name") for function in functions if isinstance(function, Mapping)]
    return {name for name in names if isinstance(name, str)}


def _attempts(text: str, start: int, end: int, known: set[str] | None, mode: ParseMode) -> Iterator[ParseAttempt]:
    while (opening := _OPEN.search(text, start, end)) is not None:
        following = _OPEN.search(text, opening.end(), end)
        limit = following.start() if following else end
        closing = _CLOSE.search(text, opening.end(), limit)
        stop = closing.end() if closing else limit
        body = text[opening.end() : closing.start()] if closing else _HALF_A_FENCE.sub("", text[opening.end() : limit])
        is_cut = closing is None and following is None
        raw = text[opening.start() : stop]
        attempt = ParseAttempt(status=AttemptStatus.OK, raw=raw, start=opening.start(), end=stop)
        yield _judge(attempt, body, known, mode, is_cut=is_cut, is_closed=closing is not None)
        start = stop


def _span_with_breaks(text: str, at: int, attempt: ParseAttempt) -> tuple[int, int]:
    """Return the span of an attempt with the line breaks that the template puts around it."""
    start = attempt.start - 1 if at < attempt.start and text[attempt.start - 1] == _FRAMING else attempt.start
    return start, attempt.end + text.startswith(_FRAMING, attempt.end)


def _judge(
    attempt: ParseAttempt, body: str, known: set[str] | None, mode: ParseMode, *, is_cut: bool, is_closed: bool
) -> ParseAttempt:
    status, reason = AttemptStatus.OK, ""
    try:
        value = _json(body)
    except (ValueError, RecursionError) as error:
        status = AttemptStatus.TRUNCATED if is_cut else AttemptStatus.INVALID_JSON
        reason = str(error) or type(error).__name__
        value = _read_nearly_json(body) if mode == "lenient" and not is_cut else None
        if value is None:
            return replace(attempt, status=status, reason=reason)
        status = AttemptStatus.REPAIRED
    name = value.get("name") if isinstance(value, dict) else None
    arguments = (value.get("arguments") or {}) if isinstance(value, dict) else None
    if not isinstance(name, str) or not any(map(str.isalnum, name)) or not isinstance(arguments, dict):
        reason = "expected an object with a name and an object of arguments"
        return replace(attempt, status=AttemptStatus.MISSING_NAME, reason=reason, value=value)
    if not is_closed and status is AttemptStatus.OK:
        status, reason = AttemptStatus.UNCLOSED, "the block has no closing fence"
    if known is not None and name not in known:
        status, reason = AttemptStatus.UNKNOWN_TOOL, f"there is no tool {name!r}"
    written = json.dumps(arguments, ensure_ascii=False)
    return replace(attempt, status=status, reason=reason, name=name, arguments=written, value=arguments)


def _json(body: str, *, strict: bool = True) -> Any:
    value = json.loads(body, strict=strict, parse_constant=_no_constant)
    # Python reads 1e999 as infinity, which JSON cannot hold.
    json.dumps(value, allow_nan=False)
    return value


def _no_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _read_nearly_json(body: str) -> Any:
    """Read what is nearly JSON: raw line breaks, a brace too many, Python's quotes, words and last commas."""
    ways: tuple[Callable[[], Any], ...] = (
        lambda: _json(body, strict=False),
        lambda: _json(body.rstrip().removesuffix("}")),
        lambda: _json(json.dumps(ast.literal_eval(_in_python(body.strip())))),
    )
    for way in ways:
        try:
            return way()
        except _UNREADABLE:
            continue
    return None


def _in_python(body: str) -> str:
    return re.sub(r"\b(?:true|false|null)\b", lambda word: _IN_PYTHON[word[0]], body)


def _call(attempt: ParseAttempt) -> ParsedCall:
    assert attempt.name is not None
    assert attempt.arguments is not None
    seed = f"{attempt.start}:{attempt.raw}".encode("utf-8", "surrogatepass")
    return ParsedCall(name=attempt.name, arguments=attempt.arguments, id=f"call_{hashlib.sha256(seed).hexdigest()[:8]}")


def _segment(kind: Kind, text: str, start: int, end: int) -> ParseSegment:
    return ParseSegment(kind=kind, start=start, end=end, raw=text[start:end])


def _reasoning_end(text: str) -> int:
    if not text.lstrip().startswith("<think>"):
        return 0
    end = text.find("</think>")
    return len(text) if end < 0 else end + len("</think>")


def _reasoning(thought: str) -> str | None:
    return thought.strip().removeprefix("<think>").removesuffix("</think>") or None


def _block(function: Mapping[str, Any]) -> str:
    name, arguments = function["name"], function.get("arguments") or {}
    try:
        value = _json(arguments if isinstance(arguments, str) else json.dumps(dict(arguments)))
    except (TypeError, ValueError) as error:
        raise ValueError(f"the arguments of {name!r} are not a JSON object: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object as arguments of {name!r}, got {type(value).__name__}")  # noqa: TRY004 - the contract names ValueError
    return f"```tool\n{json.dumps({'name': name, 'arguments': value}, ensure_ascii=False)}\n```\n"
