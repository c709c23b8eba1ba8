"""Two parsers in small methods, so that a mutant can change one: a call's body is JSON, or fields of plain text."""

from __future__ import annotations

import ast
import json
import re
import zlib
from abc import abstractmethod
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
MARKS = re.compile(r"</?call>")
AGAIN = re.compile(r"(?:\s*</call>)*")
TOKENS = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\Z)|[{}]|</?call>', re.DOTALL)
PYTHON = {"true": "True", "false": "False", "null": "None"}
NOT_CALLS = {AttemptStatus.TRUNCATED, AttemptStatus.INVALID_JSON, AttemptStatus.MISSING_NAME}


class RefusedError(ValueError):
    """The body of a call cannot be read; `stop` is where the attempt ends."""

    def __init__(self, reason, stop, *, is_cut=False):
        super().__init__(reason)
        self.reason, self.stop, self.is_cut = reason, stop, is_cut


class BlockParser(BufferedParser):
    """Everything but the body of a call."""

    @abstractmethod
    def has_body(self, text, at):
        """Tell whether a call follows the opening tag."""

    def is_block(self, text, at):
        """Tell whether the end mark comes before any other mark: then the model meant a call, however it wrote it."""
        found = MARKS.search(text, at)
        return found is not None and found[0] == CLOSE

    @abstractmethod
    def body(self, text, start, schemas, mode):
        """Return name, arguments, status, reason and end; raise RefusedError for an unreadable body."""

    @abstractmethod
    def write_body(self, name, arguments):
        """Write a body."""

    def parse(self, text, tools=None, mode="strict"):
        schemas = None if tools is None else dict(map(self.schema, tools))
        start = self.reasoning_end(text)
        drafts = [self.draft(attempt) for attempt in self.reasoning_attempts(text[:start], schemas, mode)]
        attempts = [self.shift(attempt, start) for attempt in self.attempts(text[start:], schemas, mode)]
        good = [attempt for attempt in attempts if self.is_good(attempt)]
        segments = list(self.segments(text, start, attempts, good))
        return ParseResult(
            content=self.content(segments),
            reasoning=text[:start].removeprefix("<think>").removesuffix("</think>") or None,
            calls=tuple(ParsedCall(name=a.name, arguments=a.arguments, id=self.id_of(a)) for a in good),
            attempts=(*drafts, *attempts),
            segments=tuple(segments),
        )

    def schema(self, tool):
        function = tool.get("function") if isinstance(tool, dict) else None
        function = function if isinstance(function, dict) else {}
        name, parameters = function.get("name"), function.get("parameters")
        declared = parameters.get("properties") if isinstance(parameters, dict) else None
        return name if isinstance(name, str) else None, declared if isinstance(declared, dict) else {}

    def reasoning_end(self, text):
        end = text.find("</think>")
        return 0 if not text.startswith("<think>") else len(text) if end < 0 else end + len("</think>")

    def reasoning_attempts(self, text, schemas, mode):
        """Return the attempts in reasoning."""
        return self.attempts(text, schemas, mode)

    def draft(self, attempt):
        return replace(attempt, status=AttemptStatus.IN_REASONING, reason="drafted")

    def shift(self, attempt, by):
        return replace(attempt, start=attempt.start + by, end=attempt.end + by)

    def is_good(self, attempt):
        return attempt.status not in NOT_CALLS

    def id_of(self, attempt):
        return f"call_{attempt.start}_{zlib.crc32(attempt.raw.encode('utf-8', 'surrogatepass')):08x}"

    def content(self, segments):
        return "".join(segment.raw for segment in segments if segment.kind == "text") or None

    def attempts(self, text, schemas, mode):
        at = text.find(OPEN)
        while at >= 0:
            attempt = self.attempt(text, at, schemas, mode)
            if attempt is not None:
                yield attempt
            at = text.find(OPEN, attempt.end if attempt else at + 1)

    def attempt(self, text, start, schemas, mode):
        body = start + len(OPEN)
        if not self.has_body(text, body):
            return None
        try:
            name, arguments, status, reason, end = self.body(text, body, schemas, mode)
        except RefusedError as refused:
            status = AttemptStatus.TRUNCATED if refused.is_cut else AttemptStatus.INVALID_JSON
            return self.refuse(ParseAttempt(status=status, raw="", start=start, end=refused.stop), refused, text)
        again = self.repeated_end(text, end)
        if again > end:
            said = "the end tag appears twice"
            status = AttemptStatus.REPAIRED if status is AttemptStatus.OK else status
            reason, end = f"{reason}; {said}" if reason else said, again
        made = ParseAttempt(status=status, raw=text[start:end], start=start, end=end, name=name, reason=reason)
        try:
            return self.judge(replace(made, value=arguments), schemas)
        except (ValueError, RecursionError) as error:
            return replace(made, status=AttemptStatus.INVALID_JSON, reason=str(error), value=None)

    def repeated_end(self, text, end):
        """Return where a call with a duplicate end tag ends."""
        return AGAIN.match(text, end).end() if text.endswith(CLOSE, 0, end) else end

    def refuse(self, attempt, refused, text):
        return replace(attempt, raw=text[attempt.start : attempt.end], reason=refused.reason)

    def judge(self, attempt, schemas):
        name, arguments = attempt.name, attempt.value
        if not isinstance(name, str) or not any(map(str.isalnum, name)) or not isinstance(arguments, dict):
            return replace(attempt, status=AttemptStatus.MISSING_NAME, reason="no name or no arguments")
        if schemas is not None and name not in schemas:
            attempt = self.unknown(attempt)
        return replace(attempt, arguments=self.dumps(arguments))

    def unknown(self, attempt):
        return replace(attempt, status=AttemptStatus.UNKNOWN_TOOL, reason="no such tool")

    def dumps(self, arguments):
        return json.dumps(arguments, allow_nan=False)

    def end_of_broken(self, text, start):
        """Where an unreadable body ends: after its end mark, before the next call, or with the text."""
        found = MARKS.search(text, start)
        if found is None:
            return len(text), True
        return (found.end() if found[0] == CLOSE else found.start()), False

    def segments(self, text, start, attempts, good):
        if start:
            yield ParseSegment(kind="reasoning", start=0, end=start, raw=text[:start])
        at, places = start, {attempt.start: place for place, attempt in enumerate(good)}
        for attempt in attempts:
            begin = self.framing(text, at, attempt)
            yield from self.text(text, at, begin)
            raw, call = text[begin : attempt.end], places.get(attempt.start)
            yield ParseSegment(kind="call", start=begin, end=attempt.end, raw=raw, call=call)
            at = attempt.end
        yield from self.text(text, at, len(text))

    def framing(self, text, at, attempt):
        return attempt.start - 1 if attempt.start > at and text[attempt.start - 1] == "\n" else attempt.start

    def text(self, text, start, end):
        if start < end:
            yield ParseSegment(kind="text", start=start, end=end, raw=text[start:end])

    def render(self, message):
        if isinstance(message, ParseResult):
            return "".join(segment.raw for segment in message.segments)
        blocks = [self.block(call["function"]) for call in message.get("tool_calls") or ()]
        return "\n".join([*([message["content"]] if message.get("content") else []), *blocks])

    def block(self, function):
        arguments = function["arguments"]
        value = json.loads(arguments) if isinstance(arguments, str) else arguments
        if type(value) is not dict:
            raise ValueError(f"the arguments of {function['name']!r} are no object")
        self.dumps(value)
        return f"{OPEN}{self.write_body(function['name'], value)}{CLOSE}"


