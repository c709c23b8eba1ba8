"""One rollout of an `AgentEnv`: its workspace, the agent loop, and its verification."""

from __future__ import annotations

import dataclasses
import inspect
import math
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hermes_atropos.agent.agent import ReactLoop, pause
from hermes_atropos.agent.config import AgentEnvConfig
from hermes_atropos.agent.hook_tools import ExecTool
from hermes_atropos.agent.results import AgentConfig, AgentResult
from hermes_atropos.author_code.reward import as_score
from hermes_core.contracts import tool as contract
from hermes_core.contracts.errors import HermesError, TaskError, VerifierError
from hermes_core.contracts.model import ModelClient, RequestedCall, encode
from hermes_core.contracts.rollout import RolloutOutcome, StopReason
from hermes_core.contracts.tokens import ModelSession
from hermes_core.contracts.verifier import Score
from hermes_core.rollout import RolloutContext, RolloutRecord, RolloutSpec, Runtime, ToolDispatcher
from hermes_tools.agent_tools import (
    Tool,
    ToolCall,
    ToolResult,
    clamp_timeout,
    execute_tool,
    parse_result,
    result_for,
    without_policy,
)

AGENT_RUN: Final = "hermes_atropos.agent.agent_run"
"""The key in a rollout's `context.state` that holds its `AgentRun` for verification."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentHooks:
    """An environment's hooks before and after the agent's work, and the function for their tool calls."""

    set_up: Callable[..., Awaitable[Mapping[str, Any] | None]]
    """`setup_trajectory_workspace`."""
    verify: Callable[..., Awaitable[Any]]
    """`verify_and_score_trajectory`, in its present or an older form."""
    exec_tool: Callable[[RolloutContext], ExecTool]


class AgentRun:
    """Runs the model's part of one rollout; called by the engine. Without `item`, no workspace is set up."""

    def __init__(
        self,
        hooks: EnvironmentHooks,
        env_config: AgentEnvConfig,
        config: AgentConfig,
        item: Any = None,
        *,
        has_item: bool = True,
    ) -> None:
        self._hooks = hooks
        self._env_config = env_config
        self._config = config
        self._item = item
        self._has_item = has_item
        self._loop: ReactLoop | None = None
        self.workspace_meta: Mapping[str, Any] = {}
        self.score_metadata: dict[str, Any] = {}

    def spec(self, spec: RolloutSpec) -> RolloutSpec:
        """Return the rollout's spec with the values of the agent's config."""
        config = self._env_config
        own = {"temperature", "max_tokens"} - {*config.sampling, *(config.extra_body or {})}
        sampling = {name: value for name, value in spec.sampling.items() if name not in own}
        sampling.setdefault("temperature", self._config.temperature)
        if self._config.max_tokens is not None:
            sampling.setdefault("max_tokens", self._config.max_tokens)
        limits = spec.limits.with_overrides({"max_agent_turns": self._config.max_steps})
        return dataclasses.replace(spec, sampling=sampling, limits=limits)

    async def __call__(
        self, runtime: Runtime, model: ModelClient | ModelSession, context: RolloutContext, record: RolloutRecord
    ) -> StopReason:
        """Set up the workspace and run until a stop reason."""
        context.state[AGENT_RUN] = self
        if self._has_item:
            await self._set_up(context)
        if self._config.working_dir is not None:
            await _enter(self._hooks.exec_tool(context), self._config.working_dir)
        calls = _ModelCalls(ToolDispatcher(runtime, context, record), self._config.tool_delay_s)
        with_metadata = self._env_config.agent_tool_metadata
        self._loop = ReactLoop(record, self._config, calls.run, with_metadata=with_metadata)
        return await self._loop.run(model)

    def result(self) -> AgentResult:
        """Return the agent's result."""
        return (
            AgentResult(success=False, error="The run was not started") if self._loop is None else self._loop.result()
        )

    async def verify(self, item: Any, final_response: str, context: RolloutContext) -> Score:
        """Score the rollout with the environment's hook, in the agent's final workspace."""
        hook = self._hooks.verify
        given = {
            "trajectory_id": context.rollout_id,
            "exec_tool": self._hooks.exec_tool(context),
            "agent_result": self.result(),
            "workspace_meta": self.workspace_meta,
        }
        answer: Any = await hook(item, final_response, **_arguments_for(hook, given))
        if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[1], Mapping | None):
            found = type(answer).__name__
            raise VerifierError(
                f"expected verify_and_score_trajectory to return a pair of score and metadata, got {found}"
            )
        self.score_metadata = dict(answer[1] or {})
        parts = {name: float(value) for name, value in self.score_metadata.items() if _is_number(value)}
        score = as_score(answer[0])
        return dataclasses.replace(score, parts={**parts, **score.parts})

    def with_score_metadata(self, outcome: RolloutOutcome) -> RolloutOutcome:
        """Add the messages and metadata of verification to the outcome."""
        about = {name: value for name, value in self.score_metadata.items() if name != "verification_messages"}
        added = self.score_metadata.get("verification_messages") or ()
        provenance = {**outcome.provenance, "score_metadata": about} if about else outcome.provenance
        return dataclasses.replace(outcome, messages=[*outcome.messages, *added], provenance=provenance)

    async def _set_up(self, context: RolloutContext) -> None:
        hook = self._hooks.set_up
        try:
            meta = await hook(self._item, trajectory_id=context.rollout_id, exec_tool=self._hooks.exec_tool(context))
        except HermesError:
            raise
        except Exception as error:  # the boundary to an environment's own code: a task failure
            raise TaskError(f"setup_trajectory_workspace raised {type(error).__name__}: {error}") from error
        self.workspace_meta = meta or {}


