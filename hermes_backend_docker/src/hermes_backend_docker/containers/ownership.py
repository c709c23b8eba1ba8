"""The owner of a container: its labels, and whether the owner is dead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hermes_sandbox.backends import OWNER_FIELDS, Lease, owner_is_dead

SANDBOX: Final = "hermes.sandbox"
POOL: Final = "hermes.pool"
_PREFIX: Final = "hermes.lease."


def container_name(sandbox_id: str) -> str:
    """Return the name that a sandbox's container has."""
    return f"hermes-{sandbox_id}"


def labels_of(lease: Lease) -> dict[str, str]:
    """Return the labels that identify the container's owner without the lease's file.

    They have no deadline: the lease's deadline moves while the owner lives, and labels never change.
    """
    owner = {f"{_PREFIX}{field}": str(getattr(lease, field)) for field in OWNER_FIELDS}
    rollout = {} if lease.rollout_id is None else {"hermes.rollout": lease.rollout_id}
    return {SANDBOX: lease.sandbox_id, **owner, **rollout}


def is_abandoned(labels: Mapping[str, str]) -> bool:
    """Return whether a container is ours and its owner is dead."""
    found = {field: labels[name] for field in OWNER_FIELDS if (name := f"{_PREFIX}{field}") in labels}
    return SANDBOX in labels and owner_is_dead(found)
