"""hermes-agent's `ToolExecutor`: runs the calls of many trajectories, each in its own sandbox."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Sequence
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar, final

from hermes_core.contracts.errors import BackendError, ConfigError
from hermes_core.contracts.sandbox import SandboxSpec, TerminalBackend
from hermes_core.discovery import Registry, load_plugins
from hermes_tool_services import wire
from hermes_tool_services.executor.artifacts import ArtifactRefusedError
from hermes_tool_services.executor.config import ToolExecutorConfig
from hermes_tool_services.executor.sandbox_tools import ALIASES, SandboxToolBackend
from hermes_tool_services.executor.tool_backend import ToolBackend
from hermes_tool_services.executor.trajectory import CancelledCallError, ReleasedError, Trajectory
from hermes_tool_services.policy import MARGIN, timeout_of
from hermes_tool_services.stats import CallStats
from hermes_tool_services.tool_server.client import ToolServerClient
from hermes_tool_services.tool_server.failing import discreet
from hermes_tool_services.tool_server.server import ToolServer
from hermes_tools.agent_tools import (
    InstalledTool,
    Tool,
    ToolCall,
    ToolRegistry,
    ToolResult,
    ToolSchema,
    build_tool_registry,
    execute_tool,
    result_for,
    without_policy,
)

T = TypeVar("T")
_RELEASED: Final = 65_536
"""How many ids of released trajectories are remembered, so that a late call opens no sandbox."""
_LOG: Final = logging.getLogger(__name__)
NO_SLOT: Final = "No active slot for trajectory (run a sandbox tool first)"


class ExternalTools(Protocol):
    """Runs tools that hold secrets: a `ToolServer` of this process, or a client of one."""

    async def execute(self, call: ToolCall, trajectory_id: str, timeout: float, **about: str) -> ToolResult:
        """Run one tool; failures are in the result."""
        ...

    async def aclose(self) -> None:
        """Close it."""
        ...


@final
class ToolExecutor:
    """Runs the calls of trajectories; the first call opens a sandbox, `release_trajectory` closes it.

    Calls of one trajectory run in order; different trajectories do not wait for each other. A tool's failure is in its
    `ToolResult`. A sandbox that is not available or is lost raises `BackendError`, because it is not the model's fault.

    Args:
        backend: A terminal backend, pooled or not, which its owner closes; or a started `ToolBackend`.
        tools: The available tools; every installed tool if None, external ones only with a tool server.
        config: The configuration.
        spec: Requirements on a sandbox in addition to the policy; for a terminal backend only.
        registry: The plugins; all installed ones if None.
    """

    def __init__(
        self,
        backend: TerminalBackend | ToolBackend,
        tools: ToolRegistry | None = None,
        config: ToolExecutorConfig | None = None,
        *,
        spec: SandboxSpec | None = None,
        registry: Registry | None = None,
    ) -> None:
        self.config = config or ToolExecutorConfig()
        self.stats = CallStats()
        self._registry = registry
        self._given_tools = tools
        self._tools: ToolRegistry | None = None
        self._own: SandboxToolBackend | None = None
        if isinstance(backend, ToolBackend):
            if spec is not None:
                raise ConfigError(
                    "expected spec with a terminal backend, got a ToolBackend, which has its own", hint="remove spec"
                )
            self._backend: ToolBackend = backend
        else:
            self._backend = self._own = SandboxToolBackend(
                backend,
                spec=spec,
                policy=self.config.policy(),
                default_timeout_s=self.config.default_timeout_s,
            )
        self._external: ExternalTools | None = None
        self._trajectories: dict[str, Trajectory] = {}
        self._released: OrderedDict[str, None] = OrderedDict()
        self._forgetting: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def start(self) -> None:
        """Check that the backend meets the requirements, and that the tool server answers.

        Raises:
            BackendError: The backend does not; `SandboxRefusedError` if a required policy cannot be enforced.
            ConfigError: There is no tool server at the address.
        """
        if self._registry is None:
            self._registry = await asyncio.to_thread(load_plugins)
        if self._own is not None:
            await self._own.start(self._registry)
        given = self._given_tools or build_tool_registry(["all"], registry=self._registry)
        self._tools = ToolRegistry()
        for tool in given.list_tools():
            self._tools.register(tool)
        url = self.config.tool_server_url
        if url == "inprocess":
            server = ToolServer(self._registry, given)
            self._external = server
            self._join(InstalledTool(spec) for spec in server.specs)
        elif url is not None:
            client = ToolServerClient(url, self.config.tool_server_token)
            self._external = client
            try:
                self._join(await client.tools())
            except BaseException:
                await client.aclose()
                raise

    def _join(self, tools: Iterable[Tool]) -> None:
        assert self._tools is not None
        for tool in tools:
            if self._tools.get(tool.schema.name) is None:
                self._tools.register(tool)

    def schemas(self) -> list[ToolSchema]:
        """Return the tools to offer to a model: external ones only with a tool server."""
        return [] if self._tools is None else [s for s in self._tools.get_schemas() if self._external or not s.external]

    async def execute(
        self, trajectory_id: str, call: ToolCall, timeout_s: float | None = None, *, execution_id: str | None = None
    ) -> ToolResult:
        """Run one call. When cancelled, its command is ended; a repeated `execution_id` runs nothing again.

        Args:
            trajectory_id: The trajectory of the call.
            call: The call; policy fields and `timeout` in its arguments are overridden.
            timeout_s: Seconds, 1 to 600; otherwise the call's own `timeout` within these bounds, or the default.
            execution_id: Id of this call within the trajectory.

        Raises:
            BackendError: No sandbox is available (`SlotUnavailableError`: in time), or it was lost.
        """
        began = time.perf_counter()
        is_error = True
        try:
            result = await self._route(trajectory_id, call, timeout_s, execution_id)
            is_error = not result.success
        finally:
            self.stats.add(time.perf_counter() - began, is_error=is_error)
        return result_for(call, result)

    async def _route(
        self, trajectory_id: str, call: ToolCall, timeout_s: float | None, execution_id: str | None
    ) -> ToolResult:
        if self._is_closed:
            return _refusal("the executor is closed")
        tool = self._tool(call.name)
        if tool is None:
            return _refusal(f"Unknown tool: {call.name}")
        trajectory = self._trajectory(trajectory_id)
        if trajectory is None:
            return _refusal(_release_notice(trajectory_id))
        seconds = timeout_of(timeout_s, call.arguments.get("timeout"), self.config.default_timeout_s)
        try:
            return await trajectory.call(
                execution_id, lambda: self._work(trajectory, tool, call, seconds, execution_id)
            )
        except ReleasedError:
            return _refusal(_release_notice(trajectory_id))
        except CancelledCallError:
            return _refusal(f"call {execution_id} was cancelled; it is not run a second time")

    def _tool(self, name: str) -> Tool | None:
        if self._tools is None:
            raise BackendError("the executor has not been started", hint="call `await executor.start()` first")
        return self._tools.get(name) or self._tools.get(ALIASES.get(name, name))

    def _work(
        self, trajectory: Trajectory, tool: Tool, call: ToolCall, seconds: float, execution_id: str | None
    ) -> Coroutine[Any, Any, ToolResult]:
        if tool.schema.external:
            return self._outside(trajectory, call, seconds)
        if not isinstance(tool, InstalledTool):
            return _run_here(tool, call, trajectory.id, seconds)
        name = tool.schema.name

        async def inside(slot: Any) -> ToolResult:
            arguments = {**without_policy(call.arguments), **self.config.policy().words()}
            arguments.pop("timeout", None)
            done = await self._backend.execute(slot, name, arguments, timeout_s=seconds, execution_id=execution_id)
            return done.to_tool_result()

        return trajectory.in_turn(inside)

    async def _outside(self, trajectory: Trajectory, call: ToolCall, seconds: float) -> ToolResult:
        if self._external is None:
            return _refusal(f"External tool not available (ToolServer not configured): {call.name}")
        arguments = without_policy(call.arguments)
        about = {"task_id": trajectory.id}
        if trajectory.slot is not None:
            about["slot_id"] = trajectory.slot.slot_id
            about["container_addr"] = str(getattr(trajectory.slot, "container_addr", "") or "")
        sent = ToolCall(call.name, arguments, call.raw_text, call.uniq_id)
        return await self._external.execute(sent, trajectory.id, seconds, **about)

    def _trajectory(self, trajectory_id: str) -> Trajectory | None:
        if trajectory_id in self._released:
            return None
        found = self._trajectories.get(trajectory_id)
        if found is None:
            found = self._trajectories[trajectory_id] = Trajectory(
                trajectory_id,
                self._backend,
                idle=self.config.idle_timeout_s,
                forgotten=self._forget,
                gone=self._drop_trajectory,
            )
        return found

    def _drop_trajectory(self, trajectory_id: str) -> None:
        self._trajectories.pop(trajectory_id, None)

    def _forget(self, trajectory_id: str) -> None:
        _LOG.warning(
            "trajectory %s is released after %g s without a call",
            trajectory_id,
            self.config.idle_timeout_s,
        )
        task = asyncio.ensure_future(self.release_trajectory(trajectory_id))
        self._forgetting.add(task)
        task.add_done_callback(self._end_forgetting)

    def _end_forgetting(self, task: asyncio.Task[None]) -> None:
        self._forgetting.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _LOG.warning("a trajectory could not be released: %s", error)

    async def release_trajectory(self, trajectory_id: str, reset_workspace: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002 - hermes-agent's signature
        """End a trajectory's commands, refuse its waiting calls, and close its sandbox with all its files.

        Later calls are refused. No other trajectory ever sees its workspace, with or without `reset_workspace`.
        """
        self._released[trajectory_id] = None
        if len(self._released) > _RELEASED:
            self._released.popitem(last=False)
        trajectory = self._trajectories.get(trajectory_id)
        if trajectory is not None:
            await trajectory.release()

    async def read_artifact(self, request: wire.ArtifactReadRequestPayload) -> wire.ArtifactReadResponsePayload:
        """Read a file of a trajectory's workspace; raises `ArtifactRefusedError`."""
        return await self._artifact(request.trajectory_id, lambda slot: self._backend.read_artifact(slot, request))

    async def list_artifacts(self, request: wire.ArtifactListRequestPayload) -> wire.ArtifactListResponsePayload:
        """List a directory of a trajectory's workspace; raises `ArtifactRefusedError`."""
        return await self._artifact(request.trajectory_id, lambda slot: self._backend.list_artifacts(slot, request))

    async def archive_artifacts(
        self, request: wire.ArtifactArchiveRequestPayload
    ) -> wire.ArtifactArchiveResponsePayload:
        """Pack a file or a directory of a trajectory's workspace; raises `ArtifactRefusedError`."""
        return await self._artifact(request.trajectory_id, lambda slot: self._backend.archive_artifacts(slot, request))

    async def _artifact(self, trajectory_id: str, work: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        trajectory = self._trajectories.get(trajectory_id)
        if trajectory_id in self._released:
            raise ArtifactRefusedError(404, _release_notice(trajectory_id))
        if trajectory is None or trajectory.slot is None:
            raise ArtifactRefusedError(404, NO_SLOT)
        try:
            return await trajectory.use(work)
        except ReleasedError:
            raise ArtifactRefusedError(404, _release_notice(trajectory_id)) from None

    @property
    def slots(self) -> list[Any]:
        """The open slots of trajectories."""
        return [one.slot for one in self._trajectories.values() if one.slot is not None]

    def queue_size(self) -> int:
        """Return the number of calls that wait for a sandbox or an earlier call of their trajectory."""
        return sum(trajectory.waiting for trajectory in self._trajectories.values())

    def status(self) -> dict[str, Any]:
        """Return current numbers and totals of all calls."""
        return {
            "queue_size": self.queue_size(),
            "running": sum(one.running for one in self._trajectories.values()) - self.queue_size(),
            "trajectories": len(self._trajectories),
            "sandboxes": len(self.slots),
            **self.stats.to_json(),
        }

    async def close(self) -> None:
        """Release every trajectory and refuse further calls.

        Raises:
            BackendError: Not everything ended within `close_timeout_s`.
        """
        self._is_closed = True
        limit = self.config.close_timeout_s
        closing = [asyncio.ensure_future(self.release_trajectory(name)) for name in list(self._trajectories)]
        problems: list[BaseException] = []
        try:
            problems += await _await_end(closing, limit, f"{{}} of {len(closing)} trajectories were not released")
        finally:
            problems += await self._close_rest(limit, is_stuck=bool(problems))
        if problems:
            raise problems[0]

    async def _close_rest(self, limit: float, *, is_stuck: bool) -> list[BaseException]:
        """Close the other parts, even if sandboxes cannot be closed; those are not waited for a second time."""
        parts: list[Coroutine[Any, Any, None]] = []
        external, self._external = self._external, None
        if external is not None:
            parts.append(external.aclose())
        if self._own is not None:
            parts.append(self._own.let_go() if is_stuck else self._own.stop())
        closing = [asyncio.ensure_future(part) for part in parts]
        return await _await_end(closing, limit, "{} parts of the executor were not closed")

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def _await_end(tasks: Sequence[asyncio.Task[None]], limit: float, complaint: str) -> list[BaseException]:
    """Wait for tasks for at most `limit` seconds, cancel late ones, and return all errors."""
    if not tasks:
        return []
    done, late = await asyncio.wait(tasks, timeout=limit)
    for task in late:
        task.cancel()
    errors = [error for task in done if not task.cancelled() and (error := task.exception()) is not None]
    if not late:
        return errors
    told = BackendError(
        f"{complaint.format(len(late))} within {limit:g} s",
        hint="hermes-core sandboxes gc removes the rest after this process has ended",
    )
    return [told, *errors]


async def _run_here(tool: Tool, call: ToolCall, trajectory_id: str, seconds: float) -> ToolResult:
    """Run an environment's own tool in this process."""
    sent = ToolCall(call.name, without_policy(call.arguments), call.raw_text, call.uniq_id)
    about = {"trajectory_id": trajectory_id, "task_id": trajectory_id}
    try:
        async with asyncio.timeout(seconds + MARGIN):
            return await execute_tool(discreet(tool, sent, about), sent, about)
    except TimeoutError:
        return ToolResult(success=False, error=f"{call.name} timed out after {seconds:g}s", metadata={"timeout": True})


def _refusal(error: str) -> ToolResult:
    return ToolResult(success=False, error=error)


def _release_notice(trajectory_id: str) -> str:
    return f"Trajectory {trajectory_id} was released; its calls are not run any more"