class _ModelCalls:
    """Runs the model's calls of one rollout: checked, recorded and shortened as usual, with `ToolResult` answers."""

    def __init__(self, dispatcher: ToolDispatcher, delay: float) -> None:
        self._dispatcher = dispatcher
        self._delay = delay
        self._made = 0

    async def run(self, turn: int, calls: Sequence[ToolCall]) -> list[ToolResult]:
        if not self._delay:
            return await self._batch(turn, calls)
        results: list[ToolResult] = []
        for call in calls:
            if self._made:
                await pause(self._delay)
            self._made += 1
            results += await self._batch(turn, [call])
        return results

    async def _batch(self, turn: int, calls: Sequence[ToolCall]) -> list[ToolResult]:
        messages = await self._dispatcher.run(turn, [_request_of(call) for call in calls])
        return [result_for(call, parse_result(m["content"])) for call, m in zip(calls, messages, strict=True)]


class HostedTool:
    """An environment's own tool in the form that the dispatcher calls."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool

    async def call(self, arguments: dict[str, Any], context: RolloutContext) -> contract.ToolResult:
        """Call the tool; failures are in the result."""
        about = {"trajectory_id": context.rollout_id, "task_id": context.task_id}
        result = await execute_tool(self._tool, ToolCall(self._tool.schema.name, arguments), about)
        return contract.ToolResult(content=encode(result.to_dict()).decode(), error=result.error)


def _request_of(call: ToolCall) -> RequestedCall:
    arguments = without_policy(call.arguments)
    timeout = clamp_timeout(arguments.get("timeout"))
    if timeout is not None and call.name == "terminal":
        arguments["timeout"] = int(timeout)
    return RequestedCall(id=call.uniq_id, name=call.name, arguments=encode(arguments).decode())


async def _enter(exec_tool: ExecTool, folder: str) -> None:
    quoted = shlex.quote(folder)
    result = await exec_tool(ToolCall("terminal", {"command": f"mkdir -p -- {quoted} && cd -- {quoted}"}))
    if not result.success:
        raise TaskError(
            f"working_dir {folder!r} cannot be entered: {(result.output or str(result.error)).strip()[-300:]}"
        )


def _arguments_for(hook: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Drop arguments that an older hook has no parameter for."""
    parameters = inspect.signature(hook).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    return {name: value for name, value in given.items() if takes_any or name in parameters}


def _is_number(value: Any) -> bool:
    try:
        return isinstance(value, int | float) and math.isfinite(value)
    except OverflowError:  # an integer too large for a float
        return False
