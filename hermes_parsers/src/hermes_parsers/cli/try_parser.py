"""`hermes-core parsers try`: parse one text with one parser and show the whole result."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from typing import TYPE_CHECKING, Any, Final

from hermes_core.cli import plural
from hermes_core.contracts.errors import BrokenComponentError
from hermes_core.contracts.parsing import AttemptStatus, ParseAttempt, ParseEvent, ParseMode, ParseResult, ParseSegment
from hermes_parsers.cli.identity import is_same_parser
from hermes_parsers.cli.screen import Screen, print_json
from hermes_parsers.cli.sources import read_text, read_tools

if TYPE_CHECKING:
    from hermes_core.contracts.parsing import ParsedCall, ParserStream, ToolCallParser
    from hermes_core.discovery import Registry

_STYLES: Final = {
    AttemptStatus.OK: "good",
    AttemptStatus.REPAIRED: "doubtful",
    AttemptStatus.UNCLOSED: "doubtful",
    AttemptStatus.UNKNOWN_TOOL: "doubtful",
    AttemptStatus.IN_REASONING: "reasoning",
}
_FEW_LINES: Final = 20


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Streamed:
    """The result of feeding the text in pieces: every event with the number of the piece before it, 0 for the end."""

    pieces: int
    events: tuple[tuple[int, ParseEvent], ...]
    is_equal: bool


def run_try(arguments: argparse.Namespace, registry: Registry) -> int:
    """Run the command; return 1 if streaming and parsing give different results."""
    parser: ToolCallParser = registry.create("parser", arguments.name, arguments.options)
    tools = None if arguments.tools is None else read_tools(arguments.tools)
    text = read_text(arguments.source, what="what a model wrote")
    mode: ParseMode = "lenient" if arguments.lenient else "strict"
    # The plugin boundary: a parser must not raise. If one does, name the plugin instead of crashing.
    try:
        result = parser.parse(text, tools, mode)
        streamed = None
        if arguments.stream is not None:
            streamed = _feed(parser.stream(tools, mode), text, size=arguments.stream, whole=result)
    except Exception as error:  # the plugin boundary, see above
        plugin = registry.component("parser", arguments.name).plugin.id
        raise BrokenComponentError(
            f"the parser {arguments.name!r} of {plugin} raised {type(error).__name__}: {error}",
            hint="a parser never raises on a model's text; report it to the plugin's author, --debug shows where",
        ) from error
    if arguments.json:
        _print_document(arguments.name, mode, result, streamed)
    else:
        screen = Screen(sys.stdout, os.environ)
        _Printer(screen, limit=None if arguments.full else _FEW_LINES).print(arguments.name, mode, result, streamed)
        if not result.attempts and (other := _other_format(text, arguments.name, registry)):
            screen.line(f"found no attempt to call a tool; the marks are those of {other}: try that parser")
    return 0 if streamed is None or streamed.is_equal else 1


def _other_format(text: str, name: str, registry: Registry) -> str | None:
    """Return the format whose marks a text has, unless it is the one that was tried (by any of its names)."""
    from hermes_parsers.detection import detect

    found = detect(text).name
    return None if found is None or is_same_parser(registry, name, found) else found


def _feed(stream: ParserStream, text: str, *, size: int, whole: ParseResult) -> _Streamed:
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    events = [(number, event) for number, piece in enumerate(pieces, 1) for event in stream.feed(piece)]
    events.extend((0, event) for event in stream.finish())
    return _Streamed(pieces=len(pieces), events=tuple(events), is_equal=stream.result() == whole)


def _print_document(name: str, mode: str, result: ParseResult, streamed: _Streamed | None) -> None:
    document: dict[str, Any] = {"parser": name, "mode": mode, **dataclasses.asdict(result)}
    for attempt in document["attempts"]:
        # `arguments` says the same, and the value may not be writable as JSON: 1e999 is infinite.
        del attempt["value"]
    if streamed is not None:
        events = [{"piece": piece or None, **dataclasses.asdict(event)} for piece, event in streamed.events]
        document["stream"] = {"pieces": streamed.pieces, "is_equal": streamed.is_equal, "events": events}
    print_json(document)


class _Printer:
    """Prints a result for people."""

    def __init__(self, screen: Screen, *, limit: int | None) -> None:
        self._screen = screen
        self._limit = limit

    def print(self, name: str, mode: str, result: ParseResult, streamed: _Streamed | None) -> None:
        """Print segments, attempts, calls and, if it was streamed, events."""
        from hermes_core.cli import plural

        counts = f"{plural(len(result.calls), 'call')} of {plural(len(result.attempts), 'attempt')}"
        self._screen.line(self._screen.paint(f"{self._screen.escape(name)} ({mode}): {counts}", "strong"))
        self._print_segments(result)
        if result.attempts:
            self._heading("attempts")
            for number, attempt in enumerate(result.attempts, 1):
                self._print_attempt(number, attempt)
        if result.calls:
            self._heading("calls")
            for call in result.calls:
                self._print_lines("  ", _call_json(call))
        if streamed is not None:
            self._print_stream(streamed)

    def _heading(self, text: str) -> None:
        self._screen.line()
        self._screen.line(self._screen.paint(text, "strong"))

    def _print_segments(self, result: ParseResult) -> None:
        end = str(result.segments[-1].end) if result.segments else ""
        for segment in result.segments:
            label, style = _label(segment, result)
            span = f"{segment.start}-{segment.end}"
            head = f"{label:<9} {span:>{2 * len(end) + 1}}  "
            for number, line in enumerate(self._screen.shown_lines(segment.raw, self._limit)):
                lead = head if number == 0 else " " * len(head)
                self._screen.line(f"{lead}{self._screen.paint('|', 'faint')} {self._screen.paint(line, style)}")

    def _print_attempt(self, number: int, attempt: ParseAttempt) -> None:
        status = self._screen.paint(f"{attempt.status.value:<12}", _STYLES.get(attempt.status, "bad"))
        name = "-" if attempt.name is None else self._screen.escape(attempt.name)
        self._screen.line(f"  {number}  {status}  {attempt.start}-{attempt.end}  {name}")
        if attempt.reason:
            self._screen.line(f"     {self._screen.escape(attempt.reason)}")

    def _print_lines(self, lead: str, text: str) -> None:
        for line in self._screen.shown_lines(text, self._limit):
            self._screen.line(lead + line)

    def _print_stream(self, streamed: _Streamed) -> None:
        self._heading(f"stream of {plural(streamed.pieces, 'piece')}")
        events = streamed.events if self._limit is None else streamed.events[: self._limit]
        for piece, event in events:
            when = f"piece {piece}" if piece else "end"
            shown = event.text if event.call is None else _call_json(event.call)
            self._screen.line(f"  {when:<12} {event.kind:<9}  {self._screen.escape(shown)}")
        if len(events) < len(streamed.events):
            self._screen.line(f"  … {plural(len(streamed.events) - len(events), 'more event')}; --full shows them")
        if streamed.is_equal:
            self._screen.line("  the result is the same as in one piece")
        else:
            self._screen.line(self._screen.paint("  the result DIFFERS from the one in one piece: a bug", "bad"))


def _label(segment: ParseSegment, result: ParseResult) -> tuple[str, str]:
    if segment.kind != "call":
        return segment.kind, "reasoning" if segment.kind == "reasoning" else ""
    statuses = [a.status for a in result.attempts if segment.start <= a.start and a.end <= segment.end]
    style = _STYLES.get(statuses[0], "bad") if statuses else "bad"
    return ("no call", style) if segment.call is None else (f"call {segment.call + 1}", style)


def _call_json(call: ParsedCall) -> str:
    """Write a call as JSON with its arguments as the model wrote them."""
    name, call_id = json.dumps(call.name, ensure_ascii=False), json.dumps(call.id, ensure_ascii=False)
    return f'{{"name": {name}, "arguments": {call.arguments}, "id": {call_id}}}'
