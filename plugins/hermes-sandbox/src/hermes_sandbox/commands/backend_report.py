"""The report on a backend, for `doctor`, and with details for `sandboxes probe`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hermes_sandbox.backend.probing import Finding
from hermes_sandbox.commands.doctor_advice import unbounded_advice

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendReport:
    """The findings about one backend."""

    backend: str
    findings: Sequence[Finding]
    installed: bool = True
    tried: bool = True

    @property
    def works(self) -> list[str]:
        """The levels at which it works."""
        return [one.isolation for one in self.findings if one.works and one.feature == "isolation"]

    @property
    def processes(self) -> list[Row]:
        """The process limit of a sandbox without a requested limit, for each level that reports it."""
        return [self._bound(one) for one in self.findings if one.processes is not None]

    def _bound(self, one: Finding) -> Row:
        said, hint = unbounded_advice(one, self.findings) if one.is_unbounded else (one.processes, None)
        return {"level": one.isolation, "bounded": not one.is_unbounded, "message": said, "hint": hint}

    @property
    def troubles(self) -> list[Row]:
        """What does not work, at which levels, and what to type next. A problem of several levels is one row."""
        told: dict[tuple[str | None, str], Row] = {}
        for one in self.findings:
            if one.works or not one.detail:
                continue
            # Two levels with the same hint have the same problem, even in different words.
            key = (one.hint, "" if one.hint and one.feature == "isolation" else one.detail)
            hint = one.hint or f"hermes-core plugins show backend:{self.backend} names its package"
            trouble = told.setdefault(key, {"levels": [], "message": one.detail, "hint": hint})
            trouble["levels"].extend([one.place] if one.place else [])
        return list(told.values())

    @property
    def details(self) -> list[str]:
        """What else works, and how, and what the sandboxes of a level do not have of their own."""
        works = [one for one in self.findings if one.works and one.feature != "isolation"]
        lacks = [(one, word, why) for one in self.findings for word, why in one.lacks.items()]
        told = (f"{one.place}: {one.detail or 'works'}" for one in works)
        return [*told, *(f"lacks {word} at {one.isolation}: {why}" for one, word, why in lacks)]

    def to_json(self, *, in_detail: bool = False) -> Row:
        """Return the report as plain JSON values."""
        names = ("backend", "installed", "tried", "works", "processes", "troubles")
        details = {"findings": [dataclasses.asdict(one) for one in self.findings]} if in_detail else {}
        return {**{name: getattr(self, name) for name in names}, **details}
