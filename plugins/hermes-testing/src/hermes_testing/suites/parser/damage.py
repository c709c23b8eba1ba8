"""Parser tests of damaged messages: nothing raises, nothing is invented, complete calls are kept."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_core.contracts.parsing import AttemptStatus, ParseMode, ToolCallParser
from hermes_testing.suites.base import needs
from hermes_testing.suites.parser.base import MODES, PROPERTY, PROSE, SEARCH, WEATHER, Call, ParserBase
from hermes_testing.suites.parser.invariants import encode, meaning, statuses, violations
from hermes_testing.suites.parser.samples import HOSTILE, REPAIRS

_WHOLE = {AttemptStatus.OK, AttemptStatus.UNCLOSED}
_BROKEN = {AttemptStatus.INVALID_JSON, AttemptStatus.TRUNCATED}
_REPAIRABLE: Call = ("get_weather", {"rainy": True, "units": None, "city": "Paris"})
_OPENINGS = ['"', "'", "\\", "{", "[", "(", "<"]
_MARKS = [*_OPENINGS, "}", "]", ")", ">", ",", ":", "=", "|", "/", "\n", " ", "x", "7", "é"]


class Damage(ParserBase):
    """Truncation, deletion, change, broken JSON and its repair."""

    def test_no_truncation_raises_or_invents(self, parser: ToolCallParser) -> None:
        """Every prefix of a message contains its first calls, complete, and nothing else."""
        text, calls = self.message(), encode(self.some_calls())
        for end in range(len(text)):
            result = self.read(parser, text[:end])
            found = meaning(result)
            assert violations(text[:end], result) == []
            assert found == calls[: len(found)]
            assert {*statuses(result)} <= _WHOLE | {AttemptStatus.TRUNCATED}

    def test_a_call_cut_in_its_arguments_is_an_attempt(self, parser: ToolCallParser) -> None:
        """Wherever it is cut off, it is neither a call nor silently text."""
        text = self.wire([WEATHER])
        for end in range(text.index("Paris") + 1, len(text)):
            result = self.read(parser, text[:end])
            if result.calls:
                break
            assert statuses(result) == [AttemptStatus.TRUNCATED]

    @needs("end_mark")
    def test_a_call_without_its_end_mark_is_kept(self, parser: ToolCallParser) -> None:
        """It is complete, and flagged."""
        text = self.wire([WEATHER]).rstrip()
        results = [self.read(parser, text[:end]) for end in range(text.index("Paris"), len(text))]
        unclosed = [result for result in results if AttemptStatus.UNCLOSED in statuses(result)]
        assert unclosed
        assert meaning(results[-1]) == encode([WEATHER])
        assert all(meaning(result) == encode([WEATHER]) for result in unclosed)

    @pytest.mark.parametrize("mode", MODES)
    def test_no_deletion_of_one_character_raises(self, parser: ToolCallParser, mode: ParseMode) -> None:
        """And every call stays well formed."""
        text = self.message("Some text.")
        for at in range(len(text)):
            broken = text[:at] + text[at + 1 :]
            assert violations(broken, self.read(parser, broken, mode=mode)) == []

    @needs("many_calls", "separate_calls")
    def test_a_character_missing_from_one_call_leaves_the_others(self, parser: ToolCallParser) -> None:
        """For any character of any call."""
        text, calls = self.message("Some text."), encode(self.some_calls())
        for place, (start, end) in enumerate(self._spans(parser, text)):
            others = calls[:place] + calls[place + 1 :]
            for at in range(start, end):
                found = meaning(self.read(parser, text[:at] + text[at + 1 :]))
                assert _are_among(others, found), text[:at] + "█" + text[at + 1 :]

    @needs("many_calls", "separate_calls")
    @PROPERTY
    @given(data=st.data())
    def test_a_change_in_one_call_leaves_the_others(self, parser: ToolCallParser, data: st.DataObject) -> None:
        """Deleted, doubled, replaced or inserted text: outside its span the calls are unchanged."""
        text, calls = self.message("Some text."), encode(self.some_calls())
        spans = self._spans(parser, text)
        place = data.draw(st.integers(0, len(spans) - 1))
        start, end = spans[place]
        changed = text[:start] + data.draw(_changes(text[start:end])) + text[end:]
        result = self.read(parser, changed)
        assert violations(changed, result) == []
        assert _are_among(calls[:place] + calls[place + 1 :], meaning(result))

    @needs("text_before")
    def test_a_change_in_the_prose_leaves_the_calls(self, parser: ToolCallParser) -> None:
        """For any missing character, and any inserted brace, quote or mark."""
        text, calls = self.message(PROSE), encode(self.some_calls())
        first = text.index(PROSE)
        for at in range(first, first + len(PROSE)):
            for changed in (text[at + 1 :], *(mark + text[at:] for mark in (*_OPENINGS, self.mark()))):
                assert _are_among(calls, meaning(self.read(parser, text[:at] + changed))), text[:at] + changed

    @pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
    def test_hostile_text_does_not_raise(self, parser: ToolCallParser, text: str) -> None:
        """Alone, before a call, inside it and after it."""
        call = self.wire([WEATHER])
        middle = call.index("Paris")
        for whole in (text, text + call, call[:middle] + text + call[middle:], call + text):
            for mode in MODES:
                assert violations(whole, self.read(parser, whole, mode=mode)) == []

    @PROPERTY
    @given(data=st.data())
    def test_any_mixture_of_marks_does_not_raise(self, parser: ToolCallParser, data: st.DataObject) -> None:
        """Pieces of the format in any order."""
        text = self.message("text")
        cuts = st.tuples(st.integers(0, len(text)), st.integers(0, len(text)))
        pieces = data.draw(st.lists(cuts.map(lambda cut: text[min(cut) : max(cut)]) | st.text(max_size=5), max_size=8))
        mixed = "".join(pieces)
        assert violations(mixed, self.read(parser, mixed)) == []

    def test_a_call_that_cannot_be_read_is_an_attempt_with_a_reason(self, parser: ToolCallParser) -> None:
        """It is not a call, not an exception, and not ignored."""
        text = self.malformed_call()
        result = self.read(parser, text)
        assert result.calls == ()
        assert {*statuses(result)} & _BROKEN
        assert violations(text, result) == []

    @needs("json_arguments", "many_calls")
    def test_a_bad_call_does_not_cost_the_good_ones(self, parser: ToolCallParser) -> None:
        """Good calls are returned, the bad one is reported: before, after, and on both sides."""
        bad: Call = ("get_weather", {"city": "MARKER"})
        for calls in ([bad, SEARCH], [SEARCH, bad], [WEATHER, bad, SEARCH]):
            text = self.wire(calls).replace('"MARKER"', "MARKER")
            result = self.read(parser, text)
            assert meaning(result) == encode([call for call in calls if call is not bad])
            assert AttemptStatus.INVALID_JSON in statuses(result)
            assert violations(text, result) == []

    @needs("json_arguments", "repairs")
    @pytest.mark.parametrize("repair", REPAIRS)
    def test_only_lenient_mode_repairs(self, parser: ToolCallParser, repair: str) -> None:
        """And reports it; in strict mode the call is an attempt."""
        broken = self.wire([_REPAIRABLE])
        for old, new in REPAIRS[repair]:
            broken = broken.replace(old, new)
        city = {"raw_newline": "Par\nis", "raw_tab": "Par\tis"}.get(repair, "Paris")
        self._check_repair(parser, broken, ("get_weather", {**_REPAIRABLE[1], "city": city}))

    @needs("json_arguments", "repairs", "end_mark")
    def test_only_lenient_mode_takes_an_extra_brace(self, parser: ToolCallParser) -> None:
        """If an end mark shows that it does not belong to the text after the call."""
        broken = re.sub(r'("Paris"\s*\})', r"\1}", self.wire([_REPAIRABLE]))
        self._check_repair(parser, broken, _REPAIRABLE)

    @needs("json_arguments")
    @pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
    def test_a_number_that_json_does_not_know_is_no_argument(self, parser: ToolCallParser, constant: str) -> None:
        """Python reads NaN, but other JSON readers do not."""
        text = self.wire([WEATHER]).replace('"Paris"', constant)
        assert self.read(parser, text).calls == ()
        for mode in MODES:
            result = self.read(parser, text, mode=mode)
            assert len(result.attempts) == 1
            assert violations(text, result) == []

    def test_lenient_reads_what_strict_reads(self, parser: ToolCallParser) -> None:
        """The same calls from a well-formed text, none of them repaired."""
        for text in (self.message(), self.wire([("f", {"text": "{'a': True,}\n"})])):
            assert self.read(parser, text, mode="lenient") == self.read(parser, text)

    def _check_repair(self, parser: ToolCallParser, broken: str, call: Call) -> None:
        assert broken != self.wire([_REPAIRABLE]), "the arguments are not plain JSON in what wire() writes"
        strict, lenient = self.read(parser, broken), self.read(parser, broken, mode="lenient")
        assert (strict.calls, bool(strict.attempts)) == ((), True)
        assert meaning(lenient) == encode([call])
        assert statuses(lenient) == [AttemptStatus.REPAIRED]
        assert [attempt.value for attempt in lenient.attempts] == [call[1]]
        assert violations(broken, strict) == []
        assert violations(broken, lenient) == []

    def _spans(self, parser: ToolCallParser, text: str) -> list[tuple[int, int]]:
        attempts = self.read(parser, text).attempts
        assert len(attempts) == len(self.some_calls())
        return [(attempt.start, attempt.end) for attempt in attempts]


def _are_among(wanted: Iterable[tuple[str, str]], found: Iterable[tuple[str, str]]) -> bool:
    """Tell whether these calls were found, in this order; changed text may have become other calls between them."""
    rest = iter(found)
    return all(call in rest for call in wanted)


@st.composite
def _changes(draw: st.DrawFn, text: str) -> str:
    start = draw(st.integers(0, len(text)))
    end = min(len(text), start + draw(st.integers(0, 12)))
    middle = text[start:end]
    instead = draw(st.sampled_from(["", middle * 2, middle[::-1], *_MARKS]))
    return text[:start] + instead + (text[end:] if draw(st.booleans()) else text[start:])
