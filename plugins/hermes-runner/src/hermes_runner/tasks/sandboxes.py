"""Checks whether the backend can open the run's own sandbox."""

from __future__ import annotations

from collections.abc import Sequence

from hermes_core.contracts.task import Task
from hermes_core.rollout import Runtime


async def check_own_sandbox(runtime: Runtime, tasks: Sequence[Task]) -> None:
    """Raise an error if the backend cannot open the run's own sandbox, unless every task names another image.

    The backend's default image is not needed then. Without tasks it is checked.
    """
    if not tasks or any(task.sandbox.get("image") is None for task in tasks):
        await runtime.backend.check(runtime.sandbox_spec)
