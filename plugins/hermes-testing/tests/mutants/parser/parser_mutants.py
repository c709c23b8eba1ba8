"""Parsers with one behaviour changed; `caught_by` names the tests that must fail, all others must pass."""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import replace

from reference.parser import CLOSE, TagParser
from reference.suites import Mutant, TagSuite

from hermes_core.contracts.parsing import AttemptStatus


class TestReference(TagSuite):
    caught_by: frozenset[str] = frozenset()


class _EndsAtTheFirstMark(TagParser):
    def body_end(self, text, start):
        end = text.find(CLOSE, start)
        return end if end >= 0 else len(text)


class TestEndsAtTheFirstMark(Mutant):
    parser_class = _EndsAtTheFirstMark
    caught_by = frozenset(
        {
            "test_a_call_without_its_end_mark_is_kept",
            "test_the_format_s_own_marks_inside_a_string_are_text",
            "test_what_is_rendered_with_marks_in_it_reads_back_with_its_tools_or_is_refused",
        }
    )


class _StripsContent(TagParser):
    def content(self, segments):
        return (super().content(segments) or "").strip() or None


class TestStripsContent(Mutant):
    parser_class = _StripsContent
    caught_by = frozenset(
        {
            "test_a_closed_block_behind_reasoning_is_a_call_or_an_attempt",
            "test_a_very_long_message_is_parsed",
            "test_any_mixture_of_marks_does_not_raise",
            "test_no_truncation_raises_or_invents",
            "test_plain_text_is_unchanged",
            "test_text_after_a_call_is_not_lost",
            "test_text_before_a_call_is_content",
            "test_tools_that_are_no_schemas_do_not_raise",
        }
    )


class _KeepsFraming(TagParser):
    def framing(self, text, at, attempt):
        return attempt.start


class TestTakesFramingForContent(Mutant):
    parser_class = _KeepsFraming
    caught_by = frozenset(
        {
            "test_a_mark_in_prose_does_not_cost_the_call_after_it",
            "test_a_rendered_message_reads_back",
            "test_a_rendered_message_reads_back_with_its_text",
            "test_many_calls_are_found_in_order",
            "test_text_before_a_call_is_content",
        }
    )


class _RandomIds(TagParser):
    def id_of(self, attempt):
        return uuid.uuid4().hex


class TestRandomIds(Mutant):
    parser_class = _RandomIds
    caught_by = frozenset(
        {
            "test_a_declared_text_without_quotes_is_the_same_wherever_it_is_cut",
            "test_a_stream_is_a_parse_for_any_cuts",
            "test_a_stream_is_a_parse_however_it_is_cut",
            "test_a_stream_is_a_parse_wherever_it_is_cut_in_two",
            "test_a_stream_s_events_tell_every_attempt",
            "test_a_stream_s_events_tell_the_whole_text",
            "test_known_tools_change_nothing",
            "test_lenient_reads_what_strict_reads",
            "test_parsing_twice_gives_the_same",
        }
    )


class _EqualIds(TagParser):
    def id_of(self, attempt):
        return f"call_{attempt.name}"


class TestEqualIds(Mutant):
    parser_class = _EqualIds
    caught_by = frozenset({"test_many_calls_are_found_in_order"})


class _Encodes(TagParser):
    def parse(self, text, tools=None, mode="strict"):
        text.encode()
        return super().parse(text, tools, mode)


class TestRaisesOnSurrogates(Mutant):
    parser_class = _Encodes
    caught_by = frozenset({"test_hostile_text_does_not_raise", "test_rendering_a_result_gives_the_text_back"})


class _TrustsTools(TagParser):
    def schema(self, tool):
        return tool["function"]["name"], {}


class TestRaisesOnStrangeTools(Mutant):
    parser_class = _TrustsTools
    caught_by = frozenset({"test_tools_that_are_no_schemas_do_not_raise"})


class _Recurses(TagParser):
    def body(self, text, start, schemas, mode):
        if "[" * 6_000 in text:
            raise RecursionError("too deep")
        return super().body(text, start, schemas, mode)


class TestRaisesOnDeepNesting(Mutant):
    parser_class = _Recurses
    caught_by = frozenset({"test_nesting_that_cannot_be_read_does_not_raise"})


class _DropsTheTail(TagParser):
    def text(self, text, start, end):
        return () if start and end == len(text) else super().text(text, start, end)


class TestDropsTextAfterACall(Mutant):
    parser_class = _DropsTheTail
    caught_by = frozenset(
        {
            "test_a_closed_block_in_reasoning_is_a_draft",
            "test_a_closing_mark_that_stands_there_twice_is_no_content",
            "test_a_closed_block_of_marks_is_a_call_or_an_attempt",
            "test_a_call_drafted_in_reasoning_is_an_attempt",
            "test_hostile_text_does_not_raise",
            "test_no_deletion_of_one_character_raises",
            "test_no_truncation_raises_or_invents",
            "test_rendering_a_result_gives_the_text_back",
            "test_rendering_any_prefix_gives_it_back",
            "test_text_after_a_call_is_not_lost",
            "test_tools_that_are_no_schemas_do_not_raise",
        }
    )


