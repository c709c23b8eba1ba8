"""Describes which engine ran the rollouts of a run, and where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from hermes_core.cli import plural

_MOST: Final = 3
"""Maximum number of lost workers that are named."""


def engine_facts(run: Mapping[str, Any], by_engine: Mapping[str, int]) -> Iterable[tuple[str, str]]:
    """Yield facts about the run's engine; `by_engine` counts the rollouts by engine, earlier ones included.

    An engine's provenance comes from a plugin: values that do not have the form of the contract are ignored.
    """
    engine = _mapping(run.get("engine"))
    name = engine.get("name")
    if name:
        yield "engine", f"{name}{_where(str(name), engine)}"
    if by_engine.keys() - {name}:
        yield "run by", ", ".join(f"{other} {count}" for other, count in by_engine.items())
    for worker in _lost_workers(engine)[:_MOST]:
        yield "worker lost", f"{worker.get('worker')} on node {str(worker.get('node'))[:12]}: {worker['lost']}"
    if unconfirmed := engine.get("unconfirmed"):
        yield "unconfirmed", f"{unconfirmed} cancelled rollouts: hermes-core sandboxes gc where they ran"


def workers_of(engine: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the workers that an engine names."""
    found = engine.get("workers")
    return [worker for worker in found if isinstance(worker, Mapping)] if isinstance(found, list) else []


def _where(name: str, engine: Mapping[str, Any]) -> str:
    workers = workers_of(engine)
    if not workers:
        return ", in the command's own process" if name == "local" else ""
    nodes = len({str(worker.get("node")) for worker in workers})
    lost = f", {engine['lost_workers']} lost" if engine.get("lost_workers") else ""
    return f": {plural(len(workers), 'worker')} on {plural(nodes, 'node')}{lost}"


def _lost_workers(engine: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [worker for worker in workers_of(engine) if worker.get("lost")]


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
