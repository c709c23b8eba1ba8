"""The one scanner: text in, in pieces of any size; segments, attempts and calls out.

A family contributes marks and a reader (see `hermes_parsers.engine.scanning.scan`). This module handles the rest for
all families: plain text, reasoning, the template's framing around calls, ids, and waiting for more text.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from typing import ClassVar, Final

from hermes_core.contracts.parsing import (
    AttemptStatus,
    ParsedCall,
    ParseEvent,
    ParseMode,
    ParseResult,
    ToolSchema,
)
from hermes_parsers.engine.scanning.reader import FormatReader
from hermes_parsers.engine.scanning.reasoning_marks import THINK
from hermes_parsers.engine.scanning.records import attempt_of, build_call, build_result, segment_of, text_only
from hermes_parsers.engine.scanning.scan import INVALID_JSON, UNKNOWN_TOOL, Draft, Scan, sees, skip_space
from hermes_parsers.engine.scanning.spans import Span, SpanQuotes
from hermes_parsers.engine.scanning.unclosed_reasoning import end_of_unclosed

_SPACES: Final = re.compile(r"\s*+").match
_LARGE: Final = 8192
"""Undecided text above this size is examined again only when it has grown by a fraction, so copying stays linear."""


class ScanStream:
    """A parse in progress; see `hermes_core.contracts.parsing.ParserStream`."""

    own_blocks: ClassVar[bool] = False
    """Whether a subclass overrides how blocks are read."""

    def __init__(self, parser: FormatReader, tools: Sequence[ToolSchema] | None, mode: ParseMode) -> None:
        if mode not in ("strict", "lenient"):
            raise ValueError(f"expected mode 'strict' or 'lenient', got {mode!r}")
        self._parser = parser
        self._known = None if tools is None else _names(tools)
        self._scan = Scan(lenient=mode == "lenient", tools=tools)
        self._source: list[str] = []
        self._pending: list[str] = []
        self._size = 0
        self._base = 0
        self._wait = ""
        self._idle = self._due = self._done = False
        self._is_quoted = False
        self._is_open = False
        self._has_reasoned = False
        self._is_unclosed = False
        self._tells = True
        self._told = self._space_end = -1
        self._events: list[ParseEvent] = []
        self._spans: list[Span] = []
        quotes = SpanQuotes(self._source, self._spans)
        self._scan.follows_quote = lambda start: quotes.has(self._base + start)
        self._thoughts: list[str] = []
        self._calls: list[ParsedCall] = []
        self._ids: dict[str, int] = {}
        self._attempts: list[Draft] = []
        self._drafted: list[tuple[Draft, AttemptStatus]] = []
        self._thinking = next(iter(parser.thinking.values()), THINK)
        self._run = self._main()

    def feed(self, delta: str) -> Sequence[ParseEvent]:
        """Take more text and return the new events."""
        if self._done:
            raise RuntimeError("feed() was called after finish(); call parser.stream() for another stream")
        if type(delta) is not str:
            delta = text_only(delta)
        if not delta:
            return ()
        self._source.append(delta)
        if self._idle:
            if not self._scan.text and not self._pending and not self._parser.stirs(delta) and not delta[-1].isspace():
                return self._plain(delta)
            if delta.isspace():
                self._pending.append(delta)
                return ()
        self._pending.append(delta)
        self._size += len(delta)
        if not self._due and self._wait not in delta:
            return ()
        if len(self._scan.text) > _LARGE and self._size < len(self._scan.text) >> 5:
            self._due = True
            return ()
        return self._resume()

    def finish(self) -> Sequence[ParseEvent]:
        """Mark the end of the text and return the last events."""
        if self._done:
            return ()
        self._scan.final = True
        events = self._resume()
        self._done = True
        return events

    def result(self) -> ParseResult:
        """Return the whole result; only after `finish`."""
        if not self._done:
            raise RuntimeError("result() was called before finish(); call finish() first")
        text = "".join(self._source)
        return build_result(
            "".join([text[span.start : span.end] for span in self._spans if span.kind == "text"]) or None,
            "\n".join(self._thoughts) or None,
            tuple(self._calls),
            tuple([attempt_of(text, draft) for draft in self._attempts]),
            tuple([segment_of(text, span) for span in self._spans]),
        )

    def whole(self, text: str) -> ParseResult:
        """Parse a complete text: the same scanner, without waiting and without events."""
        if type(text) is not str:
            text = text_only(text)
        self._source.append(text)
        self._scan.text, self._scan.final, self._tells = text, True, False
        next(self._run, None)
        self._done = True
        return self.result()

    def _resume(self) -> Sequence[ParseEvent]:
        scan = self._scan
        scan.text += "".join(self._pending)
        self._pending.clear()
        self._size = 0
        self._due = self._idle = False
        self._wait = next(self._run, "")
        events, self._events = self._events, []
        return events

    def _plain(self, delta: str) -> Sequence[ParseEvent]:
        at = self._base
        self._base = at + len(delta)
        self._scan.last_told = delta[-1]
        spans = self._spans
        if spans and spans[-1].kind == "text":
            spans[-1].end = self._base
        else:
            spans.append(Span("text", at, self._base))
        return (ParseEvent(kind="text", text=delta),)

    # From here on, positions without a base refer to `self._scan.text`; `told` is where undecided text begins.

    def _main(self) -> Generator[str, None, None]:
        scan, parser = self._scan, self._parser
        tags = parser.thinking
        # With the complete text a block never waits, so it need not be a generator in a generator.
        is_plain = not self.own_blocks
        told = at = 0
        if parser.reasoning_opened:
            told = at = yield from self._reasoning(0, (yield from self._repeated_opening()))
        while True:
            marks = parser.stops
            found = marks.sure(scan.text, at) if scan.final else marks.search(scan.text, at)
            if found is None:
                if scan.final:
                    break
                told, at = self._let_go(told)
                yield ""
            elif not scan.final and marks.confirm(scan.text, found.start()) is None:
                at = found.start()
                yield ""
            else:
                start = found.start()
                if found[0] in tags:
                    end = yield from self._read_tag(told, start, found[0])
                elif scan.final and is_plain:
                    first = len(scan.drafts)
                    end = parser.read_now(scan, start)
                    if not parser.is_left(scan, start, end):
                        end = yield from parser.read_block(scan, start, end)
                    end = self._take_all(first, told, start, end)
                else:
                    end = yield from self._block(told, start)
                at = max(start + 1, scan.resume) if end < 0 else end
                told = told if end < 0 else end
        self._text(told, len(scan.text), is_last=True)
        self._promote()

    def _read_tag(self, told: int, start: int, mark: str) -> Generator[str, None, int]:
        """Read the reasoning that a tag opens or ends; return where it ended, or -1 if the tag is text."""
        thinking = self._parser.thinking[mark]
        if mark == thinking.opening:
            if self._begins(told, start):
                self._thinking = thinking
                return (yield from self._reasoning(told, start + len(mark)))
            if self._parser.reasons_again and mark == next(iter(self._parser.thinking)):
                self._thinking = thinking
                return (yield from self._reasoning(self._text(told, start, before_call=True), start + len(mark)))
            self._is_quoted = True
        elif self._is_lone() and not self._is_quoted:
            self._thinking = thinking
            return (yield from self._was_reasoning(start, start + len(mark)))
        return -1

    def _let_go(self, told: int) -> tuple[int, int]:
        """Emit the text that can no longer belong to a mark or its framing, and drop it."""
        scan, marks = self._scan, self._parser.marks
        keep = marks.partial_start(scan.text, told)
        is_idle = keep == len(scan.text)
        keep = told + len(scan.text[told:keep].rstrip())
        self._text(told, keep)
        self._base += keep
        scan.last_told = scan.text[keep - 1] if keep else scan.last_told
        scan.text = scan.text[keep:]
        scan.resume = 0
        self._idle = is_idle
        return 0, max(0, len(scan.text) - marks.longest)

    def _block(self, told: int, start: int) -> Generator[str, None, int]:
        """Let the family read the block at a mark, and accept each draft as soon as it exists."""
        scan = self._scan
        first = len(scan.drafts)
        reader = self._parser.read_block(scan, start)
        taken, end, wait = self._step(reader, told, start, first, first)
        while wait is not None:
            yield wait
            taken, end, wait = self._step(reader, told, start, first, taken)
        return end if taken > first else -1

    def _step(
        self, reader: Generator[str, None, int], told: int, start: int, first: int, taken: int
    ) -> tuple[int, int, str | None]:
        """Continue a block and accept its new drafts; return their number, the block's end, and what it waits for."""
        end, wait = -1, None
        try:
            wait = next(reader)
        except StopIteration as stop:
            end = stop.value
        for draft in self._scan.drafts[taken:]:
            self._take(draft, told, start, is_first=taken == first)
            taken += 1
        if wait is None and taken > first:
            self._spans[-1].end = self._base + end
        return taken, end, wait

    def _take_all(self, first: int, told: int, start: int, end: int) -> int:
        """Accept the drafts of a block that was read at once; return its end, or -1 if there are none."""
        drafts = self._scan.drafts
        if len(drafts) == first:
            return -1
        self._take(drafts[first], told, start, is_first=True)
        for place in range(first + 1, len(drafts)):
            self._take(drafts[place], told, start, is_first=False)
        self._spans[-1].end = self._base + end
        return end

    def _take(self, draft: Draft, told: int, start: int, *, is_first: bool) -> None:
        base, spans = self._base, self._spans
        if not is_first:
            begin = spans[-1].end
        else:
            begin = base + (start if told == start else self._text(told, start, before_call=True))
        spans.append(Span("call", begin, base + draft.end, draft))
        draft.base = base
        if self._is_unclosed:
            self._is_unclosed = False
            draft.follow_unclosed_reasoning()
        self._attempts.append(draft.check_name())
        call = None
        if draft.status is not INVALID_JSON and draft.is_good:
            call = self._call(draft)
        if self._tells:
            raw = self._scan.text[draft.start : draft.end]
            self._events.append(ParseEvent(kind="call", text=raw, call=call))

    def _call(self, draft: Draft) -> ParsedCall:
        name, arguments = draft.name, draft.arguments
        assert name is not None
        assert arguments is not None
        if self._known is not None and name not in self._known:
            told = f"; {draft.reason}" if draft.reason else ""
            draft.status, draft.reason = UNKNOWN_TOOL, f"there is no tool {name!r}{told}"
        draft.call = len(self._calls)
        call = build_call(name, arguments, self._id(draft.id, name, arguments), draft.id)
        self._calls.append(call)
        return call

    def _id(self, written: str | None, name: str, arguments: str) -> str:
        """Return an id that is unique in this message: the model's id if possible."""
        ids, make = self._ids, self._parser.make_id
        own = self._parser.own_id(written, name) if written else None
        first = unique = own or make(name, arguments, 0)
        salt = ids.get(first, 0)
        while unique in ids:
            salt += 1
            unique = make(name, arguments, salt)
        ids[unique] = 0
        ids[first] = salt
        return unique

    def _text(self, start: int, end: int, *, before_call: bool = False, is_last: bool = False) -> int:
        """Add plain text without framing, and return where it ended."""
        if start == end:
            return end
        spans = self._spans
        text = self._scan.text[start:end]
        follows_text = bool(spans) and spans[-1].kind == "text"
        if not follows_text and (before_call or (is_last and spans)) and text.isspace():
            if is_last:
                spans[-1].end = self._base + end
            return start
        if before_call and text.endswith(self._parser.framing):
            end -= len(self._parser.framing)
            text = self._scan.text[start:end]
        if not text:
            return end
        if follows_text:
            spans[-1].end = self._base + end
        else:
            spans.append(Span("text", self._base + start, self._base + end))
        if self._tells:
            self._events.append(ParseEvent(kind="text", text=text))
        return end

    def _begins(self, told: int, start: int) -> bool:
        """Whether there is only space between the last segment and this place."""
        if self._spans and self._spans[-1].kind == "text":
            return False
        place = self._base + told
        if self._told != place:
            # Called at every mark, so the extent of the space is remembered.
            self._told, self._space_end = place, self._base + _SPACES(self._scan.text, told).end()  # type: ignore[union-attr]  # the pattern matches everywhere
        return self._space_end >= self._base + start

    def _is_lone(self) -> bool:
        """Whether all text so far can be reasoning opened by the prompt; it may contain attempts but no calls."""
        return not self._calls and not self._has_reasoned

    def _reasoning(self, told: int, body: int) -> Generator[str, None, int]:
        """Consume the reasoning up to its closing tag; calls drafted in it are attempts, not calls."""
        scan, closing = self._scan, self._thinking.closing
        at = len(scan.text) if self._is_open else body
        while (found := scan.text.find(closing, at)) < 0 and not scan.final:
            at = max(body, len(scan.text) - len(closing) + 1)
            yield closing[-1]
        if found < 0:
            # Where a call ended this reasoning, the search for the next one need not look as far again.
            self._is_open = True
            return self._unclosed_reasoning(told, body)
        end = yield from self._after_reasoning(found + len(closing))
        self._finish_thought(told, body, found, end)
        return end

    def _repeated_opening(self) -> Generator[str, None, int]:
        """Return where reasoning begins that the prompt has opened (the model may have opened it again)."""
        opening = self._thinking.opening
        at = yield from skip_space(self._scan, 0)
        return at + len(opening) if (yield from sees(self._scan, opening, at)) else 0

    def _was_reasoning(self, found: int, after: int) -> Generator[str, None, int]:
        """Treat everything so far as reasoning: its opening tag was part of the prompt."""
        end = yield from self._after_reasoning(after)
        thought = ("".join(self._source)[: self._base] + self._scan.text[:found]).removesuffix(self._thinking.after)
        self._spans.clear()
        self._add_thought(0, self._base + end, thought)
        for draft in self._attempts:
            draft.put_in_reasoning()
        return end

    def _after_reasoning(self, end: int) -> Generator[str, None, int]:
        """Skip the template's text after the closing tag."""
        scan = self._scan
        limit = end + len(self._thinking.end)
        while end < limit:
            if end == len(scan.text):
                if scan.final:
                    break
                yield ""
            elif scan.text[end] == "\n":
                end += 1
            else:
                break
        return end

    def _unclosed_reasoning(self, told: int, body: int) -> int:
        """End unclosed reasoning at the first calls that were certainly meant, or at the end of the text."""
        stop = end_of_unclosed(self._parser, self._scan, body, self._known)
        self._is_unclosed = stop < len(self._scan.text)
        self._finish_thought(told, body, stop, stop)
        return stop

    def _finish_thought(self, told: int, body: int, stop: int, end: int) -> None:
        thinking = self._thinking
        thought = self._scan.text[body:stop].removeprefix(thinking.before)
        thought = thought.rstrip() if self._is_unclosed else thought.removesuffix(thinking.after)
        self._add_thought(self._base + told, self._base + end, thought)
        self._drafts(body, stop)

    def _add_thought(self, start: int, end: int, thought: str) -> None:
        if end > start:
            self._spans.append(Span("reasoning", start, end))
            self._has_reasoned = True
        if thought:
            self._thoughts.append(thought)
        if self._tells:
            self._events.append(ParseEvent(kind="reasoning", text=thought))

    def _drafts(self, start: int, stop: int) -> None:
        """Find the calls that were drafted in reasoning."""
        scan, parser = self._scan, self._parser
        if parser.stops.search(scan.text, start, stop) is None:
            return
        probe = scan.probe(scan.text[start:stop])
        at = 0
        while (found := parser.stops.sure(probe.text, at)) is not None:
            end = -1 if found[0] in parser.thinking else parser.read_whole(probe, found.start())
            at = max(found.start() + 1, probe.resume) if end < 0 else end
        for draft in probe.drafts:
            if draft.check_name().is_good:
                self._drafted.append((draft, draft.status))
            draft.base = self._base + start
            self._attempts.append(draft)
            draft.put_in_reasoning()

    def _promote(self) -> None:
        """Turn calls drafted in reasoning into calls, if that option is set and no call followed."""
        if self._calls or not self._parser.promote_drafts:
            return
        for draft, status in self._drafted:
            draft.status, draft.reason = status, "drafted in the reasoning, and no call followed"
            call = self._call(draft)
            self._cut_out(draft)
            if self._tells:
                raw = "".join(self._source)[draft.base + draft.start : draft.base + draft.end]
                self._events.append(ParseEvent(kind="call", text=raw, call=call))

    def _cut_out(self, draft: Draft) -> None:
        """Split the reasoning so that a call in it gets its own segment."""
        start, end = draft.base + draft.start, draft.base + draft.end
        place = next(n for n, span in enumerate(self._spans) if span.start <= start and end <= span.end)
        around = self._spans[place]
        parts = [
            Span("reasoning", around.start, start),
            Span("call", start, end, draft),
            Span("reasoning", end, around.end),
        ]
        self._spans[place : place + 1] = [part for part in parts if part.start < part.end]


def _names(tools: Sequence[ToolSchema]) -> frozenset[str] | None:
    from hermes_parsers.schemas import known_names

    return known_names(tools)
