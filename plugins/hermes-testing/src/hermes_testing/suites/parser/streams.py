"""Parser tests of streams and repetition: however a text is cut or repeated, the result is the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from hypothesis import given
from hypothesis import strategies as st

from hermes_core.contracts.parsing import (
    AttemptStatus,
    ParsedCall,
    ParseEvent,
    ParseMode,
    ParseResult,
    ToolCallParser,
)
from hermes_testing.suites.base import needs
from hermes_testing.suites.parser.base import MODES, PROPERTY, WEATHER, ParserBase
from hermes_testing.suites.parser.mutation import BARE_TEXTS, bare
from hermes_testing.suites.parser.samples import PLAIN, schemas_of

if TYPE_CHECKING:
    from hermes_core.discovery import Registry

_HELD: Final = 64
"""A stream may hold back fewer characters than this of plain text, as the possible beginning of a mark."""


class Streams(ParserBase):
    """Chunks, events, determinism."""

    def test_parsing_twice_gives_the_same(self, parser: ToolCallParser, registry: Registry) -> None:
        """Including ids, whatever was parsed in between and by which object."""
        for text in self.samples():
            first = self.read(parser, text)
            self.read(parser, self.malformed_call(), mode="lenient")
            assert self.read(parser, text) == first
            assert self.read(self.make(registry), text) == first

    def test_a_stream_is_a_parse_however_it_is_cut(self, parser: ToolCallParser) -> None:
        """In pieces of any one size, in both modes."""
        for text in [*self.samples(), *PLAIN.values()]:
            for mode in MODES:
                whole = self.read(parser, text, mode=mode)
                for size in (1, 2, 3, 5, 8, 13, 34, len(text) or 1):
                    pieces = [text[at : at + size] for at in range(0, len(text), size)]
                    assert stream_result(parser, pieces, self.tools(), mode) == whole

    def test_a_stream_is_a_parse_wherever_it_is_cut_in_two(self, parser: ToolCallParser) -> None:
        """Between any two characters."""
        for text in (self.message("Some text."), self.malformed_call()):
            whole = self.read(parser, text)
            for at in range(len(text)):
                assert stream_result(parser, [text[:at], text[at:]], self.tools()) == whole

    def test_a_declared_text_without_quotes_is_the_same_wherever_it_is_cut(self, parser: ToolCallParser) -> None:
        """A value that more text may change is decided only when that text is there."""
        call = ("get_weather", {"city": "MARKER"})
        for value in BARE_TEXTS:
            text = bare(self.wire([call]), "MARKER", value)
            whole = parser.parse(text, schemas_of([call]))
            for at in range(len(text)):
                found = stream_result(parser, [text[:at], text[at:]], schemas_of([call]))
                assert found == whole, f"{text!a} cut after {text[:at]!a}"

    @PROPERTY
    @given(data=st.data())
    def test_a_stream_is_a_parse_for_any_cuts(self, parser: ToolCallParser, data: st.DataObject) -> None:
        """Including empty pieces; two concurrent streams do not mix."""
        text = data.draw(st.sampled_from(self.samples()))
        cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
        edges = [0, *cuts, len(text)]
        other = parser.stream(self.tools())
        other.feed(text[: len(text) // 2])
        pieces = [text[start:end] for start, end in pairwise(edges)]
        assert stream_result(parser, pieces, self.tools()) == self.read(parser, text)

    def test_a_stream_of_nothing_is_empty(self, parser: ToolCallParser) -> None:
        """With and without empty pieces."""
        for pieces in ([], ["", ""]):
            assert stream_result(parser, pieces) == parser.parse("")

    def test_a_stream_s_events_tell_the_whole_text(self, parser: ToolCallParser) -> None:
        """The calls in order, the content verbatim, and the same for any cuts."""
        for text in (self.message("Some text."), self.message("Some text.") + "\nafter", self.malformed_call()):
            result = self.read(parser, text)
            for pieces in ([text], list(text), [text[:20], text[20:]]):
                assert stream_contents(parser, pieces, self.tools()) == (result.content or "", list(result.calls))

    def test_a_stream_s_events_tell_every_attempt(self, parser: ToolCallParser) -> None:
        """Including those that are not calls, in their place, with the text as written."""
        for text in (self.message("Some text."), self.malformed_call(), self.malformed_call() + self.wire([WEATHER])):
            result = self.read(parser, text)
            attempts = [one for one in result.attempts if one.status is not AttemptStatus.IN_REASONING]
            places = [segment.call for segment in result.segments if segment.kind == "call"]
            calls = [None if place is None else result.calls[place] for place in places]
            for pieces in ([text], list(text)):
                events = [event for event in events_of(parser, pieces, self.tools()) if event.kind == "call"]
                assert [event.call for event in events] == calls, f"{text!a}"
                told = zip(attempts, events, strict=True)
                assert all(one.raw in event.text for one, event in told), f"{text!a}"

    @needs("early_events")
    def test_a_stream_tells_text_before_the_end(self, parser: ToolCallParser) -> None:
        """Text that cannot become a call is emitted soon, for users who display it as it arrives."""
        content = "The answer is plain text, and quite long. " * 20
        early, _ = told_early(parser, self.answer(content), self.tools())
        assert content.startswith(early)
        assert len(content) - len(early) < _HELD

    @needs("early_events", "text_before")
    def test_a_stream_tells_the_text_before_a_call_once_that_has_begun(self, parser: ToolCallParser) -> None:
        """Except a last character that may begin a call without a mark."""
        content = "I will look it up. First the weather:"
        text = self.wire([WEATHER], content)
        early, _ = told_early(parser, text[: text.index("Paris")], self.tools())
        assert early.rstrip() in {content, content[:-1]}

    @needs("early_events", "reasoning")
    def test_a_stream_tells_reasoning_once_it_has_ended(self, parser: ToolCallParser) -> None:
        """Whether an answer or a call follows."""
        thought = "The user wants to know the weather. " * 5
        for after in (self.answer("Plain text."), self.wire([WEATHER])):
            text = "{0}{2}{1}\n{3}".format(*self.reasoning_tags, thought, after)
            stream = parser.stream(self.tools())
            events = [event for character in text for event in stream.feed(character)]
            assert thought.strip() in "".join(event.text for event in events if event.kind == "reasoning")

    @needs("early_events", "separate_calls")
    def test_a_stream_tells_a_call_before_the_end(self, parser: ToolCallParser) -> None:
        """Once the call's end is certain."""
        text = self.wire([*self.some_calls(), *self.some_calls()] if "many_calls" not in self.lacks else [WEATHER])
        text += "\nThat was all. " * 20 if "text_after" not in self.lacks else ""
        _, calls = told_early(parser, text, self.tools())
        assert calls[:1] == list(self.read(parser, text).calls[:1])

    @needs("early_events", "text_after")
    def test_a_stream_tells_a_call_before_the_text_after_it_has_ended(self, parser: ToolCallParser) -> None:
        """Including the calls of a list, which is complete then."""
        text = self.wire(self.some_calls()) + "\nThat was all. " * 20
        _, calls = told_early(parser, text, self.tools())
        assert calls[:1] == list(self.read(parser, text).calls[:1])


