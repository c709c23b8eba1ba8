"""Parsers with one behaviour changed; `caught_by` names the tests that must fail, all others must pass."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace

from reference.parser import CLOSE, TagParser

from hermes_testing import ParserSuite


class TestReference(ParserSuite):
    plugin, component = "reference.plugin", "tags"
    parser_class = TagParser
    caught_by: frozenset[str] = frozenset()

    def wire(self, calls, content=""):
        blocks = [json.dumps({"name": name, "arguments": arguments}) for name, arguments in calls]
        return content + "".join(f"<call>{block}</call>" for block in blocks)

    def malformed(self):
        return self.wire([("get_weather", {"city": "MARKER"})]).replace('"MARKER"', "MARKER")

    def make(self, registry):
        super().make(registry)
        return self.parser_class()


class _EndsAtTheFirstMark(TagParser):
    def body_end(self, text, start):
        end = text.find(CLOSE, start)
        return (end, True) if end >= 0 else (len(text), False)


class TestEndsAtTheFirstMark(TestReference):
    parser_class = _EndsAtTheFirstMark
    caught_by = frozenset({"test_the_format_s_own_marks_inside_a_string_are_text"})


class _StripsContent(TagParser):
    def parse(self, text, tools=None, mode="strict"):
        result = super().parse(text, tools, mode)
        return replace(result, content=(result.content or "").strip() or None)


class TestStripsContent(TestReference):
    parser_class = _StripsContent
    caught_by = frozenset({"test_plain_text_is_unchanged"})


class _RandomIds(TagParser):
    def id_of(self, attempt):
        return uuid.uuid4().hex


class TestRandomIds(TestReference):
    parser_class = _RandomIds
    caught_by = frozenset(
        {
            "test_a_stream_is_a_parse_for_any_cuts",
            "test_a_stream_is_a_parse_however_it_is_cut",
            "test_a_stream_s_events_tell_the_whole_text",
            "test_known_tools_change_nothing",
            "test_lenient_reads_what_strict_reads",
            "test_parsing_twice_gives_the_same",
        }
    )


class _EqualIds(TagParser):
    def id_of(self, attempt):
        return f"call_{attempt.name}"


class TestEqualIds(TestReference):
    parser_class = _EqualIds
    caught_by = frozenset({"test_many_calls_are_found_in_order"})


class _Raises(TagParser):
    def parse(self, text, tools=None, mode="strict"):
        text.encode()
        return super().parse(text, tools, mode)


class TestRaisesOnSurrogates(TestReference):
    parser_class = _Raises
    caught_by = frozenset({"test_hostile_text_does_not_raise"})


class _DropsTheTail(TagParser):
    def text(self, text, start, end):
        return () if start and end == len(text) else super().text(text, start, end)


class TestDropsTextAfterACall(TestReference):
    parser_class = _DropsTheTail
    caught_by = frozenset(
        {
            "test_a_call_drafted_in_reasoning_is_an_attempt",
            "test_hostile_text_does_not_raise",
            "test_no_truncation_raises_or_invents",
            "test_no_deletion_of_one_character_raises",
            "test_rendering_a_result_gives_the_text_back",
            "test_text_after_a_call_is_not_lost",
        }
    )


class _RunsDrafts(TagParser):
    def reasoning_end(self, text):
        return 0


class TestTakesDraftsForCalls(TestReference):
    parser_class = _RunsDrafts
    caught_by = frozenset({"test_a_call_after_reasoning_is_a_call", "test_a_call_drafted_in_reasoning_is_an_attempt"})


class _AllOrNothing(TagParser):
    def is_good(self, attempt):
        return super().is_good(attempt) and not self.spoilt

    def parse(self, text, tools=None, mode="strict"):
        self.spoilt = False
        self.spoilt = any(not self.is_good(attempt) for attempt in super().parse(text, tools, mode).attempts)
        return super().parse(text, tools, mode)


class TestLosesTheGoodWithTheBad(TestReference):
    parser_class = _AllOrNothing
    caught_by = frozenset({"test_a_bad_call_does_not_cost_the_good_one"})


class _GuessesArguments(TagParser):
    def broken(self, attempt, reason, *, is_cut):
        attempt = super().broken(attempt, reason, is_cut=is_cut)
        name = attempt.raw.partition('"name": "')[2].partition('"')[0]
        return replace(attempt, status="ok", name=name, arguments="{}") if name else attempt

    def is_good(self, attempt):
        return super().is_good(attempt) or attempt.status == "ok"


class TestCallsWithWhatCouldNotBeRead(TestReference):
    parser_class = _GuessesArguments
    caught_by = frozenset(
        {
            "test_a_bad_call_does_not_cost_the_good_one",
            "test_a_call_cut_in_its_arguments_is_an_attempt",
            "test_a_mark_in_prose_is_no_call",
            "test_broken_json_is_an_attempt_with_a_reason",
            "test_no_truncation_raises_or_invents",
        }
    )


class _Chunky:
    def __init__(self, parser, tools, mode):
        self.inner = super(TagParser, parser).stream(tools, mode)

    def feed(self, delta):
        return self.inner.feed(delta.rstrip("\n") if len(delta) < 4 else delta)

    def finish(self):
        return self.inner.finish()

    def result(self):
        return self.inner.result()


class _LosesShortPieces(TagParser):
    def stream(self, tools=None, mode="strict"):
        return _Chunky(self, tools, mode)


class TestStreamDependsOnTheCuts(TestReference):
    parser_class = _LosesShortPieces
    caught_by = frozenset({"test_a_stream_is_a_parse_however_it_is_cut"})


class _Reorders(TagParser):
    def render(self, message):
        if isinstance(message, dict):
            return super().render(message)
        texts = [s.raw for s in message.segments if s.kind != "call"]
        return "".join([*texts, *(s.raw for s in message.segments if s.kind == "call")])


class TestRenderForgetsTheOrder(TestReference):
    parser_class = _Reorders
    caught_by = frozenset({"test_rendering_a_result_gives_the_text_back"})
