"""The shapes of a real Nomad's answers, from recorded ones, and whether another answer has them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

RECORDED: Final[Mapping[str, Any]] = json.loads(
    (Path(__file__).parent.parent / "data" / "nomad_1.0.18_recorded.json").read_text(encoding="utf-8")
)
_MAPS: Final = frozenset(
    [
        "TaskStates",
        "Details",
        "Summary",
        "FailedTGAllocs",
        "NodesAvailable",
        "DimensionExhausted",
        "QueuedAllocations",
        "TaskGroups",
        "Tasks",
        "TaskResources",
        "TaskLifecycles",
        "ClassEligibility",
        "Scores",
        "ConstraintFiltered",
        "Meta",
        "Config",
    ]
)
"""Objects with names as keys instead of fields."""
_SAMPLES: Final[Mapping[str, Sequence[str]]] = {
    "register": ("register", "register_unplaceable", "register_noimage"),
    "deregister": ("deregister", "deregister_bad", "deregister_bad2"),
    "evaluation": ("evaluation", "evaluation_unplaceable"),
    "evaluations": ("job_evaluations_unplaceable",),
    "allocations": ("allocations", "allocations_noimage", "allocations_after"),
    "allocation": ("allocation",),
    "summary": ("job_summary",),
    "scale_status": ("scale_status",),
    "leader": ("status_leader",),
}
_OF_ALLOCATION: Final = ("DesiredTransition", "DesiredDescription", "PreemptedByAllocation")
"""Fields that Nomad leaves out of a single allocation while they are empty, and has in every list of them."""


@dataclass
class Shape:
    """The shape at one position: JSON types, fields (in all samples or only in some), elements."""

    types: set[str] = field(default_factory=set)
    fields: dict[str, Shape] = field(default_factory=dict)
    always: set[str] | None = None
    elements: Shape | None = None

    def learn(self, value: Any, name: str = "") -> Shape:
        """Take a sample in."""
        self.types.add(_kind(value))
        if isinstance(value, Mapping) and name not in _MAPS:
            self.always = set(value) if self.always is None else self.always & set(value)
            for key, inner in value.items():
                self.fields.setdefault(key, Shape()).learn(inner, key)
        elif isinstance(value, Mapping | list):
            self.elements = self.elements or Shape()
            for inner in value.values() if isinstance(value, Mapping) else value:
                self.elements.learn(inner)
        return self

    def differences(self, value: Any, at: str = "", name: str = "") -> Iterator[str]:
        """Say where a value is not of this shape."""
        if _kind(value) not in self.types:
            yield f"{at}: {_kind(value)} where {'/'.join(sorted(self.types))} was recorded"
        elif isinstance(value, Mapping) and name not in _MAPS:
            yield from (f"{at}.{key} is missing" for key in (self.always or set()) - set(value))
            for key, inner in value.items():
                if key in self.fields:
                    yield from self.fields[key].differences(inner, f"{at}.{key}", key)
                else:
                    yield f"{at}.{key} was never recorded"
        elif isinstance(value, Mapping | list) and self.elements is not None and self.elements.types:
            for inner in value.values() if isinstance(value, Mapping) else value:
                yield from self.elements.differences(inner, f"{at}[]")


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    return {str: "string", type(None): "null", list: "list", dict: "object"}[type(value)]


def _shape(kind: str) -> Shape:
    shape = Shape()
    for sample in _SAMPLES[kind]:
        shape.learn(RECORDED[sample]["body"])
    return shape


def _single(listed: Shape) -> Shape:
    shape = _shape("allocation")
    elements = listed.elements
    assert elements is not None
    for name in _OF_ALLOCATION:
        shape.fields[name] = elements.fields[name]
    # Of the same kind as its neighbour, which was recorded set.
    shape.fields["DesiredTransition"].fields["Migrate"].learn(True)
    # Its states are seen in more conditions in the lists.
    shape.fields["TaskStates"] = elements.fields["TaskStates"]
    return shape


_LISTED: Final = _shape("allocations")
SHAPES: Final[Mapping[str, Shape]] = {
    **{kind: _shape(kind) for kind in _SAMPLES if not kind.startswith("allocation")},
    "allocations": _LISTED,
    "allocation": _single(_LISTED),
}
"""By kind of answer."""
EVALUATION: Final = RECORDED["evaluation_unplaceable"]["body"]
JOB: Final = RECORDED["allocation"]["body"]["Job"]
EVENT: Final = RECORDED["allocations"]["body"][0]["TaskStates"]["sandbox"]["Events"][0]
LISTED: Final = RECORDED["allocations"]["body"][0]
SINGLE: Final = RECORDED["allocation"]["body"]
METRICS: Final = EVALUATION["FailedTGAllocs"]["g"]


def differences(kind: str, body: Any) -> list[str]:
    """Return where a body differs from what was recorded of its kind; one evaluation of a list is as one alone."""
    if kind == "evaluations":
        shape = Shape().learn(RECORDED["job_evaluations_unplaceable"]["body"])
        assert shape.elements is not None
        for sample in _SAMPLES["evaluation"]:
            shape.elements.learn(RECORDED[sample]["body"])
        return list(shape.differences(body, kind))
    if kind == "job":
        return list(Shape().learn({"Job": JOB}).differences({"Job": _same_meta(body)}, kind))
    if kind == "allocation":
        body = {**body, "Job": _same_meta(body["Job"])}
    return list(SHAPES[kind].differences(body, kind))


def _same_meta(job: Mapping[str, Any]) -> Mapping[str, Any]:
    # Recorded of a job without meta data: null. With them it is an object of strings, as in every API of Nomad.
    return {**job, "Meta": None} if isinstance(job.get("Meta"), dict) else job