def stream_result(
    parser: ToolCallParser,
    pieces: Sequence[str],
    tools: Sequence[Mapping[str, Any]] | None = None,
    mode: ParseMode = "strict",
) -> ParseResult:
    """Return the result of a stream that gets these pieces."""
    stream = parser.stream(tools, mode)
    for piece in pieces:
        stream.feed(piece)
    stream.finish()
    return stream.result()


def stream_contents(
    parser: ToolCallParser, pieces: Sequence[str], tools: Sequence[Mapping[str, Any]] | None
) -> tuple[str, list[ParsedCall]]:
    """Return the content and the calls of a stream's events."""
    return _contents(events_of(parser, pieces, tools))


def events_of(
    parser: ToolCallParser, pieces: Sequence[str], tools: Sequence[Mapping[str, Any]] | None
) -> list[ParseEvent]:
    """Return all events of a stream that gets these pieces."""
    stream = parser.stream(tools)
    return [*(event for piece in pieces for event in stream.feed(piece)), *stream.finish()]


def told_early(
    parser: ToolCallParser, text: str, tools: Sequence[Mapping[str, Any]] | None
) -> tuple[str, list[ParsedCall]]:
    """Return the content and the calls that a stream emits before the end of the text."""
    stream = parser.stream(tools)
    return _contents([event for at in range(0, len(text), 4) for event in stream.feed(text[at : at + 4])])


def _contents(events: Sequence[ParseEvent]) -> tuple[str, list[ParsedCall]]:
    text = "".join(event.text for event in events if event.kind == "text")
    return text, [event.call for event in events if event.call is not None]
