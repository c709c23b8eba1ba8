"""Read the nodes of a Ray cluster, and start workers on it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from hermes_backend_ray.cluster.connection import attach, detach
from hermes_backend_ray.cluster.nodes import Node, alive_nodes
from hermes_backend_ray.options import RayOptions
from hermes_backend_ray.rollout_workers.worker import RolloutWorker
from hermes_core.contracts.errors import BackendError, ConfigError

_KILLS_CHILDREN: Final = "RAY_kill_child_processes_on_worker_exit"


def _sparing(runtime_env: Mapping[str, Any]) -> dict[str, Any]:
    """Keep Ray from killing a worker's children as it ends.

    Those are the sandboxes' agents, which end everything that runs inside when they see the end of their input, as they
    do when the worker has gone. Killed first, they leave it running.
    """
    return {**runtime_env, "env_vars": {_KILLS_CHILDREN: "0", **runtime_env.get("env_vars", {})}}


class EngineCluster:
    """Ray's connection, which this process may share with a backend of the same cluster."""

    async def connect(self, address: str) -> None:
        """Connect in a thread, because Ray blocks, and would take over SIGTERM in the main thread."""
        try:
            await asyncio.to_thread(attach, RayOptions(address=address), self)
        except BackendError as error:
            # At this point the command is wrong, and there is nothing to retry.
            raise ConfigError(f"engine 'ray': {error.message}", hint=error.hint) from error

    async def nodes(self) -> list[Node]:
        """Return the nodes that are alive."""
        return await asyncio.to_thread(alive_nodes)

    def actor(self, node: Node | None, options: Mapping[str, Any]) -> Any:
        """Request a worker, on the given node or on any; it may start later."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        # Actors that need no CPU would all be put on one node otherwise.
        where = "SPREAD" if node is None else NodeAffinitySchedulingStrategy(node.id, soft=False)
        given = {**options, "runtime_env": _sparing(options.get("runtime_env", {}))}
        return ray.remote(RolloutWorker).options(scheduling_strategy=where, **given).remote()

    async def close(self) -> None:
        """Disconnect if this object opened the connection and it has no other user."""
        await asyncio.to_thread(detach, self)