class TagParser(BlockParser):
    """`<call>{"name": …, "arguments": …}</call>`."""

    constant = int  # raises ValueError, because NaN is not valid

    def has_body(self, text, at):
        return text.startswith("{", at) or self.is_block(text, at)

    def body(self, text, start, schemas, mode):
        stop = self.body_end(text, start)
        try:
            value = self.decode_body(text[start:stop])
        except (ValueError, RecursionError) as error:
            return self.repair(text, start, str(error) or "too deep", mode)
        closing = MARKS.search(text, stop)
        if closing is None or closing[0] == OPEN:
            return *self.fields(value), AttemptStatus.UNCLOSED, "no end tag", stop
        if text[stop : closing.start()].strip():
            return self.repair(text, start, "something between the object and the end tag", mode)
        return *self.fields(value), AttemptStatus.OK, "", closing.end()

    def body_end(self, text, start):
        depth = 0
        for found in TOKENS.finditer(text, start):
            depth += {"{": 1, "}": -1}.get(found[0], 0)
            if found[0].startswith("<"):
                return found.start()
            if depth == 0:
                return found.end()
        return len(text)

    def decode_body(self, body):
        # Only the body, because an error of json counts the lines before it.
        return json.loads(body, parse_constant=self.constant)

    def fields(self, value):
        value = value if isinstance(value, dict) else {}
        return value.get("name"), value.get("arguments") or {}

    def repair(self, text, start, reason, mode):
        stop, is_cut = self.end_of_broken(text, start)
        body = text[start:stop].removesuffix(CLOSE)
        for read in self.repairs if mode == "lenient" and not is_cut else ():
            try:
                value = read(body)
                return *self.fields(value), AttemptStatus.REPAIRED, reason, stop
            except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
                continue
        raise RefusedError(reason, stop, is_cut=is_cut)

    @property
    def repairs(self):
        return (
            lambda body: json.loads(body, strict=False, parse_constant=int),
            lambda body: json.loads(body.removesuffix("}"), parse_constant=int),
            lambda body: self.python(re.sub(r"\b(true|false|null)\b", lambda word: PYTHON[word[0]], body)),
        )

    def python(self, body):
        return json.loads(json.dumps(ast.literal_eval(body), allow_nan=False))

    def write_body(self, name, arguments):
        return json.dumps({"name": name, "arguments": arguments})


