"""The verifier `file_content`: conditions on files."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import re
from collections.abc import Sequence
from typing import Any, Self

from pydantic import Field, model_validator

from hermes_core.contracts.rollout import AgentResult
from hermes_core.contracts.verifier import Score
from hermes_verifiers.options import Pattern, StrictOptions, Weight, failed_parts, unique_names, weighted_mean
from hermes_verifiers.texts.normalization import TextForm
from hermes_verifiers.texts.patterns import Exhausted, PatternSeconds, Search, search_all
from hermes_verifiers.texts.workspace_files import Found, read_untrusted

_CONDITIONS = ("equals", "contains", "not_contains", "regex", "sha256", "absent", "exists")


class FileCheck(StrictOptions):
    """Conditions on one path; all must hold, and all entries of a list.

    `strip` ignores surrounding white space, `collapse_whitespace` treats any run of white space as one space.
    """

    path: str
    equals: str | None = None
    contains: str | list[str] | None = None
    not_contains: str | list[str] | None = None
    regex: Pattern | list[Pattern] | None = None
    sha256: str | None = None
    absent: bool = False
    exists: bool = False
    strip: bool = True
    collapse_whitespace: bool = False
    ignore_case: bool = False
    weight: Weight = 1.0
    name: str | None = None

    @model_validator(mode="after")
    def _has_a_condition(self) -> Self:
        given = [name for name in _CONDITIONS if getattr(self, name) not in (None, False, [])]
        if not given:
            raise ValueError(f"file check {self.path!r} has no condition; give one of {', '.join(_CONDITIONS)}")
        if self.absent and given != ["absent"]:
            raise ValueError(f"file check {self.path!r}: 'absent' cannot be combined with other conditions")
        return self

    @property
    def form(self) -> TextForm:
        """How to compare its texts."""
        return TextForm(self.strip, self.collapse_whitespace, self.ignore_case)

    @property
    def needs_text(self) -> bool:
        """Whether it needs more than the bytes."""
        return any(condition is not None for condition in (self.equals, self.contains, self.not_contains, self.regex))

    def holds(self, found: Found, text: str) -> bool:
        """Tell whether the file satisfies the conditions except `regex`; `text` is its content in the check's form."""
        if self.absent:
            return found.is_absent
        return found.data is not None and self._digest_fits(found.data) and self._text_fits(text)

    def searches(self, text: str) -> list[Search]:
        """Return the searches that must also match; they run elsewhere, because the text comes from the model."""
        flags = re.MULTILINE | (re.IGNORECASE if self.ignore_case else 0)
        return [Search(pattern, text, flags) for pattern in _as_list(self.regex)]

    def _digest_fits(self, data: bytes) -> bool:
        return self.sha256 is None or hashlib.sha256(data).hexdigest() == self.sha256.lower()

    def _text_fits(self, text: str) -> bool:
        form = self.form
        return (
            (self.equals is None or text == form.of(self.equals))
            and all(form.of(part) in text for part in _as_list(self.contains))
            and not any(form.of(part) in text for part in _as_list(self.not_contains))
        )


class FileContentVerifier:
    """Reads each path once, raw, and scores the weighted share of checks that hold.

    A relative path that leads out of the workspace through a symlink fails its check. If the patterns take more than
    `timeout` seconds of processor time, the score is 0, because the model wrote the files.
    """

    class Options(StrictOptions):
        """The checks, in the order they are reported."""

        checks: list[FileCheck] = Field(min_length=1)
        timeout: PatternSeconds = 10.0

    def __init__(self, options: Options) -> None:
        self._checks = options.checks
        self._timeout = options.timeout

    async def score(self, result: AgentResult, context: Any) -> Score:
        """Read the files and compare."""
        del result
        found = {path: await read_untrusted(context.sandbox, path) for path in {c.path: None for c in self._checks}}
        names = unique_names(check.name or check.path for check in self._checks)
        try:
            values = await self._values(found)
        except Exhausted as exhausted:
            return Score(value=0.0, parts=dict.fromkeys(names, 0.0), detail=str(exhausted))
        parts = dict(zip(names, values, strict=True))
        value = weighted_mean(zip((check.weight for check in self._checks), values, strict=True))
        return Score(value=value, parts=parts, detail=_explanation(parts, found))

    async def _values(self, found: dict[str, Found]) -> list[float]:
        """Score each check; for checks that hold so far, search their patterns, all in one child process."""
        searches = await asyncio.to_thread(self._compare, found)
        asked = [search for some in searches for search in some or ()]
        spans = iter(await search_all(asked, timeout=self._timeout))
        return [
            0.0 if some is None else float(None not in list(itertools.islice(spans, len(some)))) for some in searches
        ]

    def _compare(self, found: dict[str, Found]) -> list[list[Search] | None]:
        """Return the remaining searches of each check, None if it has failed; each text is created once."""
        texts: dict[tuple[str, TextForm], str] = {}
        searches: list[list[Search] | None] = []
        for check in self._checks:
            file, key = found[check.path], (check.path, check.form)
            if check.needs_text and file.data is not None and key not in texts:
                texts[key] = check.form.of_bytes(file.data)
            text = texts.get(key, "")
            searches.append(check.searches(text) if check.holds(file, text) else None)
        return searches


def _explanation(parts: dict[str, float], found: dict[str, Found]) -> str:
    problems = [f.problem for f in found.values() if f.problem]
    return "; ".join(filter(None, [failed_parts(parts), *problems[:4]]))


def _as_list(value: str | Sequence[str] | None) -> Sequence[str]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else value
