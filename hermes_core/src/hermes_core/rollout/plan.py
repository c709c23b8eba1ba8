"""The plan of a group, the spec of a rollout and its limits: decided before it starts and never changed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from hermes_core.contracts.errors import ConfigError
from hermes_core.contracts.task import Task
from hermes_core.tooling.selection import ToolSelection


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutLimits:
    """The limits of a rollout; None means no limit.

    `max_agent_turns` counts model calls, `max_total_tokens` the tokens sampled over the rollout as the server counted
    them, `time_limit` wall seconds of the agent's part (verification has its own), `max_tool_calls` calls of any kind,
    `max_truncated_replies` replies in a row that the token limit of one model call cuts off in the middle of a call.
    """

    max_agent_turns: int = 30
    max_total_tokens: int | None = None
    time_limit: float | None = None
    max_tool_calls: int | None = None
    max_truncated_replies: int | None = 3

    def with_overrides(self, overrides: Mapping[str, Any]) -> Self:
        """Return a copy with a task's limits."""
        known = {f.name for f in dataclasses.fields(self)}
        if unknown := sorted(set(overrides) - known):
            raise ConfigError(f"limits has no key {unknown[0]!r}", hint=f"known limits: {', '.join(sorted(known))}")
        return dataclasses.replace(self, **overrides)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """What the rollouts of a group share: the task, the tools drawn once for the group, the prompt."""

    group_id: str
    task: Task
    tools: ToolSelection
    seed: int = 0
    system_prompt: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutSpec:
    """One rollout.

    `sampling` goes into every model request, `provenance` into the outcome; `attempt` counts from 1 over retries.
    `suspect` says that an earlier attempt was suspect: another loss of the sandbox is blamed on the model.
    """

    rollout_id: str
    group: GroupPlan
    index: int = 0
    seed: int = 0
    limits: RolloutLimits = RolloutLimits()
    sampling: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    attempt: int = 1
    suspect: bool = False

    @property
    def task(self) -> Task:
        """The group's task."""
        return self.group.task
