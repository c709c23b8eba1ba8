"""Parsers that lose a block of calls, or leave its marks; `caught_by` names the tests that must fail."""

from __future__ import annotations

from reference.parser import MARKS, TagParser
from reference.suites import Mutant


class _ReadsOnlyObjects(TagParser):
    def has_body(self, text, at):
        return text.startswith("{", at)


class TestTakesAClosedBlockForProse(Mutant):
    parser_class = _ReadsOnlyObjects
    caught_by = frozenset(
        {
            "test_a_closed_block_around_any_text_is_a_call_or_an_attempt",
            "test_a_closed_block_is_a_call_or_an_attempt",
            "test_a_closed_block_of_marks_is_a_call_or_an_attempt",
        }
    )


class _LeavesTheEndMark(TagParser):
    def broken_at(self, text, start):
        found = MARKS.search(text, start)
        return (len(text), True) if found is None else (found.start(), False)


class TestLeavesTheEndMarkOfABadCallInTheContent(Mutant):
    parser_class = _LeavesTheEndMark
    caught_by = frozenset(
        {
            "test_a_bad_call_leaves_nothing_of_the_frame_in_the_content",
            "test_a_closed_block_is_a_call_or_an_attempt",
        }
    )
