"""Parser tests of long texts: twice the text takes twice the work."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

import pytest

from hermes_core.contracts.parsing import ToolCallParser
from hermes_testing.suites.parser.base import SEARCH, WEATHER, ParserBase
from hermes_testing.suites.parser.invariants import encode, meaning, violations
from hermes_testing.suites.parser.streams import stream_result

DOUBLING = 2.5
"""The allowed growth of work when the text doubles: linear work doubles, quadratic work grows fourfold."""
FOLD = 8
"""The length of the longer timed text as a multiple of the shorter one: three doublings."""
_ROUNDS = 12
_TOO_SHORT = 0.02
"""Seconds below which a time is meaningless."""
_LONG_ENOUGH = 10.0
"""Seconds of measuring after which three rounds are as good as twelve: bursts of a busy machine are shorter."""
_MOST = DOUBLING**3
_SHAPES = (
    "prose",
    "marks",
    "headings",
    "cut_calls",
    "ends_in_a_call",
    "quotes_in_a_call",
    "braces_in_a_call",
    "nested_lists",
    "many_calls",
    "many_arguments",
    "long_argument",
    "reasoning",
    "unclosed_reasoning",
    "marks_and_reasoning",
)


class Growth(ParserBase):
    """Work is counted where possible (lines of Python), and timed elsewhere (inside str and json)."""

    @pytest.mark.parametrize("shape", _SHAPES)
    def test_twice_the_text_is_twice_the_work(self, parser: ToolCallParser, shape: str) -> None:
        """Counts lines of Python, so every run gives the same: parsed in both modes, and streamed."""
        size = min(2_000, self.long_text // 200)
        texts = self.text_of_shape(shape, size), self.text_of_shape(shape, 2 * size)
        ways: dict[str, Callable[[str], object]] = {
            "strict": parser.parse,
            "lenient": lambda text: parser.parse(text, None, "lenient"),
            "streamed": lambda text: stream_result(parser, [text[at : at + 7] for at in range(0, len(text), 7)]),
        }
        for way, act in ways.items():
            small, large = (lines_run(act, text) for text in texts)
            assert large <= DOUBLING * small, f"{way}: {small} lines for {size} characters, {large} for {2 * size}"

    @pytest.mark.parametrize("shape", _SHAPES)
    def test_time_grows_no_faster_than_the_text(self, parser: ToolCallParser, shape: str) -> None:
        """Processor time over three doublings: linear work takes 8×, quadratic 64×; the limit is 15.6×."""
        size = self.long_text // 512
        growth = time_growth(parser.parse, self.text_of_shape(shape, size), self.text_of_shape(shape, FOLD * size))
        assert growth <= _MOST, f"{growth:.1f} times the time from {size} to {FOLD * size} characters"

    def test_a_very_long_message_is_parsed(self, parser: ToolCallParser) -> None:
        """Ten megabytes of prose, and a call after it."""
        line = "word " * 200 + "a < b, {c} [1] (d): `e` | f\n"
        prose = line * (self.long_text // len(line))
        text = self.wire([WEATHER], prose if "text_before" not in self.lacks else "")
        result = self.read(parser, text)
        assert meaning(result) == encode([WEATHER])
        assert violations(text, result) == []

    def test_a_very_long_argument_arrives(self, parser: ToolCallParser) -> None:
        """Like a whole file to write."""
        call = ("write", {"text": 'some words, "quoted"\n\tand a {brace}\n' * (self.long_text // 400)})
        assert meaning(self.read(parser, self.wire([call]), [call])) == encode([call])

    def text_of_shape(self, shape: str, size: int) -> str:
        """Return a text of about `size` characters that provokes quadratic work."""
        call = self.wire([WEATHER])
        middle = call.index("Paris")
        head, opening, ending = call[: call.index("get_weather")], call[:middle], call[middle + 5 :]
        if shape == "many_arguments":
            return self.wire([("f", {f"name{n:06d}": "text" for n in range(size // 24)})])
        if shape == "long_argument":
            return self.wire([("f", {"text": "a { \\ b\n" * (size // 8)})])
        first, unit = {
            "prose": ("", "Words: a < b, {c} [1] (d) `e`.\n"),
            "marks": ("", self.mark() or head),
            "headings": ("", head or opening),
            "cut_calls": ("", opening),
            "ends_in_a_call": (opening, ending),
            "quotes_in_a_call": (opening, '\\"'),
            "braces_in_a_call": (opening, '", {"a": ['),
            "nested_lists": (opening.rstrip("\"'"), "["),
            "many_calls": ("", call),
            "reasoning": ("", self.reasoning_tags[0] + self.wire([SEARCH])),
            "marks_and_reasoning": ("", (self.mark() or head) + self.reasoning_tags[0]),
            "unclosed_reasoning": (self.reasoning_tags[0], f"{opening} or "),
        }[shape]
        return first + unit * (size // len(unit))


def lines_run(act: Callable[[str], object], text: str) -> int:
    """Count the lines of Python (and calls and returns) that run while a text is handled."""
    count = 0

    def trace(_frame: FrameType, _event: str, _argument: Any) -> Any:
        nonlocal count
        count += 1
        return trace

    before, collects = sys.gettrace(), gc.isenabled()
    gc.disable()  # finalizers of other garbage are not the parser's work
    sys.settrace(trace)
    try:
        act(text)
    finally:
        sys.settrace(before)
        if collects:
            gc.enable()
    return count


def time_growth(
    act: Callable[[str], object], small: str, large: str, *, clock: Callable[[], float] = time.thread_time
) -> float:
    """Return the time of a text that is `FOLD` times as long, as a multiple of the short text's.

    The minimum of several rounds. Times are only meaningful in comparison. In a round both sides take equally long if
    the work is linear, and are interleaved, so a busy machine (a shared core, a cold cache) slows both. Comparing the
    best of short runs with the best of long ones would report false growth: a short run finds a quiet moment, a long
    one does not.
    """
    act(small)  # Importing or compiling once is not growth.
    least, spent = float("inf"), 0.0
    for round_ in range(_ROUNDS):
        short, long = _round(act, small, large, clock)
        least = min(least, FOLD * long / max(short, 1e-9))
        spent += short + long
        if long < _TOO_SHORT:
            return min(least, FOLD)
        if least <= _MOST or (round_ >= 2 and spent > _LONG_ENOUGH):
            break
    return least


def _round(act: Callable[[str], object], small: str, large: str, clock: Callable[[], float]) -> tuple[float, float]:
    """Return the seconds of `FOLD` small texts, half of them before the large one and half after, and of that one."""
    # A garbage collection in between would be counted for one of them.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        half = [small] * (FOLD // 2)
        before, long, after = (_seconds(act, texts, clock) for texts in (half, [large], half))
        return before + after, long
    finally:
        if was_enabled:
            gc.enable()


def _seconds(act: Callable[[str], object], texts: Iterable[str], clock: Callable[[], float]) -> float:
    start = clock()
    for text in texts:
        act(text)
    return clock() - start
