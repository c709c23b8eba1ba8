"""Exact, regular-expression and numeric matching of the final answer or of a file."""

from __future__ import annotations

import math
import re
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from hermes_core.contracts.rollout import AgentResult
from hermes_core.contracts.verifier import Score
from hermes_verifiers.options import Pattern, Weight, failed_parts, weighted_mean
from hermes_verifiers.texts.judged_text import SubjectOptions
from hermes_verifiers.texts.patterns import Exhausted, PatternSeconds, Search, search_all

_NUMBER = r"[-+]?(?:\d[\d,_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"


class ExactMatchVerifier:
    """Compares with the expected text, or with any of several.

    By `lines`, the score is the share of expected lines at their place, 1.0 only if there are no other lines.
    """

    class Options(SubjectOptions):
        """The expected texts, and how to normalise texts."""

        expected: str | list[str]
        by: Literal["whole", "lines"] = "whole"
        strip: bool = True
        collapse_whitespace: bool = False
        ignore_case: bool = False

        @field_validator("expected")
        @classmethod
        def _not_empty(cls, value: str | list[str]) -> str | list[str]:
            if not value or not all(value):
                raise ValueError("expected a text that is not empty: a missing answer would match an empty one")
            return value

    def __init__(self, options: Options) -> None:
        self._options = options
        expected = [options.expected] if isinstance(options.expected, str) else options.expected
        self._expected = [self._normal(text) for text in expected]

    async def score(self, result: AgentResult, context: Any) -> Score:
        """Compare."""
        text, problem = await self._options.subject(result, context)
        if problem:
            return Score(value=0.0, parts={"match": 0.0}, detail=problem)
        found = self._normal(text)
        value = max(self._compare(expected, found) for expected in self._expected)
        return Score(value=value, parts={"match": value}, detail="" if value == 1.0 else f"found {found[:200]!r}")

    def _compare(self, expected: str, found: str) -> float:
        if expected == found or self._options.by == "whole":
            return 1.0 if expected == found else 0.0
        wanted, given = expected.split("\n"), found.split("\n")
        same = sum(a == b for a, b in zip(wanted, given, strict=False))
        return same / max(len(wanted), len(given))

    def _normal(self, text: str) -> str:
        text = text.replace("\r\n", "\n")
        if self._options.collapse_whitespace:
            text = "\n".join(" ".join(line.split()) for line in text.split("\n"))
        if self._options.strip:
            text = text.strip()
        return text.casefold() if self._options.ignore_case else text


class RegexMatchVerifier:
    """Searches patterns; the score is the weighted share that is found (or, with `absent`, not found).

    If the patterns take more than `timeout` seconds of processor time, the score is 0, because the model wrote the
    text.
    """

    class Options(SubjectOptions):
        """`patterns` maps a part's name to its pattern; `pattern` is short for one."""

        pattern: Pattern | None = None
        patterns: dict[str, Pattern] = Field(default_factory=dict)
        weights: dict[str, Weight] = Field(default_factory=dict)
        absent: list[str] = Field(default_factory=list)
        mode: Literal["search", "fullmatch"] = "search"
        ignore_case: bool = False
        multiline: bool = False
        dotall: bool = False
        timeout: PatternSeconds = 10.0

        @model_validator(mode="after")
        def _fits_together(self) -> Self:
            if (self.pattern is None) == (not self.patterns):
                raise ValueError("give either 'pattern' or 'patterns'")
            named = self.patterns or {"match": self.pattern or ""}
            if unknown := sorted({*self.weights, *self.absent} - set(named)):
                raise ValueError(f"'weights' and 'absent' name {unknown[0]!r}, which 'patterns' does not have")
            return self

    def __init__(self, options: Options) -> None:
        self._options = options
        chosen = {re.IGNORECASE: options.ignore_case, re.MULTILINE: options.multiline, re.DOTALL: options.dotall}
        self._flags = sum((flag for flag, wanted in chosen.items() if wanted), start=re.NOFLAG)
        self._patterns = options.patterns or {"match": options.pattern or ""}

    async def score(self, result: AgentResult, context: Any) -> Score:
        """Search."""
        text, problem = await self._options.subject(result, context)
        try:
            parts = {} if problem else await self._search(text.strip())
        except Exhausted as exhausted:
            problem = str(exhausted)
        if problem:
            return Score(value=0.0, parts=dict.fromkeys(self._patterns, 0.0), detail=problem)
        value = weighted_mean((self._options.weights.get(name, 1.0), part) for name, part in parts.items())
        return Score(value=value, parts=parts, detail=failed_parts(parts))

    async def _search(self, text: str) -> dict[str, float]:
        searches = [Search(pattern, text, self._flags, self._options.mode) for pattern in self._patterns.values()]
        spans = await search_all(searches, timeout=self._options.timeout)
        return {
            name: 1.0 if (span is None) == (name in self._options.absent) else 0.0
            for name, span in zip(self._patterns, spans, strict=True)
        }


class NumericMatchVerifier:
    """Compares a number: the group `number` (or the whole match) of the last match of `pattern`.

    Within `tolerance` (absolute) or `relative_tolerance` the score is 1.0; beyond that it falls linearly to 0.0 at
    `zero_at` (absolute difference), or is 0.0 without `zero_at`.
    """

    class Options(SubjectOptions):
        """The expected number and the tolerances."""

        expected: float = Field(allow_inf_nan=False)
        tolerance: float = Field(default=0.0, ge=0, allow_inf_nan=False)
        relative_tolerance: float = Field(default=1e-9, ge=0, allow_inf_nan=False)
        zero_at: float | None = Field(default=None, gt=0, allow_inf_nan=False)
        pattern: Pattern = _NUMBER
        timeout: PatternSeconds = 10.0

        @property
        def full_within(self) -> float:
            """The largest difference that still scores full."""
            return max(self.tolerance, self.relative_tolerance * abs(self.expected))

    def __init__(self, options: Options) -> None:
        self._options = options

    async def score(self, result: AgentResult, context: Any) -> Score:
        """Find the last number and compare."""
        text, problem = await self._options.subject(result, context)
        try:
            number = None if problem else await self._last_number(text)
        except Exhausted as exhausted:
            number, problem = None, str(exhausted)
        if number is None:
            return Score(value=0.0, parts={"number": 0.0}, detail=problem or "no number found")
        value = self._nearness(abs(number - self._options.expected))
        return Score(value=value, parts={"number": value}, detail=f"found {number!r}")

    async def _last_number(self, text: str) -> float | None:
        search = Search(self._options.pattern, text, mode="last")
        [span] = await search_all([search], timeout=self._options.timeout)
        if span is None:
            return None
        try:
            number = float(text[slice(*span)].replace(",", "").replace("_", ""))
        except ValueError:
            return None
        return number if math.isfinite(number) else None

    def _nearness(self, difference: float) -> float:
        full, zero = self._options.full_within, self._options.zero_at
        if difference <= full:
            return 1.0
        if zero is None or difference >= zero:
            return 0.0
        return (zero - difference) / (zero - full)
