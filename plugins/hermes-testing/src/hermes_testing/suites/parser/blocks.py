"""Parser tests of blocks: text between a format's marks is never silently content."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_core.contracts.parsing import AttemptStatus, ParseMode, ToolCallParser
from hermes_testing.suites.base import needs
from hermes_testing.suites.parser.base import MODES, PROPERTY, SEARCH, WEATHER, Call, ParserBase
from hermes_testing.suites.parser.invariants import encode, meaning, statuses, violations
from hermes_testing.suites.parser.samples import BLOCK_TEXTS

_BAD: Call = ("get_weather", {"city": "MARKER"})


class Blocks(ParserBase):
    """A model that wrote both marks meant a call; if it is unreadable, the model must get feedback."""

    @needs("block_marks")
    def test_a_closed_block_is_a_call_or_an_attempt(self, parser: ToolCallParser) -> None:
        """Whatever its content, even empty; no part of it is content of the message."""
        silent = [
            f"{name} ({mode}): {block!a}"
            for name, text in BLOCK_TEXTS.items()
            for block in self._blocks_around(text)
            for mode in MODES
            if self._is_silent(parser, block, mode)
        ]
        assert silent == []

    @needs("block_marks")
    def test_a_closed_block_of_marks_is_a_call_or_an_attempt(self, parser: ToolCallParser) -> None:
        """A doubled opening mark, a closing mark inside, a message of calls with their own marks."""
        marks = [*(mark for pair in self.block_marks for mark in pair), self.mark(), self.wire([WEATHER])]
        for mark in marks:
            for block in self._blocks_around(mark):
                result = self.read(parser, block)
                assert result.attempts, f"{block!a} is neither a call nor an attempt"
                assert violations(block, result) == []

    @needs("block_marks")
    @PROPERTY
    @given(data=st.data())
    def test_a_closed_block_around_any_text_is_a_call_or_an_attempt(
        self, parser: ToolCallParser, data: st.DataObject
    ) -> None:
        """Pieces of a message, brackets and words in any order."""
        whole = self.message("text") if "text_before" not in self.lacks else self.message("")
        cuts = st.tuples(st.integers(0, len(whole)), st.integers(0, len(whole)))
        pieces = cuts.map(lambda cut: whole[min(cut) : max(cut)]) | st.text(max_size=8) | st.sampled_from("{}[]()\"'<>")
        text = "".join(data.draw(st.lists(pieces, max_size=4)))
        for block in self._blocks_around(text):
            result = self.read(parser, block)
            assert result.attempts, f"{block!a} is neither a call nor an attempt"
            assert violations(block, result) == []
            # A mark in the text may end the block early, or begin another one.
            has_mark = "<" in text or any(mark.strip() in text for pair in self.block_marks for mark in pair)
            assert has_mark or result.content is None, f"{result.content!a} is content in {block!a}"

    @needs("block_marks", "reasoning")
    def test_a_closed_block_behind_reasoning_is_a_call_or_an_attempt(self, parser: ToolCallParser) -> None:
        """No part of it is content or reasoning."""
        opening, closing = self.reasoning_tags
        assert self._lost_blocks(parser, f"{opening}hm{closing}\n\n", "") == []

    @needs("block_marks", "reasoning")
    def test_a_closed_block_in_reasoning_is_a_draft(self, parser: ToolCallParser) -> None:
        """An attempt and not a call, whatever it contains; the answer after the reasoning is the content."""
        opening, closing = self.reasoning_tags
        for name, text in BLOCK_TEXTS.items():
            for block in self._blocks_around(text):
                result = self.read(parser, whole := f"{opening}I could\n{block}\nhere.{closing}Done.")
                assert violations(whole, result) == []
                assert {*statuses(result)} == {AttemptStatus.IN_REASONING}, f"{name}: {whole!a}"
                assert (result.calls, result.content) == ((), "Done."), f"{name}: {whole!a}"

    @needs("block_marks", "reasoning")
    def test_a_closed_block_in_reasoning_that_is_never_closed_is_an_attempt(self, parser: ToolCallParser) -> None:
        """Whether it ends the reasoning or is a draft in it."""
        opening, _ = self.reasoning_tags
        silent = [
            f"{name}: {text!a}"
            for name, body in BLOCK_TEXTS.items()
            for block in self._blocks_around(body)
            for text in (f"{opening}I call\n{block}", f"{opening}I could\n{block}\nhere.")
            if not self.read(parser, text).attempts
        ]
        assert silent == []

    @needs("block_marks", "text_before")
    def test_a_closed_block_behind_text_is_a_call_or_an_attempt(self, parser: ToolCallParser) -> None:
        """The text is the whole content."""
        assert self._lost_blocks(parser, self._before("Some text."), "Some text.") == []

    @needs("block_marks", "many_calls")
    def test_a_closed_block_behind_a_call_is_a_call_or_an_attempt(self, parser: ToolCallParser) -> None:
        """The call before it is kept."""
        assert self._lost_blocks(parser, self.wire([WEATHER]) + self._between(), "", [WEATHER]) == []

    @needs("block_marks", "block_ends")
    @pytest.mark.parametrize("again", ["{0}{0}", "{0}\n{0}", "{0} {0}\n{0}"])
    def test_a_closing_mark_that_stands_there_twice_is_no_content(self, parser: ToolCallParser, again: str) -> None:
        """With only space between, no call is lost; text after it is content."""
        calls = self.some_calls()
        for mark, before, after in self._ends_of(self.wire(calls)):
            text = before + again.format(mark) + after
            result = self.read(parser, text)
            assert (meaning(result), (result.content or "").strip()) == (encode(calls), ""), f"{text!a}"
            assert violations(text, result) == []
            if "text_after" not in self.lacks:
                result = self.read(parser, f"{text}\nDone.")
                assert (meaning(result), (result.content or "").strip()) == (encode(calls), "Done."), f"{text!a}"

    @needs("block_marks")
    def test_text_between_a_call_and_its_closing_mark_is_told(self, parser: ToolCallParser) -> None:
        """Its attempt, or the next, has a reason; neither text nor mark is content."""
        for mark, before, after in self._ends_of(self.wire([WEATHER])):
            for rest in (" and more ", "\nI have called it.\n", " 5 ", ' "x" '):
                text = f"{before}{rest}{mark}{after}"
                result = self.read(parser, text)
                assert not (result.content or "").strip(), f"{result.content!a} is content in {text!a}"
                assert any(attempt.reason for attempt in result.attempts), f"{text!a}"
                assert violations(text, result) == []

    @needs("json_arguments", "many_calls")
    def test_a_bad_call_leaves_nothing_of_the_frame_in_the_content(self, parser: ToolCallParser) -> None:
        """Neither its marks nor a comma or bracket of its list, at any position."""
        content = "Some text." if "text_before" not in self.lacks else ""
        for calls in ([_BAD], [_BAD, SEARCH], [SEARCH, _BAD], [WEATHER, _BAD, SEARCH]):
            text = self.wire(calls, content).replace('"MARKER"', "MARKER")
            result = self.read(parser, text)
            assert meaning(result) == encode([call for call in calls if call is not _BAD])
            assert (result.content or "").strip() == content, f"{text!a}"

    def _is_silent(self, parser: ToolCallParser, block: str, mode: ParseMode) -> bool:
        result = self.read(parser, block, mode=mode)
        assert violations(block, result) == []
        return not result.attempts or result.content is not None

    def _lost_blocks(self, parser: ToolCallParser, before: str, content: str, calls: Sequence[Call] = ()) -> list[str]:
        """Return the blocks after a text that are not attempts, or that change the meaning of the text."""
        lost = []
        for name, text in BLOCK_TEXTS.items():
            for block in self._blocks_around(text):
                result = self.read(parser, before + block)
                assert violations(before + block, result) == []
                is_told = any(attempt.end > len(before) for attempt in result.attempts)
                is_kept = meaning(result)[: len(calls)] == encode(calls) and (result.content or "").strip() == content
                lost += [] if is_told and is_kept else [f"{name}: {before + block!a}"]
        return lost

    def _before(self, content: str) -> str:
        """Return the text before the calls of a message with content."""
        whole, calls = self.wire([WEATHER], content), self.wire([WEATHER])
        return whole.removesuffix(calls) if whole.endswith(calls) else f"{content}\n"

    def _between(self) -> str:
        """Return the format's text between two calls with separate marks; else a line break."""
        first, second, both = self.wire([WEATHER]), self.wire([SEARCH]), self.wire([WEATHER, SEARCH])
        is_plain = both.startswith(first) and both.endswith(second) and len(both) >= len(first) + len(second)
        return both[len(first) : len(both) - len(second)] if is_plain else "\n"

    def _ends_of(self, text: str) -> Iterator[tuple[str, str, str]]:
        """Yield each closing mark in a message, with the text before and after its last place."""
        for mark in dict.fromkeys(closing for _, closing in self.block_marks if closing in text):
            before, _, after = text.rpartition(mark)
            yield mark, before, after

    def _blocks_around(self, text: str) -> Iterator[str]:
        assert self.block_marks, "set block_marks to the pairs of marks around calls, or name 'block_marks' in lacks"
        for opening, closing in self.block_marks:
            yield f"{opening}{text}{closing}"
