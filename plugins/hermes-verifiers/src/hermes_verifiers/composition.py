"""Verifiers that combine other verifiers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import Field, model_validator

from hermes_core.contracts.rollout import AgentResult
from hermes_core.contracts.verifier import Score
from hermes_core.specs import Ref
from hermes_verifiers.options import StrictOptions, Weight, failed_parts, unique_names, weighted_mean


class Part(StrictOptions):
    """Another verifier by name (a plain string is short for the name); `label` is its name in the breakdown."""

    name: str
    options: dict[str, Any] = Field(default_factory=dict)
    weight: Weight = 1.0
    label: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _name_alone(cls, value: object) -> object:
        return {"name": value} if isinstance(value, str) else value


class Gate(Part):
    """A part that must score at least `at_least`."""

    at_least: float = Field(default=1.0, allow_inf_nan=False)


class WeightedVerifier:
    """The weighted mean of its parts' scores; their own parts appear as `label/part`.

    If a part cannot be judged, the whole cannot be judged.
    """

    class Options(StrictOptions):
        """At least one part."""

        parts: list[Part] = Field(min_length=1)

    def __init__(self, options: Options) -> None:
        self._parts = options.parts

    def verifiers(self) -> list[Ref]:
        """Name the parts; their inputs are this verifier's inputs."""
        return _refs(self._parts)

    async def score(self, result: AgentResult, context: Any) -> Score:
        """Score every part, in order: they share the sandbox."""
        del result
        scores = await _scores(self._parts, context)
        value = weighted_mean(
            zip((part.weight for part in self._parts), (s.value for s in scores.values()), strict=True)
        )
        return Score(value=value, parts=_breakdown(scores), detail=_details(scores))


class GatedVerifier:
    """The weighted mean of the parts if every gate is open, else 0.0; with gates alone, all or nothing.

    The parts are always scored and reported, so the breakdown is complete.
    """

    class Options(StrictOptions):
        """At least one gate; parts as in `weighted`."""

        gates: list[Gate] = Field(min_length=1)
        parts: list[Part] = Field(default_factory=list)

    def __init__(self, options: Options) -> None:
        self._gates = options.gates
        self._parts = options.parts

    def verifiers(self) -> list[Ref]:
        """Name gates and parts; their inputs are this verifier's inputs."""
        return _refs([*self._gates, *self._parts])

    async def score(self, result: AgentResult, context: Any) -> Score:
        """Score gates and parts."""
        del result
        everything: list[Part] = [*self._gates, *self._parts]
        scores = await _scores(everything, context)
        values = [score.value for score in scores.values()]
        labels = list(scores)
        closed = [
            label for label, value, gate in zip(labels, values, self._gates, strict=False) if value < gate.at_least
        ]
        rest = zip((part.weight for part in self._parts), values[len(self._gates) :], strict=True)
        earned = weighted_mean(rest) if self._parts else 1.0
        shut = f"gate not passed: {', '.join(closed)}" if closed else ""
        detail = "; ".join(filter(None, [shut, _details(scores)]))
        return Score(value=0.0 if closed else earned, parts=_breakdown(scores), detail=detail)


def _refs(parts: Iterable[Part]) -> list[Ref]:
    return [Ref(kind="verifier", name=part.name, options=part.options) for part in parts]


async def _scores(parts: list[Part], context: Any) -> dict[str, Score]:
    labels = unique_names(part.label or part.name for part in parts)
    return {label: await context.verify(part.name, part.options) for label, part in zip(labels, parts, strict=True)}


def _breakdown(scores: Mapping[str, Score]) -> dict[str, float]:
    parts: dict[str, float] = {}
    for label, score in scores.items():
        parts[label] = score.value
        parts.update({f"{label}/{name}": value for name, value in score.parts.items()})
    return parts


def _details(scores: Mapping[str, Score]) -> str:
    texts = [f"{label}: {score.detail}" for label, score in scores.items() if score.detail]
    return "; ".join(texts) or failed_parts({label: score.value for label, score in scores.items()})
