"""The connection to a Ray cluster and what it says of its nodes; the one place that calls `ray.init` for the engine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hermes_backend_ray.engine_worker import RolloutWorker
from hermes_core.contracts.errors import ConfigError

_ROUNDING: Final = 1e-6
"""Ray keeps amounts in ten-thousandths; a comparison of floats must not decide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node that is alive, with all that it has, in use or not."""

    id: str
    host: str
    resources: Mapping[str, float] = field(default_factory=dict)

    def has(self, needs: Mapping[str, float]) -> bool:
        """Tell whether a worker could ever run there."""
        return all(self.resources.get(name, 0.0) + _ROUNDING >= amount for name, amount in needs.items())


class EngineCluster:
    """Ray's connection, which is this process's own: one that was there before is used and left open."""

    def __init__(self) -> None:
        self._is_ours = False

    async def connect(self, address: str) -> None:
        """Connect; in a thread, as Ray blocks, and takes over SIGTERM where it is called in the main one."""
        await asyncio.to_thread(self._connect, address)

    def _connect(self, address: str) -> None:
        import ray

        if ray.is_initialized():
            _check_same(address, str(ray.get_runtime_context().gcs_address))
            return
        try:
            # What workers print belongs into their logs, not between the lines of the run's progress.
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, OSError, RuntimeError, ValueError, TimeoutError) as error:
            text = " ".join(str(error).split())[:300]
            raise ConfigError(
                f"engine 'ray': no Ray cluster answers at {address!r}: {text}",
                hint="ray start --head begins one on this machine; ray status shows it; engine_options: {address: …}",
            ) from error
        self._is_ours = True

    async def nodes(self) -> list[Node]:
        """Return the nodes that are alive."""
        import ray

        return [
            Node(id=str(node["NodeID"]), host=str(node["NodeManagerAddress"]), resources=node["Resources"])
            for node in await asyncio.to_thread(ray.nodes)
            if node["Alive"]
        ]

    def actor(self, node: Node | None, options: Mapping[str, Any]) -> Any:
        """Ask for a worker, on the node or wherever there is room; it may take its time to be there."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        # Actors that need no CPU would all be put on one node otherwise.
        where = "SPREAD" if node is None else NodeAffinitySchedulingStrategy(node.id, soft=False)
        return ray.remote(RolloutWorker).options(scheduling_strategy=where, **options).remote()

    async def close(self) -> None:
        """Disconnect, if it was us who connected."""
        import ray

        if self._is_ours:
            self._is_ours = False
            await asyncio.to_thread(ray.shutdown)


def _check_same(wanted: str, found: str) -> None:
    if wanted not in {"auto", found}:
        raise ConfigError(
            f"engine 'ray': wanted the cluster at {wanted}, but this process is connected to {found}",
            hint="name that one, or leave the address out",
        )
