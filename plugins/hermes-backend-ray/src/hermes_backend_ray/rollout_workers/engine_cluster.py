"""Connect to a Ray cluster, list its nodes, and start workers on it."""

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
    """Return a runtime environment in which Ray does not kill a worker's children when the worker ends.

    The children are the sandboxes' agents. They see the end of their input when the worker has ended, and then end
    everything inside their sandboxes. If Ray killed them first, that would keep running.
    """
    return {**runtime_env, "env_vars": {_KILLS_CHILDREN: "0", **runtime_env.get("env_vars", {})}}


class EngineCluster:
    """Ray's connection, which this process can share with a backend on the same cluster."""

    async def connect(self, address: str) -> None:
        """Connect in a thread, because Ray blocks, and would replace the SIGTERM handler in the main thread."""
        try:
            await asyncio.to_thread(attach, RayOptions(address=address), self)
        except BackendError as error:
            # A failure at this point means that the command is wrong, so a retry does not help.
            raise ConfigError(f"engine 'ray': {error.message}", hint=error.hint) from error

    async def nodes(self) -> list[Node]:
        """Return the nodes that are alive."""
        return await asyncio.to_thread(alive_nodes)

    def actor(self, node: Node | None, options: Mapping[str, Any]) -> Any:
        """Request a worker, on the given node or on any; it may start later."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        # Without a strategy, all actors that need no CPU would be put on one node.
        where = "SPREAD" if node is None else NodeAffinitySchedulingStrategy(node.id, soft=False)
        given = {**options, "runtime_env": _sparing(options.get("runtime_env", {}))}
        return ray.remote(RolloutWorker).options(scheduling_strategy=where, **given).remote()

    async def close(self) -> None:
        """Disconnect if this object opened the connection and it has no other user."""
        await asyncio.to_thread(detach, self)