class _RunsDrafts(TagParser):
    def reasoning_end(self, text):
        return 0


class TestTakesDraftsForCalls(Mutant):
    parser_class = _RunsDrafts
    caught_by = frozenset(
        {
            "test_a_closed_block_behind_reasoning_is_a_call_or_an_attempt",
            "test_a_closed_block_in_reasoning_is_a_draft",
            "test_a_call_after_reasoning_is_a_call",
            "test_a_call_drafted_in_reasoning_is_an_attempt",
        }
    )


class _ForgetsTheReasoning(TagParser):
    def shift(self, attempt, by):
        return attempt


class TestGivesSpansWithoutTheReasoning(Mutant):
    parser_class = _ForgetsTheReasoning
    caught_by = frozenset(
        {
            "test_a_closed_block_behind_reasoning_is_a_call_or_an_attempt",
            "test_a_call_after_reasoning_is_a_call",
            "test_rendering_a_result_gives_the_text_back",
            "test_tools_that_are_no_schemas_do_not_raise",
        }
    )


class _AllOrNothing(TagParser):
    def segments(self, text, start, attempts, good):
        if len(good) < len(attempts):
            good.clear()
        return super().segments(text, start, attempts, good)


class TestLosesTheGoodWithTheBad(Mutant):
    parser_class = _AllOrNothing
    caught_by = frozenset(
        {
            "test_a_closed_block_behind_a_call_is_a_call_or_an_attempt",
            "test_a_bad_call_leaves_nothing_of_the_frame_in_the_content",
            "test_a_bad_call_does_not_cost_the_good_ones",
            "test_a_change_in_the_prose_leaves_the_calls",
            "test_a_character_missing_from_one_call_leaves_the_others",
            "test_no_deletion_of_one_character_raises",
            "test_no_truncation_raises_or_invents",
        }
    )


class _SwallowsTheRest(TagParser):
    def end_of_broken(self, text, start):
        end = text.rfind(CLOSE, start)
        return (len(text), True) if end < 0 else (end + len(CLOSE), False)


class TestSwallowsWhatFollowsABadCall(Mutant):
    parser_class = _SwallowsTheRest
    caught_by = frozenset(
        {
            "test_a_bad_call_leaves_nothing_of_the_frame_in_the_content",
            "test_a_bad_call_does_not_cost_the_good_ones",
            "test_a_character_missing_from_one_call_leaves_the_others",
        }
    )


class _Silent(TagParser):
    def refuse(self, attempt, refused, text):
        return None


class TestSaysNothingOfBadCalls(Mutant):
    parser_class = _Silent
    caught_by = frozenset(
        {
            "test_a_closed_block_behind_a_call_is_a_call_or_an_attempt",
            "test_a_closed_block_behind_reasoning_is_a_call_or_an_attempt",
            "test_a_closed_block_behind_text_is_a_call_or_an_attempt",
            "test_a_closed_block_in_reasoning_is_a_draft",
            "test_a_closed_block_in_reasoning_that_is_never_closed_is_an_attempt",
            "test_text_between_a_call_and_its_closing_mark_is_told",
            "test_a_bad_call_leaves_nothing_of_the_frame_in_the_content",
            "test_a_closed_block_is_a_call_or_an_attempt",
            "test_a_closed_block_of_marks_is_a_call_or_an_attempt",
            "test_a_bad_call_does_not_cost_the_good_ones",
            "test_a_call_cut_in_its_arguments_is_an_attempt",
            "test_a_call_that_cannot_be_read_is_an_attempt_with_a_reason",
            "test_a_number_that_cannot_be_read_does_not_raise",
            "test_a_number_that_json_does_not_know_is_no_argument",
            "test_only_lenient_mode_repairs",
            "test_only_lenient_mode_takes_an_extra_brace",
        }
    )


class _GuessesArguments(TagParser):
    def refuse(self, attempt, refused, text):
        attempt = super().refuse(attempt, refused, text)
        name = attempt.raw.partition('"name": "')[2].partition('"')[0]
        made = replace(attempt, status=AttemptStatus.UNCLOSED, name=name, arguments="{}", value={})
        return made if refused.is_cut and name else attempt


class TestCallsWhatIsCut(Mutant):
    parser_class = _GuessesArguments
    caught_by = frozenset(
        {
            "test_a_call_without_its_end_mark_is_kept",
            "test_an_attempt_without_its_end_mark_holds_its_arguments_too",
            "test_no_truncation_raises_or_invents",
            "test_the_beginning_of_a_call_is_no_call",
        }
    )


class _DropsUnclosed(TagParser):
    def is_good(self, attempt):
        return super().is_good(attempt) and attempt.status is not AttemptStatus.UNCLOSED


