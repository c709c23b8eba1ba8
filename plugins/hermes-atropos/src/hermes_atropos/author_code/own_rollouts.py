"""State of rollouts that an environment's own code runs: their sandboxes and drawn tools."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from contextvars import ContextVar
from typing import Any, Final

from hermes_core.rollout import RolloutContext, Runtime, merge_sandbox_spec
from hermes_core.tooling import ToolSelection

OWN: Final[ContextVar[OwnRollouts | None]] = ContextVar("hermes_core_atropos_own", default=None)
"""The environment of the running code, set while it serves, processes or evaluates."""

OWN_TOOLS: Final[ContextVar[tuple[list[dict[str, Any]], set[str]] | None]] = ContextVar(
    "hermes_core_atropos_own_tools", default=None
)
"""The tools that an own `collect_trajectories` drew for its rollouts."""


def legacy_tools(tools: ToolSelection) -> tuple[list[dict[str, Any]], set[str]]:
    """Return tools in hermes-agent's form: schemas and the set of their names."""
    return [spec.openai_schema() for spec in tools.specs], set(tools.names)


@contextmanager
def mark_own(own: OwnRollouts) -> Iterator[None]:
    """Mark the code in the block, and tasks it starts, as this environment's own."""
    token = OWN.set(own)
    try:
        yield
    finally:
        OWN.reset(token)


class OwnRollouts:
    """The sandboxes of an environment's own rollouts by task id, each open until its context is cleaned up.

    `missing_tools` are the unavailable tools that were already warned about.
    """

    def __init__(self, runtime: Runtime, missing_tools: set[str]) -> None:
        self.runtime = runtime
        self.missing_tools = missing_tools
        self._open: dict[str, tuple[RolloutContext, AsyncExitStack]] = {}

    async def context(self, task_id: str) -> RolloutContext:
        """Return the context of a task id; the first call opens its sandbox."""
        if task_id not in self._open:
            stack = AsyncExitStack()
            spec = merge_sandbox_spec(self.runtime.sandbox_spec, {}, rollout_id=task_id)
            sandbox = await stack.enter_async_context(self.runtime.open_sandbox(spec))
            context = RolloutContext(self.runtime, rollout_id=task_id, sandbox=sandbox)
            self._open[task_id] = context, stack
        return self._open[task_id][0]

    async def close(self, task_id: str) -> None:
        """Close the sandbox of a task id, if there is one."""
        context, stack = self._open.pop(task_id, (None, None))
        if context is not None and stack is not None:
            context.close()
            await stack.aclose()

    async def aclose(self) -> None:
        """Close every sandbox."""
        for task_id in list(self._open):
            await self.close(task_id)
