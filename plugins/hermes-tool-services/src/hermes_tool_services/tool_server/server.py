"""Run tools that act outside the sandbox and hold secrets."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast, final

from hermes_core.contracts import tool as contract
from hermes_core.contracts.errors import AmbiguousComponentError, ConfigError
from hermes_core.contracts.model import encode
from hermes_core.discovery import Registry
from hermes_core.rollout import RolloutContext, Runtime, SyncToolContext, WorkerThreads, guard_plugin_call
from hermes_core.specs import ToolSpec
from hermes_core.tooling import ArgumentsError
from hermes_tool_services.policy import LONGEST, timeout_of
from hermes_tool_services.stats import CallStats
from hermes_tool_services.tool_server.failing import report_failure
from hermes_tool_services.tool_server.threads import ToolStuckError, ToolThreads
from hermes_tools.agent_tools import (
    InstalledTool,
    Tool,
    ToolCall,
    ToolRegistry,
    ToolResult,
    parse_result,
    result_for,
    without_policy,
)

MAX_CONCURRENCY: Final = 16
DEFAULT_TIMEOUT: Final = 120.0
_ABOUT: Final = ("trajectory_id", "slot_id", "container_addr", "task_id")

Run = Callable[[ToolCall, Mapping[str, str]], Awaitable[ToolResult]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Served:
    """A served tool and the function that runs it."""

    spec: ToolSpec
    run: Run


@final
class ToolServer:
    """Runs external tools with a limit on concurrency and a timeout for each call.

    A tool gets `trajectory_id`, `slot_id`, `container_addr` and `task_id` if its function has such parameters, and
    never values that a model made up.

    Args:
        registry: The plugins; all their usable external tools are served.
        tools: An environment's own tools; the external ones among them are served too.
        max_concurrency: Maximum number of concurrent calls.
        default_timeout_s: Timeout in seconds of a call without one.
    """

    def __init__(
        self,
        registry: Registry,
        tools: ToolRegistry | None = None,
        *,
        max_concurrency: int = MAX_CONCURRENCY,
        default_timeout_s: float = DEFAULT_TIMEOUT,
    ) -> None:
        if max_concurrency < 1:
            raise ConfigError(f"expected max_concurrency to be at least 1, got {max_concurrency}")
        self.stats = CallStats()
        self.max_concurrency = max_concurrency
        self.unavailable: dict[str, str] = {}
        """Installed external tools that cannot be used here, with the reason."""
        self.running = 0
        self._default = min(LONGEST, default_timeout_s)
        self._places = asyncio.Semaphore(max_concurrency)
        self._runtime = Runtime(registry)
        # One tool may take all workers; the limit of abandoned threads is half of them per tool.
        self._workers = WorkerThreads(2 * max_concurrency)
        self._threads = ToolThreads(self._workers, most=max_concurrency)
        self._served = {tool.spec.name: tool for tool in [*self._of_registry(registry), *self._of_environment(tools)]}

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The tools that are served."""
        return tuple(tool.spec for tool in self._served.values())

    @property
    def left_threads(self) -> dict[str, int]:
        """Threads of each synchronous tool that still run after their timeout; at `max_concurrency` it is refused."""
        return self._threads.left

    async def execute(
        self, call: ToolCall, trajectory_id: str = "", timeout: float | None = None, **about: str
    ) -> ToolResult:
        """Run a tool; failures are in the result.

        `timeout` (1 … 600 seconds, the server's default if None) includes the wait for a free worker.
        """
        began = time.perf_counter()
        is_error = True
        try:
            result = await self._call_in_time(call, timeout, {"trajectory_id": trajectory_id, **about})
            is_error = not result.success
        finally:
            self.stats.add(time.perf_counter() - began, is_error=is_error)
        return result_for(call, result)

    async def _call_in_time(self, call: ToolCall, timeout: float | None, about: Mapping[str, str]) -> ToolResult:
        tool = self._served.get(call.name)
        if tool is None:
            why = self.unavailable.get(call.name)
            return _failure(f"Unknown tool: {call.name}" + (f" (it cannot be used here: {why})" if why else ""))
        seconds = timeout_of(timeout, None, self._default)
        has_begun = False
        try:
            async with asyncio.timeout(seconds), self._places:
                has_begun = True
                self.running += 1
                try:
                    return await tool.run(call, about)
                finally:
                    self.running -= 1
        except TimeoutError:
            if has_begun:
                return _failure(f"{call.name} timed out after {seconds:g}s", timeout=True)
            busy = f"the tool server was busy for {seconds:g}s ({self.max_concurrency} calls at a time)"
            return _failure(f"{busy}; {call.name} was not run", timeout=True)

    async def aclose(self) -> None:
        """Release the worker threads; callers cancel their own running calls."""
        self._workers.close()
        await self._runtime.aclose()

    def _of_registry(self, registry: Registry) -> list[_Served]:
        found: list[_Served] = []
        for name in registry.names("tool"):
            try:
                component = registry.component("tool", name)
            except AmbiguousComponentError as error:
                self.unavailable[name] = error.message
                continue
            spec = cast("ToolSpec", component.spec)
            if spec.side_effects != "external":
                continue
            if component.state == "unavailable":
                self.unavailable[name] = component.reason
            else:
                found.append(_Served(spec=spec, run=self._plugins_tool(spec)))
        return found

    def _of_environment(self, tools: ToolRegistry | None) -> list[_Served]:
        own = [] if tools is None else [tool for tool in tools.list_tools() if not isinstance(tool, InstalledTool)]
        return [_Served(spec=tool.schema.spec(), run=self._own_tool(tool)) for tool in own if tool.schema.external]

    def _plugins_tool(self, spec: ToolSpec) -> Run:
        made: list[contract.Tool] = []

        async def run(call: ToolCall, about: Mapping[str, str]) -> ToolResult:
            try:
                arguments = self._prepare_arguments(spec, call)
                if not made:
                    made.append(cast("contract.Tool", self._runtime.registry.create("tool", spec.name, {})))
                context = RolloutContext(self._runtime, rollout_id=about.get("trajectory_id", ""), sandbox=None)
                answer = await self._call(spec, made[0], arguments, context, _caller_arguments(made[0].call, about))
            except (ArgumentsError, ToolStuckError) as error:
                return _failure(getattr(error, "message", str(error)))
            except Exception as error:  # noqa: BLE001 - the plugin boundary: that it failed is the model's to know
                return _failure(report_failure(error, call, about))
            if not isinstance(answer, contract.ToolResult):
                return _failure(f"expected tool {spec.name!r} to return ToolResult, got {type(answer).__name__}")
            result = parse_result(answer.content)
            why = result.error or answer.error
            return ToolResult(result.success and why is None, result.output, why, result.metadata)

        return run

    async def _call(
        self, spec: ToolSpec, tool: contract.Tool, arguments: dict[str, Any], context: RolloutContext, more: Any
    ) -> Any:
        if inspect.iscoroutinefunction(tool.call):
            return await guard_plugin_call(tool.call(arguments, context, **more))
        sync = SyncToolContext(context)
        return await guard_plugin_call(
            self._threads.run(spec.name, spec.target, lambda: tool.call(arguments, sync, **more))
        )

    def _own_tool(self, tool: Tool) -> Run:
        async def run(call: ToolCall, about: Mapping[str, str]) -> ToolResult:
            function: Any = tool.execute
            try:
                arguments = {**self._prepare_arguments(tool.schema.spec(), call), **_caller_arguments(function, about)}
                if inspect.iscoroutinefunction(function):
                    answer = await guard_plugin_call(function(**arguments))
                else:
                    answer = await guard_plugin_call(
                        self._threads.run(call.name, call.name, lambda: function(**arguments))
                    )
            except (ArgumentsError, ToolStuckError) as error:
                return _failure(getattr(error, "message", str(error)))
            except Exception as error:  # noqa: BLE001 - the boundary to an environment's own tool
                return _failure(report_failure(error, call, about))
            if not isinstance(answer, ToolResult):
                return _failure(f"expected tool {call.name!r} to return ToolResult, got {type(answer).__name__}")
            return answer

        return run

    def _prepare_arguments(self, spec: ToolSpec, call: ToolCall) -> dict[str, Any]:
        declared = spec.parameters.get("properties", {})
        arguments = without_policy(call.arguments)
        for name in (*_ABOUT, "timeout"):
            if name not in declared:
                arguments.pop(name, None)
        return self._runtime.arguments.prepare(spec, encode(arguments).decode())


def _caller_arguments(function: Callable[..., Any], about: Mapping[str, str]) -> dict[str, str]:
    """Return the facts about the caller that a function has parameters for."""
    parameters = inspect.signature(function).parameters
    return {name: about[name] for name in _ABOUT if name in parameters and name in about}


def _failure(error: str, **metadata: Any) -> ToolResult:
    return ToolResult(success=False, error=error, metadata=metadata)
