"""A parser of `<call>{"name": …, "arguments": …}</call>` in small steps, so that a mutant can change one."""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import replace

from hermes_core.contracts.parsing import (
    AttemptStatus,
    BufferedParser,
    ParseAttempt,
    ParsedCall,
    ParseResult,
    ParseSegment,
)

OPEN, CLOSE = "<call>", "</call>"
TOKENS = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\Z)|[{}]|</?call>', re.DOTALL)
DECODER = json.JSONDecoder(parse_constant=int)


class TagParser(BufferedParser):
    def parse(self, text, tools=None, mode="strict"):
        known = None if tools is None else {tool.get("function", {}).get("name") for tool in tools}
        start = self.reasoning_end(text)
        drafts = [self.draft(attempt) for attempt in self.attempts(text[:start], known)]
        attempts = [self.moved(attempt, start) for attempt in self.attempts(text[start:], known)]
        good = [attempt for attempt in attempts if self.is_good(attempt)]
        segments = list(self.segments(text, start, attempts, good))
        return ParseResult(
            content="".join(s.raw for s in segments if s.kind == "text") or None,
            reasoning=text[:start].removeprefix("<think>").removesuffix("</think>") or None,
            calls=tuple(ParsedCall(name=a.name, arguments=a.arguments, id=self.id_of(a)) for a in good),
            attempts=(*drafts, *attempts),
            segments=tuple(segments),
        )

    def reasoning_end(self, text):
        end = text.find("</think>")
        return 0 if not text.startswith("<think>") else len(text) if end < 0 else end + len("</think>")

    def draft(self, attempt):
        return replace(attempt, status=AttemptStatus.IN_REASONING, reason="drafted")

    def moved(self, attempt, by):
        return replace(attempt, start=attempt.start + by, end=attempt.end + by)

    def is_good(self, attempt):
        return attempt.status in {AttemptStatus.OK, AttemptStatus.UNCLOSED}

    def id_of(self, attempt):
        return f"call_{attempt.start}_{zlib.crc32(attempt.raw.encode('utf-8', 'surrogatepass')):08x}"

    def attempts(self, text, known):
        at = text.find(OPEN)
        while at >= 0:
            attempt = self.attempt(text, at, known)
            if attempt is not None:
                yield attempt
            at = text.find(OPEN, attempt.end if attempt else at + 1)

    def attempt(self, text, start, known):
        body = start + len(OPEN)
        if not text.startswith("{", body):
            return None
        stop, is_whole = self.body_end(text, body)
        is_closed = is_whole and text.startswith(CLOSE, stop)
        end = stop + (len(CLOSE) if is_closed else 0)
        made = ParseAttempt(status=AttemptStatus.OK, raw=text[start:end], start=start, end=end)
        try:
            value = DECODER.decode(text[body:stop])
        except (ValueError, RecursionError) as error:
            return self.broken(made, str(error) or "too deep", is_cut=stop == len(text))
        return self.judged(made, value, known, closed=is_closed)

    def body_end(self, text, start):
        depth = 0
        for found in TOKENS.finditer(text, start):
            token = found[0]
            if token.startswith("<"):
                return found.start(), False
            depth += {"{": 1, "}": -1}.get(token, 0)
            if depth == 0:
                return found.end(), True
        return len(text), False

    def broken(self, attempt, reason, *, is_cut):
        status = AttemptStatus.TRUNCATED if is_cut else AttemptStatus.INVALID_JSON
        return replace(attempt, status=status, reason=reason)

    def judged(self, attempt, value, known, *, closed):
        name, arguments = value.get("name"), value.get("arguments") or {}
        if not isinstance(name, str) or not name or not isinstance(arguments, dict):
            return replace(attempt, status=AttemptStatus.MISSING_NAME, reason="no name or no arguments")
        status, reason = (AttemptStatus.OK, "") if closed else (AttemptStatus.UNCLOSED, "no end tag")
        if known is not None and name not in known:
            status, reason = AttemptStatus.UNKNOWN_TOOL, "no such tool"
        return replace(attempt, status=status, reason=reason, name=name, arguments=json.dumps(arguments))

    def segments(self, text, start, attempts, good):
        if start:
            yield ParseSegment(kind="reasoning", start=0, end=start, raw=text[:start])
        at, places = start, {attempt.start: place for place, attempt in enumerate(good)}
        for attempt in attempts:
            yield from self.text(text, at, attempt.start)
            call = places.get(attempt.start)
            yield ParseSegment(kind="call", start=attempt.start, end=attempt.end, raw=attempt.raw, call=call)
            at = attempt.end
        yield from self.text(text, at, len(text))

    def text(self, text, start, end):
        if start < end:
            yield ParseSegment(kind="text", start=start, end=end, raw=text[start:end])

    def render(self, message):
        if isinstance(message, ParseResult):
            return "".join(segment.raw for segment in message.segments)
        return (message.get("content") or "") + "".join(self.block(c["function"]) for c in message["tool_calls"])

    def block(self, function):
        arguments = function["arguments"]
        value = json.loads(arguments) if isinstance(arguments, str) else arguments
        if type(value) is not dict:
            raise ValueError(f"the arguments of {function['name']!r} are no object")
        return f"{OPEN}{json.dumps({'name': function['name'], 'arguments': value})}{CLOSE}"
