"""Parsers that lose a block of calls, or leave its marks; `caught_by` names the tests that must fail."""

from __future__ import annotations

from reference.parser import MARKS, OPEN, TagParser
from reference.suites import Mutant

from hermes_core.contracts.parsing import AttemptStatus


class _ReadsOnlyObjects(TagParser):
    def has_body(self, text, at):
        return text.startswith("{", at)


class TestTakesAClosedBlockForProse(Mutant):
    parser_class = _ReadsOnlyObjects
    caught_by = frozenset(
        {
            "test_a_closed_block_around_any_text_is_a_call_or_an_attempt",
            "test_a_closed_block_behind_a_call_is_a_call_or_an_attempt",
            "test_a_closed_block_behind_reasoning_is_a_call_or_an_attempt",
            "test_a_closed_block_behind_text_is_a_call_or_an_attempt",
            "test_a_closed_block_in_reasoning_is_a_draft",
            "test_a_closed_block_in_reasoning_that_is_never_closed_is_an_attempt",
            "test_a_closed_block_is_a_call_or_an_attempt",
            "test_a_closed_block_of_marks_is_a_call_or_an_attempt",
        }
    )


class _LeavesTheEndMark(TagParser):
    def end_of_broken(self, text, start):
        found = MARKS.search(text, start)
        return (len(text), True) if found is None else (found.start(), False)


class TestLeavesTheEndMarkOfABadCallInTheContent(Mutant):
    parser_class = _LeavesTheEndMark
    caught_by = frozenset(
        {
            "test_a_bad_call_leaves_nothing_of_the_frame_in_the_content",
            "test_a_closed_block_around_any_text_is_a_call_or_an_attempt",
            "test_a_closed_block_behind_a_call_is_a_call_or_an_attempt",
            "test_a_closed_block_behind_reasoning_is_a_call_or_an_attempt",
            "test_a_closed_block_behind_text_is_a_call_or_an_attempt",
            "test_a_closed_block_is_a_call_or_an_attempt",
            "test_text_between_a_call_and_its_closing_mark_is_told",
        }
    )


class _ReadsBlocksAtTheStart(TagParser):
    def has_body(self, text, at):
        return text.startswith("{", at) or (at == len(OPEN) and self.is_block(text, at))


class TestTakesABlockForProseUnlessItIsTheFirstThing(Mutant):
    parser_class = _ReadsBlocksAtTheStart
    caught_by = frozenset(
        {
            "test_a_closed_block_behind_a_call_is_a_call_or_an_attempt",
            "test_a_closed_block_behind_reasoning_is_a_call_or_an_attempt",
            "test_a_closed_block_behind_text_is_a_call_or_an_attempt",
            "test_a_closed_block_in_reasoning_is_a_draft",
            "test_a_closed_block_in_reasoning_that_is_never_closed_is_an_attempt",
            "test_a_closed_block_of_marks_is_a_call_or_an_attempt",
        }
    )


class _DraftsOnlyCalls(TagParser):
    def reasoning_attempts(self, text, schemas, mode):
        return [attempt for attempt in self.attempts(text, schemas, mode) if self.is_good(attempt)]


class TestTellsNoBadCallInReasoning(Mutant):
    parser_class = _DraftsOnlyCalls
    caught_by = frozenset(
        {
            "test_a_closed_block_in_reasoning_is_a_draft",
            "test_a_closed_block_in_reasoning_that_is_never_closed_is_an_attempt",
        }
    )


class _LosesTheLastCallBehindText(TagParser):
    def attempts(self, text, schemas, mode):
        found = list(super().attempts(text, schemas, mode))
        return found if text.startswith((OPEN, "\n", "<")) or len(found) != 1 or self.is_good(found[0]) else []


class TestTakesABadBlockBehindTextForProse(Mutant):
    parser_class = _LosesTheLastCallBehindText
    caught_by = frozenset(
        {
            "test_a_bad_call_leaves_nothing_of_the_frame_in_the_content",
            "test_a_closed_block_behind_text_is_a_call_or_an_attempt",
        }
    )


class _LeavesASecondEndMark(TagParser):
    def repeated_end(self, text, end):
        return end


class TestLeavesASecondEndMarkInTheContent(Mutant):
    parser_class = _LeavesASecondEndMark
    caught_by = frozenset({"test_a_closing_mark_that_stands_there_twice_is_no_content"})


def follows_text(reason, text, stop):
    return reason.startswith("something between") and "}" not in text[stop : MARKS.search(text, stop).start()]


class _EndsBehindTheObject(TagParser):
    def repair(self, text, start, reason, mode):
        stop = self.body_end(text, start)
        if follows_text(reason, text, stop):
            return *self.fields(self.decode_body(text[start:stop])), AttemptStatus.UNCLOSED, reason, stop
        return super().repair(text, start, reason, mode)


class TestLeavesTextBehindACallAndItsEndMarkInTheContent(Mutant):
    parser_class = _EndsBehindTheObject
    caught_by = frozenset({"test_text_between_a_call_and_its_closing_mark_is_told"})


class _DropsWhatFollowsTheObject(TagParser):
    def repair(self, text, start, reason, mode):
        stop = self.body_end(text, start)
        if follows_text(reason, text, stop):
            closing = MARKS.search(text, stop)
            return *self.fields(self.decode_body(text[start:stop])), AttemptStatus.OK, "", closing.end()
        return super().repair(text, start, reason, mode)


class TestDropsTextBehindACallInItsBlock(Mutant):
    parser_class = _DropsWhatFollowsTheObject
    caught_by = frozenset({"test_text_between_a_call_and_its_closing_mark_is_told"})
