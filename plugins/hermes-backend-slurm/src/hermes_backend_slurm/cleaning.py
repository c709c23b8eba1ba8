"""Short jobs that remove leftovers of sandboxes on nodes that no longer belong to the allocation."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hermes_backend_slurm.allocation import Allocation, healthy
from hermes_backend_slurm.commands import Slurm
from hermes_backend_slurm.options import SlurmOptions
from hermes_core.cancellation import run_uncancelled
from hermes_core.contracts.errors import BackendError

_log = logging.getLogger(__name__)
_MINUTES: Final = "5"
"""Time limit of a cleaning job, in salloc's notation."""
_WAITS: Final = 60.0
"""Seconds that a cleaning job waits in the queue at most."""


@dataclass
class _Job:
    asking: asyncio.Future[Allocation]
    users: int = 0


class CleaningJobs:
    """The cleaning jobs, one at a time per set of nodes.

    An allocation that ends can leave a hundred sandboxes to remove.
    """

    def __init__(self, slurm: Slurm, options: SlurmOptions) -> None:
        self._slurm = slurm
        self._options = options.model_copy(update={"queue_timeout": min(_WAITS, options.queue_timeout)})
        self._jobs: dict[tuple[str, ...], _Job] = {}

    @contextlib.asynccontextmanager
    async def on(self, nodes: Sequence[str], handle: Mapping[str, Any]) -> AsyncIterator[Allocation]:
        """Provide an allocation of these nodes, which all callers share; it ends after its last user.

        Raises:
            BackendError: Some of the nodes cannot be used now.
        """
        key = tuple(nodes)
        job = self._jobs.get(key)
        if job is None:
            job = self._jobs[key] = _Job(asyncio.ensure_future(self._ask(nodes, handle)))
        job.users += 1
        try:
            yield await asyncio.shield(job.asking)
        finally:
            job.users -= 1
            if not job.users:
                del self._jobs[key]
                await run_uncancelled(_end(job.asking))

    async def _ask(self, nodes: Sequence[str], handle: Mapping[str, Any]) -> Allocation:
        serving = await healthy(self._slurm, nodes)
        if down := [node for node in nodes if node not in serving]:
            raise BackendError(
                f"sandbox {handle['sandbox_id']} of allocation {handle['job_id']} may have left {handle['root']}"
                f" on {', '.join(down)}, which cannot be used now",
                hint="`sinfo -R` shows why; call `hermes-core sandboxes gc` when the node is back",
            )
        return await Allocation.own(self._slurm, self._options, only=nodes, time=_MINUTES)


async def _end(asking: asyncio.Future[Allocation]) -> None:
    asking.cancel()
    await asyncio.wait((asking,))
    if not asking.cancelled() and asking.exception() is None:
        try:
            await asking.result().aclose()
        except BackendError as error:
            # This often runs because of a cancellation, which must not be replaced by this error; the backend tries
            # again when it closes.
            _log.warning("%s", error)
