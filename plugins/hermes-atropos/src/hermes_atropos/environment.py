"""The core of an environment: its items, groups, rollouts and rewards, for every use."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import json
import logging
from abc import abstractmethod
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from hermes_atropos.author_code.bridge import bridge_coroutine
from hermes_atropos.author_code.own_rollouts import OWN_TOOLS, legacy_tools, mark_own
from hermes_atropos.compat import BaseEnv
from hermes_atropos.config import HermesAgentEnvConfig
from hermes_atropos.env_runtime import EnvRuntime
from hermes_atropos.groups.dataset import load_items
from hermes_atropos.groups.evaluation import PASSED, evaluate_items
from hermes_atropos.groups.group_runner import PLACE, GroupRunner, why_unscored
from hermes_atropos.groups.grouping import Group
from hermes_atropos.groups.item_run import ITEM
from hermes_atropos.groups.ledger import End
from hermes_atropos.groups.planning import Place
from hermes_atropos.groups.sequences import Item, conversation_item, exact_items
from hermes_atropos.model_servers.sft import SftTokens
from hermes_atropos.trainer import transcript as display
from hermes_atropos.trainer.group_sink import GroupSink
from hermes_atropos.trainer.reporting import ReportingMixin
from hermes_core.contracts import tool as contract
from hermes_core.contracts.errors import Blame, ConfigError
from hermes_core.contracts.model import Message, ModelClient
from hermes_core.contracts.rollout import AgentResult, Failure, RolloutOutcome
from hermes_core.contracts.tokens import IGNORED
from hermes_core.rollout import GroupPlan, run_rollout
from hermes_core.specs import ToolSpec

logger = logging.getLogger(__name__)


class Environment(ReportingMixin, BaseEnv):  # type: ignore[misc]  # atroposlib ships no types
    """The core of a `HermesAgentBaseEnv`, which adds the trainer, the output file and the command line."""

    name: str | None = "hermes-agent"
    env_config_cls = HermesAgentEnvConfig
    reward_needs_sandbox: ClassVar[bool] = True
    """Whether `compute_reward` uses the sandbox; if not, tools without a sandbox do not start one."""

    def __init__(
        self,
        config: HermesAgentEnvConfig,
        server_configs: Any,
        slurm: bool = False,  # noqa: FBT001, FBT002 - hermes-agent's signature
        testing: bool = False,  # noqa: FBT001, FBT002 - hermes-agent's signature
    ) -> None:
        # BaseEnv's own constructor uses the network; see compat.REPLACED.
        self.config = config
        self._set_base_attributes()
        self._workshop = EnvRuntime(
            config,
            server_configs,
            slurm=slurm,
            testing=testing,
            compute_reward=self.compute_reward,
            reward_needs_sandbox=self.reward_needs_sandbox,
            build_model=self.build_model,
            find_tool=self._find_own_tool,
        )
        self.server = self._workshop.server
        self.max_num_workers = self._worker_limit()
        self.ledger = self._workshop.ledger
        self.outlet = GroupSink(config, self.ledger)
        self._group_runner = GroupRunner(config, self.ledger, self._collected_rollout)
        self._policy = config.rollout_policy()
        self._sft = SftTokens(config, self.load_tokenizer)
        self.dataset_items: list[dict[str, Any]] = []
        self._next_item = 0

    def build_model(self) -> ModelClient | None:
        """Return this environment's own model; None, the default, means the configured servers."""
        return None

    async def setup(self) -> None:
        """Prepare the environment once; by default, load `dataset_name`."""
        if self.config.dataset_name is not None:
            self.dataset_items = await asyncio.to_thread(
                load_items, self.config.dataset_name, self.config.dataset_split
            )

    async def get_next_item(self) -> Any:
        """Return the next item, or None if there are no more; by default, cycle through the dataset."""
        if not self.dataset_items:
            raise ConfigError(
                f"{type(self).__name__} has no items", hint="set dataset_name, or write get_next_item in the class"
            )
        item = self.dataset_items[self._next_item % len(self.dataset_items)]
        self._next_item += 1
        return item

    def format_prompt(self, item: Any) -> str | Sequence[Message]:
        """Return the prompt; by default the item's `prompt_field`."""
        field = self.config.prompt_field
        if not isinstance(item, Mapping) or field not in item:
            found = ", ".join(item) if isinstance(item, Mapping) else type(item).__name__
            raise ConfigError(f"expected an item with the field {field!r}, got: {found}", hint="set prompt_field")
        return str(item[field])

    def sandbox_for(self, item: Any) -> Mapping[str, Any]:  # noqa: ARG002 - for a subclass
        """Return fields of the sandbox's spec for one item, for example its image."""
        return {}

    @abstractmethod
    def compute_reward(self, item: Any, result: AgentResult, ctx: Any) -> Any:
        """Score a rollout: any finite number, as an ordinary function or a coroutine function.

        `ctx` gives access to the rollout's sandbox and every installed tool. In a coroutine function its methods are
        called with or without `await`; an ordinary function runs in a worker thread. Raise an exception if a rollout
        cannot be judged: it then has no reward, never 0.0. Not called if the model gave no answer.
        """
        raise NotImplementedError

    @abstractmethod
    async def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """Evaluate, every `steps_per_eval` steps; see `evaluate_items`."""
        raise NotImplementedError

    async def collect_trajectories(self, item: Any) -> tuple[Group | None, list[Any]]:
        """Run a group; return None if it is unusable, with the reason in the ledger."""
        plan = self.plan_group(item)
        finished = await self._group_runner.run(plan, item, {"group_id": plan.group_id, "task_id": plan.task.id})
        self._note_tool_errors(finished.outcomes)
        if finished.group is None:
            logger.warning("group %s is rejected: %s", plan.group_id, finished.reason)
        else:
            if not self._use_managed_server():
                for about in finished.group["overrides"]:
                    about.setdefault("trainable", False)
            params = {**self._workshop.generation_params, **(finished.group["generation_params"] or {})}
            finished.group["generation_params"] = params
        return finished.group, list(finished.backlog)

    def collected_group(self, item: Any) -> Coroutine[Any, Any, tuple[Any, list[Any]]]:
        """Call `collect_trajectories`; an author's override may use a `ToolContext` without await."""
        made: Coroutine[Any, Any, tuple[Any, list[Any]]] = self.collect_trajectories(item)
        return bridge_coroutine(made) if self._is_own("collect_trajectories") else made

    def _collected_rollout(self, item: Any) -> Coroutine[Any, Any, tuple[Any, list[Any]]]:
        made = self.collect_trajectory(item)
        return bridge_coroutine(made) if self._is_own("collect_trajectory") else made

    @abstractmethod
    def _is_own(self, method: str) -> bool:
        """Return whether the author's class overrides a method."""

    async def collect_trajectory(self, item: Any) -> tuple[Any, list[Any]]:
        """Run one rollout; return one sequence, a list for several branches, or None without a reward."""
        place = PLACE.get()
        if place is not None:
            items = await self._collect_items(place)
        else:  # called from an author's own collect_trajectories
            place = Place(group=self.plan_group(item))
            with self.ledger.line(place.rollout_id, group_id=place.group.group_id, split=place.group.task.split):
                items = await self._collect_items(place)
                if not items:
                    self.ledger.close(place.rollout_id, End.ERRORED, why_unscored(place.outcome))
        return (items[0] if len(items) == 1 else items or None), []

    async def _collect_items(self, place: Place) -> list[Item]:
        outcome = await self._run_rollout(place)
        if self._use_managed_server():
            return exact_items(outcome)
        conversation = conversation_item(outcome)
        if conversation is None:
            return []
        tools = json.loads(place.group.tools.schemas.encoded or b"[]")
        return [await self._sft.fill(conversation, tools)]

    async def handle_send_to_api(
        self,
        scored_data: Any,
        item: Any = None,
        do_send_to_api: bool = True,  # noqa: FBT001, FBT002 - hermes-agent's signature
        abort_on_any_max_length_exceeded: bool = True,  # noqa: FBT001, FBT002 - hermes-agent's signature
    ) -> None:
        """Write and send groups; reject an unfit group with its reason."""
        groups = scored_data if isinstance(scored_data, list) else [scored_data]
        limit = self.max_token_len if abort_on_any_max_length_exceeded else 0
        for group in groups:
            if group is None:
                continue
            is_recorded = self._use_managed_server()
            reason = self.outlet.refusal(
                group, for_trainer=do_send_to_api, max_token_len=limit, is_recorded=is_recorded
            )
            if reason is not None:
                self.outlet.reject(group, reason)
                continue
            self.completion_lengths += [sum(mask != IGNORED for mask in masks) for masks in group["masks"]]
            await self.add_rollouts_for_wandb(group, item)
            if not await self.outlet.deliver(group, to_trainer=do_send_to_api):
                continue
            self.items_sent_this_step += do_send_to_api
            self.groups_written += not do_send_to_api

    def plan_group(self, item: Any, *, split: str = "train") -> GroupPlan:
        """Draw the tools of a group and plan its task; the plan is immutable."""
        sandbox = self.sandbox_for(item)
        return self._workshop.planner.group(item, self.format_prompt(item), split=split, sandbox=sandbox)

    def _find_own_tool(self, name: str) -> tuple[ToolSpec, contract.Tool] | None:  # noqa: ARG002 - for `AgentEnv`
        """Return the environment's own tool of this name, or None."""
        return None

    def _resolve_tools_for_group(self) -> tuple[list[dict[str, Any]], set[str]]:
        """Draw the tools of another group, as schemas and names, for an own `HermesAgentLoop`."""
        return legacy_tools(self._workshop.planner.draw())

    @property
    def _current_group_tools(self) -> tuple[list[dict[str, Any]], set[str]] | None:
        """The tools of the current task's group, for an own `collect_trajectory`."""
        place = PLACE.get()
        return OWN_TOOLS.get() if place is None else legacy_tools(place.group.tools)

    @_current_group_tools.setter
    def _current_group_tools(self, tools: tuple[list[dict[str, Any]], set[str]] | None) -> None:
        OWN_TOOLS.set(tools)

    async def run_item(self, item: Any, *, split: str = "eval") -> RolloutOutcome:
        """Run one rollout outside of any group, as in training, labelled with its split."""
        plan = self.plan_group(item, split=split)
        outcome = await self._run_attempt(Place(group=plan), split)
        if not outcome.suspect:
            return outcome
        return await self._run_attempt(Place(group=plan, attempt=2, suspect=True), split)

    async def _run_attempt(self, place: Place, split: str) -> RolloutOutcome:
        with self.ledger.line(place.rollout_id, group_id=place.group.group_id, split=split):
            outcome = await self._run_rollout(place)
            end = End.ERRORED if outcome.reward is None else End.REJECTED
            why = why_unscored(outcome) if outcome.reward is None else f"{split}: not for training"
            self.ledger.close(place.rollout_id, end, why)
        return outcome

    async def evaluate_items(self, items: Iterable[Any], *, passed: float = PASSED) -> dict[str, float]:
        """Run items for an evaluation; return `eval/pass_rate`, `eval/pass_rate_<category>` and the counts."""
        run_item = functools.partial(self.run_item, split="eval")
        return await evaluate_items(run_item, items, at_once=self.config.max_eval_workers, passed=passed)

    async def _run_rollout(self, place: Place) -> RolloutOutcome:
        model = self._workshop.model_pool.of_split(place.group.task.split)
        outcome = self._workshop.scrubber.outcome(await self._run(place, model))
        outcome = self._exact_or_dropped(self._policy.settle(outcome))
        item_run = ITEM.get()
        if item_run is not None:
            item_run.note_outcome(outcome)
        place.outcome = outcome
        return outcome

    async def _run(self, place: Place, model: ModelClient) -> RolloutOutcome:
        return await run_rollout(self._workshop.planner.rollout(place), self._workshop.runtime, model)

    def _exact_or_dropped(self, outcome: RolloutOutcome) -> RolloutOutcome:
        exactness = outcome.exactness
        if not self.config.require_exact or exactness is None:
            return outcome
        fault = exactness.why_not_exact(allow_constrained=self.config.allow_constrained)
        if not fault:
            return outcome
        failure = Failure(blame=Blame.FRAMEWORK, type="NotExact", message=f"require_exact: {fault}")
        return dataclasses.replace(outcome, disposition="drop", failure=failure)

    def _use_managed_server(self) -> bool:
        """Return whether this is phase 2: token ids and logprobs."""
        return self._workshop.server.is_recording

    @staticmethod
    def _format_trajectory_for_display(messages: Sequence[Message]) -> str:
        """Format a conversation as readable text."""
        return display.format_trajectory(messages)

    def require_trainable(self) -> None:
        """Raise a `ConfigError` if no rollout could be sent to a trainer."""
        has_own = self._is_own("collect_trajectories") or self._is_own("collect_trajectory")
        if not (self._use_managed_server() or has_own):
            raise ConfigError(
                "expected servers with token ids and logprobs for serve, got type openai",
                hint="server_type: vllm or sglang; for SFT data: process",
            )

    async def preflight(self) -> None:
        """Check servers, template and backend once, before the first rollout."""
        await self._workshop.check(needs_sandbox=self.reward_needs_sandbox)

    async def aclose(self) -> None:
        """Close sandboxes, connections and files."""
        try:
            await self.outlet.aclose()
        finally:
            await self._workshop.aclose()

    async def _run_evaluate(self) -> Any:
        """Set up, evaluate, and close."""
        with mark_own(self.server.own):
            try:
                await self.setup()
                await self.preflight()
                self.begin_wandb()
                return await bridge_coroutine(self.evaluate())
            finally:
                await self.aclose()
