"""`AgentEnv`: environments with an agent that calls tools in text, on the configured backend."""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
import uuid
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from hermes_atropos.agent.agent_run import AGENT_RUN, AgentRun, EnvironmentHooks, HostedTool
from hermes_atropos.agent.config import AgentEnvConfig
from hermes_atropos.agent.hook_tools import ExecTool, HookToolExecutor
from hermes_atropos.agent.react import system_prompt
from hermes_atropos.agent.results import AgentConfig, AgentResult
from hermes_atropos.agent.tool_executor import RemoteToolExecutor, ToolExecutor, naming_missing_client
from hermes_atropos.base_env import HermesAgentBaseEnv
from hermes_atropos.groups.planning import Place
from hermes_core.cancellation import run_uncancelled
from hermes_core.contracts import tool as contract
from hermes_core.contracts.errors import BackendError, ConfigError, UnknownComponentError
from hermes_core.contracts.model import ModelClient, ToolSchemas
from hermes_core.contracts.rollout import RolloutOutcome
from hermes_core.discovery import package_for
from hermes_core.redaction import redact_address
from hermes_core.rollout import GroupPlan, RolloutContext, run_rollout
from hermes_core.specs import ToolSpec
from hermes_core.tooling import ToolSelection, resolve_toolset, validate_toolset
from hermes_tools.agent_tools import InstalledTool, ToolRegistry, build_tool_registry

if TYPE_CHECKING:
    from hermes_tool_services import ToolServerClient, TrajectoryToolClient

_LOG: Final = logging.getLogger(__name__)
AgentEnvConfigT = TypeVar("AgentEnvConfigT", bound=AgentEnvConfig)


