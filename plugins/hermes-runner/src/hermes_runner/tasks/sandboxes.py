"""Whether the sandboxes that tasks want can be had."""

from __future__ import annotations

from collections.abc import Sequence

from hermes_core.contracts.task import Task
from hermes_core.rollout import Runtime


async def check_own_sandbox(runtime: Runtime, tasks: Sequence[Task]) -> None:
    """Raise what keeps the run's own sandbox from being had, unless every task brings an image in its place.

    The backend's default image need not be there, then. Without tasks nobody says that it need not.
    """
    if not tasks or any(task.sandbox.get("image") is None for task in tasks):
        await runtime.backend.check(runtime.sandbox_spec)
