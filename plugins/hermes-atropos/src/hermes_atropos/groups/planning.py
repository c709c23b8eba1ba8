"""Plan a group and its rollouts from a dataset's item; plans are immutable."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from hermes_atropos.author_code.reward import reward_ref
from hermes_atropos.config import HermesAgentEnvConfig
from hermes_atropos.groups.item_run import ITEM, digest, seed_of
from hermes_core.contracts.errors import ConfigError, TaskError
from hermes_core.contracts.model import Message
from hermes_core.contracts.rollout import RolloutOutcome
from hermes_core.contracts.task import Task
from hermes_core.contracts.tokens import ModelSession
from hermes_core.discovery import Registry
from hermes_core.rollout import GroupPlan, RolloutSpec
from hermes_core.tooling import ToolSelection, select_tools

_TRIALS: Final = 64


@dataclass(slots=True, kw_only=True)
class Place:
    """One place of a group in progress; `outcome` is set when its rollout has ended.

    Without a `rollout_id`, a rollout is named after its group, place and attempt. `suspect`: an earlier attempt was
    suspect.
    """

    group: GroupPlan
    index: int = 0
    attempt: int = 1
    suspect: bool = False
    rollout_id: str = ""
    outcome: RolloutOutcome | None = None
    sessions: list[ModelSession] = field(default_factory=list)
    """The sessions of an own `collect_trajectory`, with the sampled tokens."""

    def __post_init__(self) -> None:
        self.rollout_id = self.rollout_id or f"ro_{digest(self.group.group_id, self.index, self.attempt)[:16]}"


class Planner:
    """Plans and numbers the groups of one environment; a group's draw depends only on seed and number.

    In `process` the item's own number is used, so that a draw does not depend on earlier items. `sampling` goes into
    every model request.
    """

    def __init__(self, config: HermesAgentEnvConfig, registry: Registry, sampling: Mapping[str, Any]) -> None:
        self._config = config
        self._registry = registry
        self._sampling = dict(sampling)
        self._limits = config.rollout_limits()
        self._numbers = itertools.count()
        self._check_tools()

    def group(
        self,
        item: Any,
        prompt: str | Sequence[Message],
        *,
        split: str = "train",
        sandbox: Mapping[str, Any] | None = None,
    ) -> GroupPlan:
        """Draw a group's tools and plan its task; raise a `HermesError` if that is impossible."""
        config = self._config
        number = self._next_number()
        seed = seed_of(config.seed, split, number)
        tools = self.draw(seed)
        item_run = ITEM.get()
        group_id = f"gr_{uuid.uuid4().hex[:12]}" if item_run is None else item_run.group_id(number)
        task = Task(
            id=task_id(item, group_id),
            messages=_opening(prompt),
            verifier=reward_ref(item),
            sandbox=dict(sandbox or {}),
            split=split,
            metadata={"category": item["category"]} if _has(item, "category") else {},
        )
        system = config.system_message(config.system_prompt)
        return GroupPlan(group_id=group_id, task=task, tools=tools, seed=seed, system_prompt=system)

    def _next_number(self) -> str:
        item_run = ITEM.get()
        return str(next(self._numbers)) if item_run is None else item_run.next_number()

    def _select(self, seed: int) -> ToolSelection:
        config = self._config
        return select_tools(
            self._registry,
            enabled_toolsets=config.enabled_toolsets,
            disabled_toolsets=config.disabled_toolsets,
            distribution=config.distribution,
            seed=seed,
        )

    def draw(self, seed: int | None = None) -> ToolSelection:
        """Draw the tools of a group; without a seed, of the next group."""
        seed = seed_of(self._config.seed, self._next_number()) if seed is None else seed
        try:
            return self._select(seed)
        except ConfigError as error:
            # A draw was possible when the environment was created, so this failure only affects its own group.
            raise TaskError(f"distribution {self._config.distribution!r}: {error.message}", hint=error.hint) from error

    def _check_tools(self) -> None:
        """Raise for an unknown toolset, or a distribution that never draws a tool."""
        for trial in range(_TRIALS):
            try:
                self._select(trial)
            except ConfigError:
                if self._config.distribution is None or trial == _TRIALS - 1:
                    raise
            else:
                return

    def rollout(self, place: Place) -> RolloutSpec:
        """Return the rollout that fills a place."""
        group = place.group
        return RolloutSpec(
            rollout_id=place.rollout_id,
            group=group,
            index=place.index,
            seed=seed_of(group.seed, place.index, place.attempt),
            limits=self._limits,
            sampling=self._sampling,
            provenance={"toolsets": list(group.tools.drawn), "skipped_toolsets": list(group.tools.skipped)},
            attempt=place.attempt,
            suspect=place.suspect,
        )


def task_id(item: Any, otherwise: str) -> str:
    """Return an item's own id if it has one."""
    for key in ("task_id", "id", "instance_id"):
        if _has(item, key):
            return str(item[key])
    return otherwise


def _has(item: Any, key: str) -> bool:
    return isinstance(item, Mapping) and isinstance(item.get(key), str | int)


def _opening(prompt: str | Sequence[Message]) -> tuple[Message, ...]:
    if isinstance(prompt, str):
        return ({"role": "user", "content": prompt},)
    messages: Any = prompt  # returned by the author's code, with unchecked types
    if isinstance(messages, list | tuple) and messages and all(isinstance(message, dict) for message in messages):
        return tuple(messages)
    raise TaskError(
        f"expected format_prompt to return text or messages, got {type(messages).__name__}",
        hint="return the user message, or a list of messages",
    )