class AgentEnv(HermesAgentBaseEnv, Generic[AgentEnvConfigT]):
    """An environment in which an `AtroposAgent` works on each item.

    A subclass writes `setup_agent_env`, `get_next_item`, `build_task` and `score_trajectory`. To prepare or inspect the
    workspace, it also writes `setup_trajectory_workspace` and `verify_and_score_trajectory`. Grouping, outcomes,
    `serve`, `process` and `evaluate` are those of `HermesAgentBaseEnv`.
    """

    name: str | None = "agent"
    env_config_cls = AgentEnvConfig
    config: AgentEnvConfigT

    def __init__(
        self,
        config: AgentEnvConfigT,
        server_configs: Any,
        slurm: bool = False,  # noqa: FBT001, FBT002 - hermes-agent's signature
        testing: bool = False,  # noqa: FBT001, FBT002 - hermes-agent's signature
    ) -> None:
        if config.tool_executor_url is not None:
            self.reward_needs_sandbox = False  # type: ignore[misc]  # of this object alone: the executor has them
        super().__init__(config, server_configs, slurm=slurm, testing=testing)
        self.config = config
        self._tool_server: ToolServerClient | None = None
        self._sandboxes: TrajectoryToolClient | None = None
        self._tool_executor: ToolExecutor | RemoteToolExecutor | None = None
        self.tools: ToolRegistry = self.build_tools()

    def build_tools(self) -> ToolRegistry:
        """Return the tools of the environment's toolsets; override it to add `Tool`s of your own."""
        config = self.config
        return build_tool_registry(
            ["all"] if config.distribution is not None else config.enabled_toolsets,
            config.disabled_toolsets,
            config.tool_server_url,
            registry=self._workshop.runtime.registry,
        )

    @abstractmethod
    def build_task(self, item: Any) -> str:
        """Return the text of the agent's task."""

    @abstractmethod
    async def score_trajectory(self, item: Any, final_response: str) -> float:
        """Score a trajectory by its final answer."""

    @abstractmethod
    async def setup_agent_env(self) -> None:
        """Prepare the environment; called once, after its backend has started."""

    async def setup_trajectory_workspace(
        self,
        item: Any,  # noqa: ARG002 - for subclasses
        *,
        trajectory_id: str,  # noqa: ARG002 - for subclasses
        exec_tool: ExecTool,  # noqa: ARG002 - for subclasses
    ) -> Mapping[str, Any]:
        """Prepare a trajectory's workspace before its agent starts; the result is passed to verification."""
        return {}

    async def verify_and_score_trajectory(
        self,
        item: Any,
        final_response: str,
        *,
        trajectory_id: str,  # noqa: ARG002 - for subclasses
        exec_tool: ExecTool,  # noqa: ARG002 - for subclasses
        agent_result: AgentResult | None = None,  # noqa: ARG002 - for subclasses
        workspace_meta: Mapping[str, Any] | None = None,  # noqa: ARG002 - for subclasses
    ) -> tuple[float, Mapping[str, Any]]:
        """Score a trajectory in its workspace; by default by its final answer.

        Also called for a run that used up its steps: see `agent_result.success`. All processes of the agent were
        stopped before, and its files are unchanged. Numbers in the metadata become parts of the reward;
        `verification_messages` are added to the stored messages.
        """
        return await self.score_trajectory(item, final_response), {}

    def build_agent_config(self, item: Any) -> AgentConfig:  # noqa: ARG002 - for subclasses
        """Return the agent's configuration for an item; by default, the one from the environment's config."""
        return self._agent_config()

    async def setup(self) -> None:
        """Start the tool backend, then call `setup_agent_env`."""
        await super().setup()
        await self._start_tool_backend()
        await self.setup_agent_env()

    async def evaluate(self, *_args: Any, **_kwargs: Any) -> Any:
        """Evaluate nothing."""
        return {}

    def format_prompt(self, item: Any) -> str:
        """Return the task."""
        return self.build_task(item)

    async def compute_reward(self, item: Any, result: Any, ctx: Any) -> Any:
        """Score a rollout with `verify_and_score_trajectory`."""
        agent_run: AgentRun = ctx.state[AGENT_RUN]
        return await agent_run.verify(item, result.final_response, ctx.asynchronous)

    def plan_group(self, item: Any, *, split: str = "train") -> GroupPlan:
        """Plan a group; its tools are in the system prompt."""
        return self._equip(super().plan_group(item, split=split), self.build_agent_config(item))

    async def run_agent(self, task: str, *, trajectory_id: str | None = None) -> tuple[str, dict[str, Any]]:
        """Run the agent on a task in a separate sandbox, without a score.

        Returns its final answer and `success`, `error` and `tool_calls`. It is not in the ledger.
        """
        config = self._agent_config()
        plan = self._equip(self._workshop.planner.group(None, task, split="agent"), config)
        plan = dataclasses.replace(plan, task=dataclasses.replace(plan.task, verifier=None))
        place = Place(group=plan, rollout_id=trajectory_id or str(uuid.uuid4()))
        agent_run = AgentRun(self._hooks(), self.config, config, has_item=False)
        outcome = self._workshop.scrubber.outcome(await self._run_agent(place, self._workshop.model_pool, agent_run))
        result = agent_run.result()
        error = result.error if outcome.failure is None else f"{outcome.failure.type}: {outcome.failure.message}"
        about = {"success": error is None, "error": error, "tool_calls": result.total_tool_calls}
        return result.final_response, about

    async def shutdown_tool_backend(self) -> None:
        """Close every sandbox and the connection to the tool server; called at the end in any case."""
        self._tool_executor = None
        await self.server.own.aclose()
        await self._workshop.runtime.aclose()
        for client in (self._tool_server, self._sandboxes):
            if client is not None:
                await client.aclose()

    async def aclose(self) -> None:
        """Close the tool backend and everything else that is open."""
        try:
            await self.shutdown_tool_backend()
        finally:
            await super().aclose()

    def exec_tool(self, context: RolloutContext) -> ExecTool:
        """Return the function that runs a hook's calls in a rollout's sandbox, local or at an executor."""
        if not isinstance(self._tool_executor, RemoteToolExecutor):
            return HookToolExecutor(context).execute
        return functools.partial(self._tool_executor.execute, context.rollout_id)

    async def _start_tool_backend(self) -> None:
        config = self.config
        if config.tool_executor_url is not None:
            await self._join_executor(config.tool_executor_url)
        else:
            self._require_backend()
            self._tool_executor = ToolExecutor(self.server.own)
        url = config.tool_server_url
        if url is not None and url != "inprocess" and self._tool_server is None:
            with naming_missing_client("tool_server_url"):
                from hermes_tool_services import ToolServerClient
            self._tool_server = ToolServerClient(url, config.tool_server_token)
            for tool in await self._tool_server.tools():
                if self._may_join(tool.schema.name):
                    self.tools.register(tool)

    def _require_backend(self) -> None:
        mode = self.config.tool_pool_mode
        try:
            _ = self._workshop.runtime.backend
        except UnknownComponentError as error:
            package = package_for("backend", mode)
            install = f"pip install {package}, or " if package else ""
            raise UnknownComponentError(
                f"expected an installed terminal backend for tool_pool_mode: {mode}, got none",
                hint=f"{install}set tool_pool_mode: local",
            ) from error

    async def _join_executor(self, url: str) -> None:
        """Replace the tools that need a sandbox by the executor's tools."""
        with naming_missing_client("tool_executor_url"):
            from hermes_tool_services import TrajectoryToolClient
        config = self.config
        self._sandboxes = client = TrajectoryToolClient(
            url, config.tool_executor_token, timeout=config.terminal_timeout
        )
        there = {tool.schema.name: tool for tool in await client.tools()}
        for tool in self.tools.list_tools():
            if isinstance(tool, InstalledTool) and tool.spec.needs_sandbox:
                name = tool.schema.name
                if name not in there:
                    raise ConfigError(
                        f"tool_executor_url: the executor at {redact_address(url)} has no tool {name!r}, "
                        "which is offered to the model",
                        hint=f"disabled_toolsets: [{name}], or install it at the executor",
                    )
                self.tools.register(there[name])
        self._tool_executor = RemoteToolExecutor(client)

    def _find_own_tool(self, name: str) -> tuple[ToolSpec, contract.Tool] | None:
        tool = self.tools.get(name)
        return None if tool is None or isinstance(tool, InstalledTool) else (tool.schema.spec(), HostedTool(tool))

    def _may_join(self, name: str) -> bool:
        registry = self._workshop.runtime.registry
        toolsets = [toolset for toolset in self.config.disabled_toolsets or () if validate_toolset(registry, toolset)]
        return self.tools.get(name) is None and not any(name in resolve_toolset(registry, one) for one in toolsets)

    def _agent_config(self) -> AgentConfig:
        config = self.config
        return AgentConfig(
            max_steps=config.agent_max_steps,
            temperature=config.agent_temperature,
            max_tokens=config.agent_max_tokens,
            system_prompt=config.system_prompt,
            tool_delay_s=config.agent_tool_delay_s,
        )

    def _equip(self, plan: GroupPlan, config: AgentConfig) -> GroupPlan:
        """Add the environment's tools (with a distribution, the drawn ones) and the system prompt to a plan."""
        offered = self.tools.list_tools()
        if self.config.distribution is not None:
            drawn = set(plan.tools.names)
            offered = [tool for tool in offered if not isinstance(tool, InstalledTool) or tool.schema.name in drawn]
        specs: list[ToolSpec] = [t.spec if isinstance(t, InstalledTool) else t.schema.spec() for t in offered]
        definitions = json.dumps([tool.schema.to_dict() for tool in offered], ensure_ascii=False)
        tools = ToolSelection(
            specs=tuple(specs),
            schemas=ToolSchemas(),  # neither sent nor rendered by a chat template, because they are in the prompt
            drawn=plan.tools.drawn,
            skipped=plan.tools.skipped,
        )
        system = self.config.system_message(system_prompt(definitions, config.system_prompt))
        return dataclasses.replace(plan, tools=tools, system_prompt=system)

    async def _run(self, place: Place, model: ModelClient) -> RolloutOutcome:
        verifier = place.group.task.verifier
        item = None if verifier is None else verifier.options.get("item")
        return await self._run_agent(
            place, model, AgentRun(self._hooks(), self.config, self.build_agent_config(item), item)
        )

    def _hooks(self) -> EnvironmentHooks:
        return EnvironmentHooks(
            set_up=self.setup_trajectory_workspace, verify=self.verify_and_score_trajectory, exec_tool=self.exec_tool
        )

    async def _run_agent(self, place: Place, model: ModelClient, agent_run: AgentRun) -> RolloutOutcome:
        spec = agent_run.spec(self._workshop.planner.rollout(place))
        if isinstance(self._tool_executor, RemoteToolExecutor):
            # The failure may be the executor's own; a sandbox of this process cannot replace it.
            spec = dataclasses.replace(spec, suspect=False)
        try:
            return agent_run.with_score_metadata(
                await run_rollout(spec, self._workshop.runtime, model, agent=agent_run)
            )
        finally:
            if isinstance(self._tool_executor, RemoteToolExecutor):
                await run_uncancelled(self._release(place.rollout_id))

    async def _release(self, rollout_id: str) -> None:
        """Close a rollout's sandbox at the executor; after a failure, the executor closes it when idle."""
        assert self._sandboxes is not None
        try:
            await self._sandboxes.release(rollout_id)
        except BackendError as error:
            _LOG.warning("%s was not released: %s", rollout_id, self._workshop.scrubber.text(error.message))