class TestDropsACallWithoutItsEnd(Mutant):
    parser_class = _DropsUnclosed
    caught_by = frozenset(
        {
            "test_a_call_cut_in_its_arguments_is_an_attempt",
            "test_a_call_without_its_end_mark_is_kept",
            "test_no_deletion_of_one_character_raises",
            "test_no_truncation_raises_or_invents",
        }
    )


class _DropsUnknown(TagParser):
    def is_good(self, attempt):
        return super().is_good(attempt) and attempt.status is not AttemptStatus.UNKNOWN_TOOL


class TestDropsUnknownTools(Mutant):
    parser_class = _DropsUnknown
    caught_by = frozenset(
        {
            "test_a_thousand_spoilt_messages_keep_every_promise",
            "test_an_unknown_tool_is_kept_and_flagged",
            "test_tools_that_are_no_schemas_do_not_raise",
        }
    )


class _BelievesMarks(TagParser):
    def has_body(self, text, at):
        return True


class TestTakesAMarkForACall(Mutant):
    parser_class = _BelievesMarks
    caught_by = frozenset({"test_a_mark_in_prose_does_not_cost_the_call_after_it", "test_a_mark_in_prose_is_text"})


class _MindsQuotes(TagParser):
    def attempt(self, text, start, schemas, mode):
        return None if text.count('"', 0, start) % 2 else super().attempt(text, start, schemas, mode)


class TestFindsNoCallAfterAQuote(Mutant):
    parser_class = _MindsQuotes
    caught_by = frozenset(
        {"test_a_change_in_the_prose_leaves_the_calls", "test_a_character_missing_from_one_call_leaves_the_others"}
    )


class _AlwaysRepairs(TagParser):
    def repair(self, text, start, reason, mode):
        return super().repair(text, start, reason, "lenient")


class TestRepairsInStrictMode(Mutant):
    parser_class = _AlwaysRepairs
    caught_by = frozenset({"test_only_lenient_mode_repairs", "test_only_lenient_mode_takes_an_extra_brace"})


class _ReadsNaN(TagParser):
    constant = float

    def dumps(self, arguments):
        return json.dumps(arguments)


class TestReadsNaN(Mutant):
    parser_class = _ReadsNaN
    caught_by = frozenset(
        {
            "test_a_number_that_cannot_be_read_does_not_raise",
            "test_a_number_that_json_does_not_know_is_no_argument",
            "test_what_cannot_be_written_is_refused",
        }
    )


class _NoArguments(TagParser):
    def dumps(self, arguments):
        return super().dumps(arguments or None)


class TestWritesNullForNoArguments(Mutant):
    parser_class = _NoArguments
    caught_by = frozenset(
        {
            "test_a_call_without_arguments_has_an_empty_object",
            "test_a_call_without_arguments_is_written",
            "test_any_arguments_arrive_unchanged",
            "test_no_deletion_of_one_character_raises",
        }
    )


class _WholeNumbers(TagParser):
    def dumps(self, arguments):
        whole = {k: int(v) if isinstance(v, float) and v.is_integer() else v for k, v in arguments.items()}
        return super().dumps(whole)


class TestWritesWholeNumbersAsIntegers(Mutant):
    parser_class = _WholeNumbers
    caught_by = frozenset(
        {"test_a_value_has_the_type_its_schema_declares", "test_what_is_rendered_reads_back_with_its_tools"}
    )


class _CallsTheNameless(TagParser):
    def judge(self, attempt, schemas):
        name = attempt.name if isinstance(attempt.name, str) else ""
        return super().judge(replace(attempt, name=name if name.strip() else "unnamed"), schemas)


class TestGivesTheNamelessAName(Mutant):
    parser_class = _CallsTheNameless
    caught_by = frozenset({"test_a_call_without_a_name_is_no_call"})


class _ReadsInfinity(TagParser):
    def dumps(self, arguments):
        return re.sub(r"\bInfinity\b", "1e999", json.dumps(arguments))


class TestReadsInfinity(Mutant):
    parser_class = _ReadsInfinity
    caught_by = frozenset(
        {"test_a_number_that_cannot_be_read_does_not_raise", "test_what_cannot_be_written_is_refused"}
    )


class _TextsAreTexts(TagParser):
    def judge(self, attempt, schemas):
        words = {"True": True, "None": None}
        value = attempt.value if isinstance(attempt.value, dict) else {}
        known = isinstance(schemas, dict) and isinstance(attempt.name, str) and attempt.name in schemas
        read = {key: words.get(one, one) if isinstance(one, str) else one for key, one in value.items()}
        return super().judge(replace(attempt, value=read) if known and value else attempt, schemas)


class TestReadsOtherThingsWithTools(Mutant):
    parser_class = _TextsAreTexts
    caught_by = frozenset(
        {
            "test_python_s_spellings_are_accepted_where_only_the_schema_knows_types",
            "test_what_is_rendered_reads_back_with_its_tools",
        }
    )
