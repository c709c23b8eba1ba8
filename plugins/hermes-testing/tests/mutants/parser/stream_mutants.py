"""Parsers whose streams, speed or writing are changed; `caught_by` as in `parser_mutants`."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from reference.parser import CLOSE, OPEN, RefusedError, TagParser
from reference.streaming import StreamedTagParser, TagStream
from reference.suites import Mutant, StreamedMutant, StreamedSuite


class TestStreamedReference(StreamedSuite):
    caught_by: frozenset[str] = frozenset()


class _SaysNothing(TagStream):
    def feed(self, delta):
        self.pieces.append(delta)
        return []


class _WaitsForTheEnd(StreamedTagParser):
    def stream(self, tools=None, mode="strict"):
        return _SaysNothing(self, tools, mode)


class TestStreamSaysNothingUntilTheEnd(StreamedMutant):
    parser_class = _WaitsForTheEnd
    caught_by = frozenset(
        {
            "test_a_stream_tells_a_call_before_the_end",
            "test_a_stream_tells_a_call_before_the_text_after_it_has_ended",
            "test_a_stream_tells_reasoning_once_it_has_ended",
            "test_a_stream_tells_text_before_the_end",
            "test_a_stream_tells_the_text_before_a_call_once_that_has_begun",
        }
    )


class _KeepsCalls(TagStream):
    def call(self):
        return []


class _TellsCallsAtTheEnd(StreamedTagParser):
    def stream(self, tools=None, mode="strict"):
        return _KeepsCalls(self, tools, mode)


class TestStreamTellsCallsAtTheEnd(StreamedMutant):
    parser_class = _TellsCallsAtTheEnd
    caught_by = frozenset(
        {
            "test_a_stream_tells_a_call_before_the_end",
            "test_a_stream_tells_a_call_before_the_text_after_it_has_ended",
        }
    )


class TestStreamTellsTheCallsOfAListAtTheEnd(StreamedMutant):
    parser_class = _TellsCallsAtTheEnd
    lacks = MappingProxyType({"separate_calls": "as if the calls were items of one list"})
    caught_by = frozenset({"test_a_stream_tells_a_call_before_the_text_after_it_has_ended"})


class _TellsPages(TagStream):
    def text(self, end):
        return super().text(end) if end >= 500 or end < len(self.waiting) else []


class _ReadsPages(StreamedTagParser):
    def stream(self, tools=None, mode="strict"):
        return _TellsPages(self, tools, mode)


class TestStreamTellsTextByThePage(StreamedMutant):
    parser_class = _ReadsPages
    caught_by = frozenset({"test_a_stream_tells_text_before_the_end"})


class _TellsTextWithTheCall(TagStream):
    def text(self, end):
        # One word after the other; the last one before a mark waits for the end of the call, which may not be one.
        if end == len(self.waiting):
            return super().text(self.waiting.rfind(" ") + 1)
        return super().text(end) if CLOSE in self.waiting else []


class _TiesTextToCalls(StreamedTagParser):
    def stream(self, tools=None, mode="strict"):
        return _TellsTextWithTheCall(self, tools, mode)


class TestStreamTellsTheTextBeforeACallWithIt(StreamedMutant):
    parser_class = _TiesTextToCalls
    caught_by = frozenset({"test_a_stream_tells_the_text_before_a_call_once_that_has_begun"})


class _ThinksToTheEnd(TagStream):
    def reasoning(self):
        events = super().reasoning()
        self.thought = [event for event in events if event.kind == "reasoning"]
        return [event for event in events if event.kind != "reasoning"]

    def finish(self):
        return [*getattr(self, "thought", ()), *super().finish()]


class _TellsReasoningLast(StreamedTagParser):
    def stream(self, tools=None, mode="strict"):
        return _ThinksToTheEnd(self, tools, mode)


class TestStreamTellsReasoningAtTheEnd(StreamedMutant):
    parser_class = _TellsReasoningLast
    caught_by = frozenset({"test_a_stream_tells_reasoning_once_it_has_ended"})


class _KeepsFailures(TagStream):
    def finish(self):
        return [event for event in super().finish() if event.kind != "call" or event.call is not None]


class _HidesFailures(StreamedTagParser):
    def stream(self, tools=None, mode="strict"):
        return _KeepsFailures(self, tools, mode)


class TestStreamSaysNothingOfBadCalls(StreamedMutant):
    parser_class = _HidesFailures
    caught_by = frozenset({"test_a_stream_s_events_tell_every_attempt"})


class _ForgetsTheWords(TagStream):
    def call(self):
        return [replace(event, text="") for event in super().call()]


class _TellsBareCalls(StreamedTagParser):
    def stream(self, tools=None, mode="strict"):
        return _ForgetsTheWords(self, tools, mode)


class TestStreamTellsCallsWithoutTheirText(StreamedMutant):
    parser_class = _TellsBareCalls
    caught_by = frozenset({"test_a_stream_s_events_tell_every_attempt"})


class _Stream:
    def __init__(self, parser, tools, mode):
        self.parser, self.tools, self.mode, self.text = parser, tools, mode, ""
        self.inner = super(TagParser, parser).stream(tools, mode)

    def feed(self, delta):
        return self.inner.feed(delta)

    def finish(self):
        return self.inner.finish()

    def result(self):
        return self.inner.result()


class _LosesShortPieces(TagParser):
    def stream(self, tools=None, mode="strict"):
        stream = _Stream(self, tools, mode)
        stream.feed = lambda delta: stream.inner.feed(delta.rstrip("\n") if len(delta) < 4 else delta)
        return stream


class TestStreamDependsOnTheCuts(Mutant):
    parser_class = _LosesShortPieces
    caught_by = frozenset(
        {
            "test_a_stream_is_a_parse_however_it_is_cut",
            "test_a_stream_s_events_tell_every_attempt",
            "test_a_stream_s_events_tell_the_whole_text",
        }
    )


class _ForgetsTheMode(TagParser):
    def stream(self, tools=None, mode="strict"):
        return super().stream(tools)


class TestStreamIsAlwaysStrict(Mutant):
    parser_class = _ForgetsTheMode
    caught_by = frozenset({"test_a_stream_is_a_parse_however_it_is_cut"})


class _Rereads(_Stream):
    def feed(self, delta):
        self.text += delta
        self.parser.parse(self.text, self.tools, self.mode)
        return self.inner.feed(delta)


class _ParsesAtEveryPiece(TagParser):
    def stream(self, tools=None, mode="strict"):
        return _Rereads(self, tools, mode)


class TestStreamIsQuadratic(Mutant):
    long_text = 40_000
    parser_class = _ParsesAtEveryPiece
    caught_by = frozenset({"test_twice_the_text_is_twice_the_work"})


class _CountsFromTheStart(TagParser):
    def refuse(self, attempt, refused, text):
        line = 1
        for character in text[: attempt.start]:
            line += character == "\n"
        return super().refuse(attempt, RefusedError(f"line {line}: {refused.reason}", refused.stop), text)


class TestIsQuadraticInPython(Mutant):
    parser_class = _CountsFromTheStart
    caught_by = frozenset({"test_twice_the_text_is_twice_the_work"})


class _CopiesTheRest(TagParser):
    def has_body(self, text, at):
        return list(text[at:])[:1] == ["{"] or self.is_block(text, at)


class TestIsQuadraticInCopying(Mutant):
    long_text = 1_000_000
    parser_class = _CopiesTheRest
    caught_by = frozenset({"test_time_grows_no_faster_than_the_text"})


class _Reorders(TagParser):
    def render(self, message):
        if isinstance(message, dict):
            return super().render(message)
        texts = [s.raw for s in message.segments if s.kind != "call"]
        return "".join([*texts, *(s.raw for s in message.segments if s.kind == "call")])


class TestRenderForgetsTheOrder(Mutant):
    parser_class = _Reorders
    caught_by = frozenset({"test_rendering_a_result_gives_the_text_back", "test_rendering_any_prefix_gives_it_back"})


class _WritesAnything(TagParser):
    def block(self, function):
        arguments = function["arguments"]
        try:
            return super().block(function)
        except ValueError:
            return f"{OPEN}{arguments}{CLOSE}"


class TestRenderWritesWhatIsNoObject(Mutant):
    parser_class = _WritesAnything
    caught_by = frozenset({"test_what_cannot_be_written_is_refused"})


class _DecidesAtTheCut(TagParser):
    def stream(self, tools=None, mode="strict"):
        stream = _Stream(self, tools, mode)
        stream.feed = lambda delta: stream.inner.feed(delta.removesuffix("-") if delta.endswith("12-") else delta)
        return stream


class TestStreamTakesTheBeginningOfATextForItsValue(Mutant):
    parser_class = _DecidesAtTheCut
    caught_by = frozenset({"test_a_declared_text_without_quotes_is_the_same_wherever_it_is_cut"})


class _LosesText(TagParser):
    def parse(self, text, tools=None, mode="strict"):
        return super().parse(text[:-1], tools, mode)


class TestLosesTextWithAnOption(Mutant):
    caught_by = frozenset({"test_a_thousand_spoilt_messages_keep_every_promise"})

    def make_with(self, registry, option):
        return _LosesText()
