"""The caller's handle of a node's host actor: calls it, and reports its loss."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from importlib import resources
from typing import Any, Final, Self

from hermes_backend_ray.cluster.failures import node_loss
from hermes_backend_ray.cluster.nodes import Node, shortage
from hermes_backend_ray.options import RayOptions
from hermes_core.contracts.errors import BackendError, SandboxLostError

_CALLS: Final = 10_000
"""How many calls one actor serves at once; there is one for each program that a caller waits for."""
_LEAVING: Final = 5.0
"""Seconds in which an actor must confirm that it has killed what it started."""
_BY_VALUE: Final = "hermes_node_actor"
"""The module name of the actor's class, chosen so that Ray sends its code and not its name."""


class HostActor:
    """The actor that starts programs on one node. If it or the node is lost, all callers get an error at once."""

    def __init__(self, node: Node, actor: Any) -> None:
        self.node = node
        self.lost: SandboxLostError | None = None
        self._actor = actor
        self._told: list[Callable[[SandboxLostError], None]] = []
        self._watching: asyncio.Task[None] | None = None
        self._leaving = False

    @classmethod
    async def start(cls, node: Node, options: RayOptions) -> Self:
        """Start an actor on a node.

        Raises:
            BackendError: The node does not start the actor in time; the message says which resources are missing.
        """
        actor = await asyncio.to_thread(_create, node, options)
        host = cls(node, actor)
        try:
            async with asyncio.timeout(options.actor_timeout):
                await host.call("run", "exit 0", b"", 10.0)
        except TimeoutError as error:
            await asyncio.to_thread(_kill, actor)
            why = await asyncio.to_thread(shortage, node, options.host_needs())
            raise BackendError(
                f"{node.name} did not start a host actor within {options.actor_timeout:g} s: {why}",
                hint="`ray status` shows what is in use; free some of it, or lower num_cpus, memory_mb or resources",
            ) from error
        except BaseException:
            await asyncio.to_thread(_kill, actor)
            raise
        host._watching = asyncio.ensure_future(host._watch())
        return host

    async def _watch(self) -> None:
        with contextlib.suppress(SandboxLostError):
            await self.call("watch")

    def on_loss(self, callback: Callable[[SandboxLostError], None]) -> None:
        """Call `callback` once, with the reason, when the actor is lost; immediately if it is lost already."""
        if self.lost is not None:
            callback(self.lost)
        else:
            self._told.append(callback)

    def forget(self, callback: Callable[[SandboxLostError], None]) -> None:
        """Remove a callback of `on_loss`."""
        with contextlib.suppress(ValueError):
            self._told.remove(callback)

    async def call(self, method: str, *arguments: Any) -> Any:
        """Call the actor and return its answer.

        Raises:
            SandboxLostError: The actor or its node is lost.
            BackendError: The call itself failed on the node.
        """
        from ray.exceptions import RayError, RayTaskError

        if self.lost is not None:
            raise SandboxLostError(self.lost.message, hint=self.lost.hint)
        try:
            return await _answer(getattr(self._actor, method).remote(*arguments))
        except RayTaskError as error:
            said = str(error.cause or error).strip().splitlines() or [""]
            raise BackendError(f"{self.node.name}: its host actor cannot {method}: {said[-1]}") from error
        except RayError as error:
            raise self.fail(error) from error

    def fail(self, error: Exception) -> SandboxLostError:
        """Mark the actor as lost, call the callbacks, and return the error."""
        if self.lost is None:
            self.lost = SandboxLostError("it was closed") if self._leaving else node_loss(self.node.name, error)
            told, self._told = self._told, []
            for callback in told:
                callback(self.lost)
        return SandboxLostError(self.lost.message, hint=self.lost.hint)

    async def aclose(self) -> None:
        """End the actor with everything it started."""
        if self._leaving:
            return
        self._leaving = True
        with contextlib.suppress(SandboxLostError, BackendError, TimeoutError):
            async with asyncio.timeout(_LEAVING):
                await self.call("leave")
        await asyncio.to_thread(_kill, self._actor)
        self.fail(SandboxLostError("it was closed"))
        if self._watching is not None:
            # Its reply is on the way now, and must not reach an event loop that has ended.
            await asyncio.wait((self._watching,), timeout=_LEAVING)
            self._watching.cancel()


async def _answer(reference: Any) -> Any:
    return await reference


def _create(node: Node, options: RayOptions) -> Any:
    """Create the actor, which belongs to this process and ends with it. Blocks."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    # No restarts by Ray: a restarted actor does not know the first one's programs, so they are lost anyway, and Ray
    # reports the loss only after the restart. The next sandbox gets a new actor.
    asked: Mapping[str, Any] = {
        "num_cpus": options.num_cpus,
        "resources": dict(options.resources),
        **({} if options.memory_mb is None else {"memory": options.memory_mb << 20}),
        "max_restarts": 0,
        "max_task_retries": 0,
        "max_concurrency": _CALLS,
        "scheduling_strategy": NodeAffinitySchedulingStrategy(node.id, soft=False),
    }
    return ray.remote(actor_class()).options(**asked).remote()


def actor_class() -> Any:
    """Return the actor's class, which Ray pickles by value.

    A class in an importable module is pickled by its name, so the nodes would need this package. A class whose module
    is in no module table is pickled with its code.
    """
    source = (resources.files("hermes_backend_ray.host_actors") / "node_actor.py").read_text(encoding="utf-8")
    space: dict[str, Any] = {"__name__": _BY_VALUE}
    exec(compile(source, f"<{_BY_VALUE}>", "exec"), space)  # noqa: S102 - this package's own file
    return space["NodeActor"]


def _kill(actor: Any) -> None:
    import ray

    with contextlib.suppress(Exception):  # the actor is no longer needed, so errors do not matter
        ray.kill(actor)
