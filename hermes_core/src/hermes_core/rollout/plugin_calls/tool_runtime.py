"""The tools of a runtime, the services they keep for all its rollouts, and the threads for synchronous tools."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, cast

from hermes_core.contracts.errors import BrokenComponentError
from hermes_core.contracts.tool import RuntimeService, Tool, ToolContext, ToolResult
from hermes_core.rollout.plugin_calls.plugin_guard import guard_plugin_call
from hermes_core.rollout.plugin_calls.sync_context import SyncToolContext
from hermes_core.rollout.plugin_calls.worker_threads import WorkerThreads
from hermes_core.specs import ToolSpec
from hermes_core.tooling.arguments import ArgumentChecker

if TYPE_CHECKING:
    from hermes_core.discovery import Registry

FindTool = Callable[[str], tuple[ToolSpec, Tool] | None]
"""Finds a tool that no plugin declares by its name; None if there is none."""


class BoundTool:
    """A tool that can be awaited, whether it was written with `async def` or `def`."""

    __slots__ = ("_is_async", "_tool", "_workers", "spec")

    def __init__(self, spec: ToolSpec, tool: Tool, workers: WorkerThreads) -> None:
        self.spec = spec
        self._tool = tool
        self._workers = workers
        self._is_async = inspect.iscoroutinefunction(tool.call)

    async def invoke(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Call the tool; raises what the tool raises."""
        if self._is_async:
            result: Any = await guard_plugin_call(self._tool.call(arguments, context))  # type: ignore[arg-type]  # checked
        else:
            sync = SyncToolContext(context)
            work = self._workers.run(self.spec.target, lambda: self._tool.call(arguments, sync))
            result = await guard_plugin_call(work)
        if not isinstance(result, ToolResult):
            raise BrokenComponentError(
                f"expected ToolResult from tool {self.spec.name!r}, got {type(result).__name__}", hint=self.spec.target
            )
        return result


class ToolRuntime:
    """Every installed tool and service of a runtime, each made on first use by the context of a rollout."""

    def __init__(self, registry: Registry, *, tool_pool_size: int, find_tool: FindTool) -> None:
        self.registry = registry
        self.arguments = ArgumentChecker()
        self.workers = WorkerThreads(tool_pool_size)
        self._find_tool = find_tool
        self._services: dict[str, RuntimeService] = {}
        self._tools: dict[str, BoundTool] = {}

    def tool(self, name: str) -> BoundTool:
        """Return a tool; raises `UnknownComponentError`, which names the package that has it."""
        bound = self._tools.get(name)
        if bound is None:
            own = self._find_tool(name)
            spec, tool = own or (self.tool_spec(name), cast("Tool", self.registry.create("tool", name)))
            bound = self._tools[name] = BoundTool(spec, tool, self.workers)
        return bound

    def tool_spec(self, name: str) -> ToolSpec:
        """Return a tool's declaration, without making the tool."""
        found = self._find_tool(name)
        return found[0] if found else cast("ToolSpec", self.registry.spec("tool", name))

    def service(self, name: str) -> Any:
        """Return the `RuntimeService` that tools keep for all rollouts of this runtime, made on first use."""
        if name not in self._services:
            self._services[name] = self.registry.load("service", name)(self)
        return self._services[name]

    async def release(self, rollout_id: str, sandbox_id: str | None = None) -> None:
        """Let every service release a rollout, or one of its sandboxes; if one fails, the others still do."""
        async with AsyncExitStack() as stack:
            # Listed before the first await, during which another rollout may add a service.
            for service in self._services.values():
                stack.push_async_callback(guard_plugin_call, service.release(rollout_id, sandbox_id))
