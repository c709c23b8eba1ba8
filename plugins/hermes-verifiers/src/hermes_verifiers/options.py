"""The base class of verifiers' options, and helpers for scores."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

Weight = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def _compiles(pattern: str) -> str:
    try:
        re.compile(pattern)
    except (re.error, RecursionError) as error:
        raise ValueError(f"{pattern!r} is not a valid regular expression: {error}") from error
    return pattern


Pattern = Annotated[str, AfterValidator(_compiles)]


class StrictOptions(BaseModel):
    """Options of a verifier: immutable, and unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class ProtectedOptions(StrictOptions):
    """`protected` names files and directories that the score depends on and that the model could write.

    A rollout that changed one scores 0.
    """

    protected: list[str] = Field(default_factory=list)


def weighted_mean(scored: Iterable[tuple[float, float]]) -> float:
    """Return the mean of (weight, value) pairs, exactly 1.0 when every value is."""
    pairs = list(scored)
    total = sum(weight for weight, _ in pairs)
    if all(value == 1.0 for _, value in pairs):
        return 1.0
    return min(1.0, max(0.0, sum(weight * value for weight, value in pairs) / total))


def unique_names(names: Iterable[str]) -> list[str]:
    """Number repeated names (`cmd`, `cmd#2`), so that every part of a score has a unique name."""
    seen: dict[str, int] = {}
    unique = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        unique.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return unique


def failed_parts(parts: Mapping[str, float]) -> str:
    """Return a line that names the parts without full credit, or "" if all have it."""
    failed = [name for name, value in parts.items() if value < 1.0]
    shown = ", ".join(failed[:8]) + (f" and {len(failed) - 8} more" if len(failed) > 8 else "")
    return f"without full credit: {shown}" if failed else ""
