"""Whose a container is: labels, and what they say about an owner that may be dead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hermes_core.sandbox.leases import Lease

SANDBOX: Final = "hermes.sandbox"
POOL: Final = "hermes.pool"
_FIELDS: Final = ("owner_pid", "owner_start", "node", "boot_id", "pid_namespace")
_PREFIX: Final = "hermes.lease."


def container_name(sandbox_id: str) -> str:
    """Return the name that a sandbox's container has."""
    return f"hermes-{sandbox_id}"


def labels_of(lease: Lease) -> dict[str, str]:
    """Return the labels that let another process judge the container without the lease's file.

    No deadline: that of the lease moves on while the owner lives, and labels never change.
    """
    owner = {f"{_PREFIX}{field}": str(getattr(lease, field)) for field in _FIELDS}
    rollout = {} if lease.rollout_id is None else {"hermes.rollout": lease.rollout_id}
    return {SANDBOX: lease.sandbox_id, **owner, **rollout}


def is_abandoned(labels: Mapping[str, str]) -> bool:
    """Tell whether a container's owner is known to be dead."""
    owner = _lease(labels)
    # None: not of this version, and nobody's to judge.
    return owner is not None and owner.owner() == "dead"


def _lease(labels: Mapping[str, str]) -> Lease | None:
    try:
        found = {field: labels[f"{_PREFIX}{field}"] for field in _FIELDS}
        return Lease(
            sandbox_id=labels[SANDBOX],
            backend="docker",
            rollout_id=labels.get("hermes.rollout"),
            created=0.0,
            deadline=0.0,
            owner_pid=int(found["owner_pid"]),
            owner_start=int(found["owner_start"]),
            node=found["node"],
            boot_id=found["boot_id"],
            pid_namespace=found["pid_namespace"],
        )
    except (KeyError, ValueError):
        return None
