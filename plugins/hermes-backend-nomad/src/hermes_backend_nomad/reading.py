"""Explain from evaluations and allocations why a container does not run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from hermes_backend_nomad.failures import (
    ContainerStartError,
    DriverConfigError,
    ImageError,
    NomadError,
    PlacementError,
)
from hermes_core.contracts.errors import BackendError

_PULL: Final = ("failed to pull", "pull access denied", "manifest unknown", "no such image", "image not found")
_EXCEEDED: Final = "exceeded allowed attempts"
_LAST_EVENTS: Final = 4


def newest(allocations: Iterable[Mapping[str, Any]], group: str) -> Mapping[str, Any] | None:
    """Return the newest allocation of a group; older ones do not matter."""
    of_group = [found for found in allocations if found["TaskGroup"] == group]
    return max(of_group, key=lambda found: int(found["CreateIndex"]), default=None)


def placement_error(evaluations: Iterable[Mapping[str, Any]], group: str, since: int) -> BackendError | None:
    """Return why a group cannot be placed, from evaluations since index `since`; None if no such reason is known."""
    recent = sorted((found for found in evaluations if found["CreateIndex"] >= since), key=lambda e: e["CreateIndex"])
    for evaluation in reversed(recent):
        metrics = (evaluation.get("FailedTGAllocs") or {}).get(group)
        if metrics is not None:
            return PlacementError(
                f"Nomad cannot place {group} of job {evaluation['JobID']}: {_placement_reasons(metrics)}",
                hint="lower the backend's options cpu and memory, stop other jobs, or add nodes; "
                "`nomad node status` lists them",
            )
        if evaluation["Status"] == "failed":
            said = evaluation.get("StatusDescription") or "no reason given"
            return NomadError(f"Nomad gave up scheduling job {evaluation['JobID']}: {said}")
    return None


def _placement_reasons(metrics: Mapping[str, Any]) -> str:
    reasons = []
    for field, what in (
        ("DimensionExhausted", "too little {} on {} node(s)"),
        ("ConstraintFiltered", "constraint '{}' filters {} node(s)"),
        ("ClassExhausted", "class {} exhausted on {} node(s)"),
        ("ClassFiltered", "class {} filtered on {} node(s)"),
    ):
        reasons += [what.format(name, count) for name, count in sorted((metrics.get(field) or {}).items())]
    reasons += [f"quota {name} reached" for name in metrics.get("QuotaExhausted") or ()]
    available = ", ".join(f"{name}: {count}" for name, count in sorted((metrics.get("NodesAvailable") or {}).items()))
    if not reasons:
        reasons = ["no node is eligible" if not metrics.get("NodesEvaluated") else "no node fits"]
    return f"{'; '.join(reasons)} ({metrics.get('NodesEvaluated', 0)} evaluated; available: {available or 'none'})"


def why_not_running(allocation: Mapping[str, Any], *, image: str) -> BackendError | None:
    """Return why an allocation will never run, or None while it still may."""
    task, events = _task_events(allocation)
    of = f"{allocation['TaskGroup']} of job {allocation['JobID']} on node {allocation['NodeName']}"
    for event in reversed(events):
        found = _of_event(event, of, image)
        if found is not None:
            return found
    if allocation["ClientStatus"] in {"failed", "lost", "complete"} or allocation["DesiredStatus"] != "run":
        return ContainerStartError(
            f"{of} is {allocation['ClientStatus']}: {ending(allocation)}",
            hint=f"nomad alloc status {allocation['ID']}",
        )
    if task.get("State") == "dead":
        return ContainerStartError(f"{of} has ended: {_tail(events)}", hint=f"nomad alloc status {allocation['ID']}")
    return None


def _of_event(event: Mapping[str, Any], of: str, image: str) -> BackendError | None:
    kind, said = event["Type"], event["DisplayMessage"].strip()
    if kind == "Failed Validation":
        return DriverConfigError(
            f"Nomad's driver refuses the config of {of}: {' '.join(said.split())}",
            hint="check the backend's option docker_config and the version of Nomad on that node",
        )
    if kind == "Driver Failure":
        if any(sign in said.lower() for sign in _PULL):
            return ImageError(
                f"image {image} cannot be pulled for {of}: {said}",
                hint="check its name, log in with docker_config: {auth: {username: …, password: …}}, or load it on "
                "the nodes (a tag other than latest is not pulled if it is present)",
            )
        return ContainerStartError(
            f"{of} cannot start: {said}", hint="check that the driver is healthy: nomad node status -self"
        )
    if kind == "Restarting" and _EXCEEDED in said.lower():
        return ContainerStartError(
            f"{of} was restarted too often: {said}", hint="`nomad alloc logs -stderr` shows how it ends"
        )
    if kind in {"Setup Failure", "Failed Artifact Download", "Terminated"}:
        return ContainerStartError(f"{of} did not start: {kind}: {said}")
    return None


def ending(allocation: Mapping[str, Any]) -> str:
    """Describe an allocation's end by its last events. Nomad omits empty fields of a single allocation."""
    _, events = _task_events(allocation)
    parts = [allocation.get("DesiredDescription"), allocation.get("ClientDescription"), _tail(events)]
    if preempting := allocation.get("PreemptedByAllocation"):
        parts.insert(0, f"preempted by allocation {preempting}")
    if (allocation.get("DesiredTransition") or {}).get("Migrate"):
        parts.insert(0, "evicted: its node is drained, or it was stopped by hand")
    return "; ".join(dict.fromkeys(part for part in parts if part))


def _task_events(allocation: Mapping[str, Any]) -> tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]:
    states = allocation.get("TaskStates") or {}
    task: Mapping[str, Any] = next(iter(states.values()), {})
    return task, task.get("Events") or ()


def _tail(events: Sequence[Mapping[str, Any]]) -> str:
    return " → ".join(f"{e['Type']}: {e['DisplayMessage'].strip()}" for e in events[-_LAST_EVENTS:])