class FieldParser(BlockParser):
    """`<call>name<arg=key>text</arg>…</call>`: only a schema tells the type of a text."""

    NAME = re.compile(r"([\w.-]+)(?=<)")
    FIELD = re.compile(r"<arg=(\w+)>")
    FIELD_END = re.compile(r"</arg>|(?=<arg=\w+>|</?call>)")
    ORDER = ("null", "integer", "number", "boolean", "object", "array")

    def has_body(self, text, at):
        return self.NAME.match(text, at) is not None or self.is_block(text, at)

    def body(self, text, start, schemas, mode):
        name = self.NAME.match(text, start)
        if name is None:
            stop, is_cut = self.end_of_broken(text, start)
            raise RefusedError("no name", stop, is_cut=is_cut)
        declared = (schemas or {}).get(name[1], {})
        arguments, notes, at = {}, [], name.end()
        while (field := self.FIELD.match(text, at)) is not None:
            end = self.FIELD_END.search(text, field.end())
            if end is None:
                raise RefusedError("cut in a field", len(text), is_cut=True)
            written = text[field.end() : end.start()]
            arguments[field[1]] = self.value(written, self.types(declared.get(field[1])), notes)
            at = end.end()
        if text.startswith(CLOSE, at):
            return name[1], arguments, AttemptStatus.OK, "; ".join(notes), at + len(CLOSE)
        stop, is_cut = self.end_of_broken(text, at)
        raise RefusedError("neither a field nor the end", stop, is_cut=is_cut)

    def types(self, schema):
        if not isinstance(schema, dict):
            return set()
        one = schema.get("type")
        some = one if isinstance(one, list) else [one]
        more = schema.get("anyOf") if isinstance(schema.get("anyOf"), list) else []
        return {kind for kind in some if isinstance(kind, str)}.union(*map(self.types, more))

    def value(self, text, types, notes):
        if types == {"string"} or not types:
            return text
        for kind in self.ORDER:
            if kind in types:
                try:
                    return getattr(self, kind)(text)
                except (ValueError, RecursionError):
                    continue
        return self.misfit(text, types, notes)

    def misfit(self, text, types, notes):
        if "string" not in types:
            notes.append(f"{text[:20]!r} is none of {sorted(types)}")
        return text

    def null(self, text):
        return {"null": None, "None": None}[text] if text in {"null", "None"} else int("no null")

    def integer(self, text):
        return self.json(text, int)

    def number(self, text):
        return self.json(text, (int, float))

    def boolean(self, text):
        return self.json(text.lower() if text in {"True", "False"} else text, bool)

    def object(self, text):
        return self.json(text, dict)

    def array(self, text):
        return self.json(text, list)

    def json(self, text, kind):
        value = json.loads(text, parse_constant=int)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ValueError(f"{text} is no {kind}")
        json.dumps(value, allow_nan=False)
        return value

    def block(self, function):
        block, value = super().block(function), function["arguments"]
        value = json.loads(value) if isinstance(value, str) else value
        # A text with marks of the format would end at them.
        if any(mark in self.spelt(one) for one in value.values() for mark in ("<arg=", "</arg>", OPEN, CLOSE)):
            raise ValueError("a value holds a mark of the format, which would end it")
        return block

    def write_body(self, name, arguments):
        return name + "".join(f"<arg={key}>{self.spelt(value)}</arg>" for key, value in arguments.items())

    def spelt(self, value):
        return value if isinstance(value, str) else json.dumps(value)
