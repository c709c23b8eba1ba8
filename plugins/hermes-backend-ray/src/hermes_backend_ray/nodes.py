"""The nodes of the cluster: which are there, which would do, and what is missing where none does. All of it blocks."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from hermes_core.contracts.errors import BackendError

_MANY: Final = 8
"""Nodes that a message names."""
_ASKING: Final = 20.0
"""Seconds in which Ray must have said when nodes ended."""
_TAKEN_AWAY: Final = frozenset({3, 4})
"""Ray's reasons of a node's death that mean that its machine has been given back: preempted, drained when idle."""
_ROUNDING: Final = 1e-6
"""Ray keeps amounts in ten-thousandths; a comparison of floats must not decide."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the cluster; its id is never used again, its address is the machine's."""

    id: str
    address: str
    resources: Mapping[str, float]

    @property
    def name(self) -> str:
        """The node as messages name it."""
        return f"Ray node {self.id[:12]} ({self.address})"

    def lacks(self, wanted: Mapping[str, float]) -> dict[str, float]:
        """Return what of `wanted` it does not have, however idle it is."""
        return {name: amount for name, amount in wanted.items() if self.resources.get(name, 0.0) + _ROUNDING < amount}


def alive_nodes() -> list[Node]:
    """Return the nodes that are alive by what Ray knows."""
    return [
        Node(entry["NodeID"], entry["NodeManagerAddress"], dict(entry.get("Resources") or {}))
        for entry in _entries()
        if entry["Alive"]
    ]


def missing_machines(since: float) -> dict[str, str]:
    """Return the machines without a node that had one after `since` and may come back, by address, with Ray's reason.

    One that an autoscaler has given back does not come back.
    """
    entries = _entries()
    alive = {entry["NodeManagerAddress"] for entry in entries if entry["Alive"]}
    ended = _ends()
    last: dict[str, tuple[float, bool, str]] = {}
    for entry in entries:
        address, end = entry["NodeManagerAddress"], ended.get(entry["NodeID"], math.inf)
        known = (
            end,
            entry.get("DeathReason") in _TAKEN_AWAY,
            str(entry.get("DeathReasonMessage") or "no reason given"),
        )
        if address not in alive and end >= since:
            last[address] = max(known, last.get(address, known))
    return {address: why for address, (_, is_taken, why) in last.items() if not is_taken}


def _entries() -> list[dict[str, Any]]:
    import ray

    found: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]  # Ray types it not
    return found


def _ends() -> dict[str, float]:
    """Return when the nodes that have ended did, by their ids; nothing where this Ray does not say."""
    import ray

    try:
        client: Any = vars(ray)["_private"].worker.global_worker.gcs_client
        return {
            info.node_id.hex(): info.end_time_ms / 1000
            for info in client.get_all_node_info(timeout=_ASKING).values()
            if info.end_time_ms
        }
    except (AttributeError, RuntimeError, ray.exceptions.RayError):
        # Not public, and not there with Ray Client: then a node that has ended long ago counts like the others.
        return {}


def fit_nodes(wanted: Mapping[str, float]) -> list[Node]:
    """Return the nodes that have what is wanted, in use or not.

    Raises:
        BackendError: There is none; the message names the resource.
    """
    nodes = alive_nodes()
    fit = [node for node in nodes if not node.lacks(wanted)]
    if not fit:
        raise BackendError(
            f"no node of the Ray cluster has {described(wanted) or 'anything'}: {_inventory(nodes, wanted)}",
            hint="`ray start --address=… --resources='{…}'` starts one; or change num_cpus, memory_mb, resources",
        )
    return fit


def still_missing(place: str, down: Mapping[str, str], until: float) -> BackendError:
    """Return the error for machines that may hold what cannot be removed before they are back."""
    named = "; ".join(f"{address} ({why})" for address, why in sorted(down.items()))
    given = ", ".join(f'"{address}"' for address in sorted(down))
    latest = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(until))
    return BackendError(
        f"files may be left on a machine of {place} that is down: {named}; the lease is kept until that is seen again, "
        f"until {latest} at the latest",
        hint=f"`ray start` there, and gc again; is it gone for good: --backend-options '{{\"gone\": [{given}]}}'",
    )


def described(wanted: Mapping[str, float]) -> str:
    """Return resources as people write them."""
    return ", ".join(
        f"{amount / (1 << 20):g} MB of memory" if name == "memory" else f"{amount:g} {name}"
        for name, amount in wanted.items()
    )


def shortage(node: Node, wanted: Mapping[str, float]) -> str:
    """Return what keeps an actor from being started at a node that has what it wants, as far as Ray says."""
    import ray

    free: dict[str, float] = ray.available_resources()  # type: ignore[no-untyped-call]  # Ray types it not
    short = {name: amount for name, amount in wanted.items() if free.get(name, 0.0) < amount}
    if short:
        return f"the whole cluster has {described({name: free.get(name, 0.0) for name in short})} free"
    if wanted:
        return f"it waits for {described(wanted)}, of which {node.name} has {_owned(node, wanted)} in all, now in use"
    return "no worker process has been started in time; the node may be overloaded"


def _owned(node: Node, names: Iterable[str]) -> str:
    return described({name: node.resources.get(name, 0.0) for name in names}) or "nothing"


def _inventory(nodes: list[Node], wanted: Mapping[str, float]) -> str:
    if not nodes:
        return "no node is alive"
    told = [f"{node.name} has {_owned(node, node.lacks(wanted))}" for node in nodes[:_MANY]]
    return "; ".join(told) + (f"; and {len(nodes) - _MANY} more" if len(nodes) > _MANY else "")
