"""The parser suite's part about blocks: what stands between a format's own marks is never silently text."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from hermes_core.contracts.parsing import ParseMode, ToolCallParser
from hermes_testing.suites.base import needs
from hermes_testing.suites.parser_base import MODES, PROPERTY, SEARCH, WEATHER, Call, ParserBase
from hermes_testing.suites.parser_tables import BLOCK_TEXTS
from hermes_testing.suites.parser_texts import meaning, violations, written

_BAD: Call = ("get_weather", {"city": "MARKER"})


class Blocks(ParserBase):
    """A model that wrote both marks meant a call; where it cannot be read, the model has to be told."""

    @needs("block_marks")
    def test_a_closed_block_is_a_call_or_an_attempt(self, parser: ToolCallParser) -> None:
        """Whatever stands in it, nothing included; and none of it is content."""
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
        """An opening mark written twice, a closing one inside, a message of calls that has marks of its own."""
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

    @needs("json_arguments", "many_calls")
    def test_a_bad_call_leaves_nothing_of_the_frame_in_the_content(self, parser: ToolCallParser) -> None:
        """Neither its own marks nor a comma or bracket of the list it stands in, wherever it stands."""
        content = "Some text." if "text_before" not in self.lacks else ""
        for calls in ([_BAD], [_BAD, SEARCH], [SEARCH, _BAD], [WEATHER, _BAD, SEARCH]):
            text = self.wire(calls, content).replace('"MARKER"', "MARKER")
            result = self.read(parser, text)
            assert meaning(result) == written([call for call in calls if call is not _BAD])
            assert (result.content or "").strip() == content, f"{text!a}"

    def _is_silent(self, parser: ToolCallParser, block: str, mode: ParseMode) -> bool:
        result = self.read(parser, block, mode=mode)
        assert violations(block, result) == []
        return not result.attempts or result.content is not None

    def _blocks_around(self, text: str) -> Iterator[str]:
        assert self.block_marks, "set block_marks to the pairs of marks around calls, or name 'block_marks' in lacks"
        for opening, closing in self.block_marks:
            yield f"{opening}{text}{closing}"
