"""hermes-agent's `HermesAgentLoop` and `ToolContext(task_id)`, for rollouts in an environment's own code."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hermes_atropos.author_code.author_context import AuthorContext
from hermes_atropos.author_code.bridged_context import BridgedContext
from hermes_atropos.author_code.own_rollouts import OWN, OwnRollouts
from hermes_atropos.model_servers.request_fields import with_reasoning
from hermes_atropos.model_servers.servers import ManagedSession, Servers
from hermes_core.contracts.errors import ConfigError, HermesError
from hermes_core.contracts.model import Message, ToolSchemas
from hermes_core.contracts.rollout import AgentResult
from hermes_core.contracts.task import Task
from hermes_core.rollout import AgentLoop, GroupPlan, RolloutContext, RolloutLimits, RolloutRecord, RolloutSpec
from hermes_core.tooling import ToolSelection


class HermesAgentLoop:
    """The agent loop for an environment's own code, such as `evaluate`.

    `server` is the environment's `self.server`, or a session of its `managed_server()`, which records tokens. The
    sandbox belongs to `task_id`; `ToolContext(task_id)` can use it afterwards, and its `cleanup()` closes it.
    """

    def __init__(  # noqa: PLR0917 - hermes-agent's signature
        self,
        server: Servers | ManagedSession,
        tool_schemas: Sequence[Mapping[str, Any]],
        valid_tool_names: Iterable[str],
        max_turns: int = 30,
        task_id: str | None = None,
        temperature: float = 1.0,
        max_tokens: int | None = None,
        extra_body: Mapping[str, Any] | None = None,
    ) -> None:
        self._server = server
        self._own = server.own
        self._task_id = task_id or str(uuid.uuid4())
        self._limits = RolloutLimits(max_agent_turns=max_turns)
        fields = {"temperature": temperature, "max_tokens": max_tokens}
        own = {name: value for name, value in fields.items() if value is not None} | dict(extra_body or {})
        self._sampling = with_reasoning(own, server.reasoning)
        self._tools = self._selection(tool_schemas, frozenset(valid_tool_names))

    async def run(self, messages: list[Message]) -> AgentResult:
        """Run until the model answers; `messages` is extended in place.

        A model error ends the loop with `finished_naturally` false; only errors that would fail every rollout are
        raised.
        """
        record = RolloutRecord(self._spec(messages))
        context = await self._context()
        try:
            record.stop_reason = await AgentLoop(self._own.runtime, self._server.own_model, context, record).run()
        except HermesError as error:
            if error.fatal:
                raise
            record.fail(error)
        messages[:] = record.conversation.messages
        return dataclasses.replace(record.agent_result(messages), managed_state=self._server.state())

    def _selection(self, schemas: Sequence[Mapping[str, Any]], names: frozenset[str]) -> ToolSelection:
        specs = tuple(self._own.runtime.tool_spec(name) for name in sorted(names))
        offered = [schema for schema in schemas if schema["function"]["name"] in names]
        return ToolSelection(specs=specs, schemas=ToolSchemas.of(offered), drawn=())

    def _spec(self, messages: Sequence[Message]) -> RolloutSpec:
        task = Task(id=self._task_id, messages=tuple(messages), split="eval")
        group = GroupPlan(group_id=self._task_id, task=task, tools=self._tools)
        return RolloutSpec(rollout_id=self._task_id, group=group, limits=self._limits, sampling=self._sampling)

    async def _context(self) -> RolloutContext:
        if any(tool.needs_sandbox for tool in self._tools.specs):
            return await self._own.context(self._task_id)
        return RolloutContext(self._own.runtime, rollout_id=self._task_id, sandbox=None)


class _ByTaskId:
    """An asynchronous context that opens its sandbox on the first call."""

    def __init__(self, own: OwnRollouts, task_id: str) -> None:
        self._own = own
        self.rollout_id = self.task_id = self.trajectory_id = task_id

    def __getattr__(self, name: str) -> Any:
        method = getattr(RolloutContext, name)
        if not inspect.iscoroutinefunction(method):
            raise AttributeError(name)

        @functools.wraps(method)
        async def call(*args: Any, **kwargs: Any) -> Any:
            context = AuthorContext(await self._own.context(self.task_id), self._own.missing_tools)
            return await getattr(context, name)(*args, **kwargs)

        return call

    async def cleanup(self) -> None:
        """Close the sandbox."""
        await self._own.close(self.task_id)


class ToolContext(BridgedContext):
    """hermes-agent's `ToolContext(task_id)`: gives access to that task's sandbox and every installed tool.

    `compute_reward` gets its own; this one is for an environment's other code, such as `evaluate`. Its methods can be
    called or awaited, as in `compute_reward`.
    """

    def __init__(self, task_id: str) -> None:
        own = OWN.get()
        if own is None:
            raise ConfigError(
                "ToolContext(task_id) was created outside of an environment that serves, processes or evaluates",
                hint="in compute_reward use its argument ctx",
            )
        super().__init__(_ByTaskId(own, task_id))  # type: ignore[arg-type]  # has its methods
