"""The nodes of the cluster: list them, find suitable ones, and explain shortages. All functions block."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from hermes_core.contracts.errors import BackendError

_MANY: Final = 8
"""How many nodes a message names at most."""
_TAKEN_AWAY: Final = frozenset({3, 4})
"""Ray's codes for the death of a node whose machine was given back: preempted, or drained because it was idle."""
_ROUNDING: Final = 1e-6
"""Tolerance when amounts of resources are compared; Ray keeps them in ten-thousandths."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the cluster. Its id is never reused; its address is that of its machine."""

    id: str
    address: str
    resources: Mapping[str, float]

    @property
    def name(self) -> str:
        """The node as messages name it."""
        return f"Ray node {self.id[:12]} ({self.address})"

    def lacks(self, wanted: Mapping[str, float]) -> dict[str, float]:
        """Return the `wanted` resources that the node lacks even when idle."""
        return {name: amount for name, amount in wanted.items() if self.resources.get(name, 0.0) + _ROUNDING < amount}


def alive_nodes() -> list[Node]:
    """Return the nodes that Ray reports as alive."""
    return [
        Node(entry["NodeID"], entry["NodeManagerAddress"], dict(entry.get("Resources") or {}))
        for entry in _entries()
        if entry["Alive"]
    ]


def why_missing(node: str, machine: str) -> str | None:
    """Return why a machine that had this node has no live node now; None if it has one, or will not come back.

    A machine that an autoscaler has given back will not come back.
    """
    entries = _entries()
    if any(entry["Alive"] and entry["NodeManagerAddress"] == machine for entry in entries):
        return None
    last = next((entry for entry in entries if entry["NodeID"] == node), None)
    if last is None:
        return "the cluster does not know it"
    if last.get("DeathReason") in _TAKEN_AWAY:
        return None
    return str(last.get("DeathReasonMessage") or "no reason is given")


def _entries() -> list[dict[str, Any]]:
    import ray

    found: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]  # Ray does not type it
    return found


def fit_nodes(wanted: Mapping[str, float]) -> list[Node]:
    """Return the nodes with the wanted resources, whether in use or not.

    Raises:
        BackendError: No node has them; the message names the resource.
    """
    nodes = alive_nodes()
    fit = [node for node in nodes if not node.lacks(wanted)]
    if not fit:
        raise BackendError(
            f"no node of the Ray cluster has {describe(wanted) or 'anything'}: {_inventory(nodes, wanted)}",
            hint="`ray start --address=… --resources='{…}'` starts one; or change num_cpus, memory_mb, resources",
        )
    return fit


def still_missing(machine: str, why: str, until: float) -> BackendError:
    """Return the error for a machine that is down and may hold files of a sandbox."""
    latest = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(until))
    return BackendError(
        f"files may be left on machine {machine} of the Ray cluster, which is down: {why}; the lease is kept until "
        f"the machine is back, and until {latest} at the latest",
        hint="`ray start` there, and run gc again; if it will not come back: hermes-core sandboxes gc --backend ray "
        f'--backend-options \'{{"gone": ["{machine}"]}}\'',
    )


def describe(wanted: Mapping[str, float]) -> str:
    """Return resources as text for a message."""
    return ", ".join(
        f"{amount / (1 << 20):g} MB of memory" if name == "memory" else f"{amount:g} {name}"
        for name, amount in wanted.items()
    )


def shortage(node: Node, wanted: Mapping[str, float]) -> str:
    """Return why an actor did not start on a suitable node, as far as Ray reports it."""
    import ray

    free: dict[str, float] = ray.available_resources()  # type: ignore[no-untyped-call]  # Ray does not type it
    short = {name: amount for name, amount in wanted.items() if free.get(name, 0.0) < amount}
    if short:
        return f"the whole cluster has {describe({name: free.get(name, 0.0) for name in short})} free"
    if wanted:
        return f"it waits for {describe(wanted)}; {node.name} has {_total_of(node, wanted)} in all, now in use"
    return "no worker process has been started in time; the node may be overloaded"


def _total_of(node: Node, names: Iterable[str]) -> str:
    return describe({name: node.resources.get(name, 0.0) for name in names}) or "nothing"


def _inventory(nodes: list[Node], wanted: Mapping[str, float]) -> str:
    if not nodes:
        return "no node is alive"
    told = [f"{node.name} has {_total_of(node, node.lacks(wanted))}" for node in nodes[:_MANY]]
    return "; ".join(told) + (f"; and {len(nodes) - _MANY} more" if len(nodes) > _MANY else "")
