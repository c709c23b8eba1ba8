"""The parser of tags with a stream that emits text and calls as soon as they are certain."""

from __future__ import annotations

from hermes_core.contracts.parsing import AttemptStatus, ParsedCall, ParseEvent
from reference.parser import CLOSE, OPEN, TagParser


class TagStream:
    """Emits reasoning, text before a call, and a call at its end mark, and everything else at the end."""

    def __init__(self, parser, tools, mode):
        self.parser, self.tools, self.mode = parser, tools, mode
        self.pieces, self.waiting, self.base = [], "", 0
        self.told, self.calls, self.parsed = "", 0, None

    def feed(self, delta):
        self.pieces.append(delta)
        self.waiting += delta
        if self.base == 0 and not self.told and "<think>".startswith(self.waiting[:7]):
            return self.reasoning()
        events = self.text(self.waiting.find("<")) if "<" in self.waiting else self.text(len(self.waiting))
        if CLOSE in delta or ">" in delta:
            events += self.call()
        return events

    def reasoning(self):
        thought, mark, rest = self.waiting.partition("</think>")
        if not mark:
            return []
        self.base, self.waiting = len(thought) + len(mark), rest
        return [ParseEvent(kind="reasoning", text=thought.removeprefix("<think>")), *self.feed("")]

    def text(self, end):
        text, self.waiting = self.waiting[:end], self.waiting[end:]
        whole = text.rstrip("\n")
        # A line break before a call is framing.
        self.waiting = text[len(whole) :] + self.waiting
        self.base += len(whole)
        self.told += whole
        return [ParseEvent(kind="text", text=whole)] if whole else []

    def call(self):
        text = self.waiting.removeprefix("\n")
        found = self.parser.attempt(text, 0, None, self.mode) if text.startswith(OPEN) and CLOSE in text else None
        if found is None or found.status is not AttemptStatus.OK:
            return []
        start = self.base + len(self.waiting) - len(text)
        self.base, self.waiting = start + found.end, text[found.end :]
        self.calls += 1
        placed = self.parser.shift(found, start)
        call = ParsedCall(name=found.name, arguments=found.arguments, id=self.parser.id_of(placed))
        return [ParseEvent(kind="call", text=found.raw, call=call)]

    def finish(self):
        self.parsed = self.parser.parse("".join(self.pieces), self.tools, self.mode)
        rest = (self.parsed.content or "")[len(self.told) :]
        events = [ParseEvent(kind="text", text=rest)] if rest else []
        left = [segment for segment in self.parsed.segments if segment.kind == "call"][self.calls :]
        return events + [self.attempt(segment) for segment in left]

    def attempt(self, segment):
        call = None if segment.call is None else self.parsed.calls[segment.call]
        return ParseEvent(kind="call", text=segment.raw, call=call)

    def result(self):
        return self.parsed


class StreamedTagParser(TagParser):
    def stream(self, tools=None, mode="strict"):
        return TagStream(self, tools, mode)
