"""Run a group: fill each place with a rollout, replace failed ones, and join the results."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from hermes_atropos.config import HermesAgentEnvConfig
from hermes_atropos.groups.grouping import Group, GroupError, group_of
from hermes_atropos.groups.item_run import ITEM
from hermes_atropos.groups.ledger import End, Ledger
from hermes_atropos.groups.planning import Place
from hermes_atropos.groups.sequences import Item, check_item, with_logprobs
from hermes_core.contracts.errors import Blame, HermesError
from hermes_core.contracts.rollout import RolloutOutcome
from hermes_core.contracts.tokens import ModelSession
from hermes_core.rollout import GroupPlan

PLACE: Final[ContextVar[Place | None]] = ContextVar("hermes_core_atropos_place", default=None)
"""The place that the current task fills; `collect_trajectory(item)` has no parameter for it."""

Collect = Callable[[Any], Awaitable[tuple[Any, Sequence[Any]]]]
"""`collect_trajectory(item)`: returns an item, several (branches), or None, and items for later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledPlace:
    """The result of a place; without items, `failure` is the reason."""

    items: Sequence[Item] = ()
    backlog: Sequence[Any] = ()
    outcome: RolloutOutcome | None = None
    failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedGroup:
    """The result of a group; without a group, `reason` says why."""

    group: Group | None = None
    reason: str = ""
    backlog: Sequence[Any] = ()
    outcomes: Sequence[RolloutOutcome] = field(default_factory=tuple)


class GroupRunner:
    """Runs groups of one environment; `collect` runs one rollout in the place of `PLACE`."""

    def __init__(self, config: HermesAgentEnvConfig, ledger: Ledger, collect: Collect) -> None:
        self._config = config
        self._ledger = ledger
        self._collect = collect

    async def run(self, plan: GroupPlan, item: Any, about: Mapping[str, Any]) -> FinishedGroup:
        """Run a group to its end; its scored rollouts stay open in the ledger until the group is sent or rejected.

        Raises cancellation, after every rollout has cleaned up, and errors that would fail every group.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                places = range(self._config.group_size)
                filling = [tasks.create_task(self._fill(plan, index, item)) for index in places]
        except asyncio.CancelledError as error:
            self._ledger.close_open(plan.group_id, End.CANCELLED, str(error) or "cancelled")
            raise
        except BaseExceptionGroup as errors:
            first = errors.exceptions[0]
            self._ledger.close_open(plan.group_id, End.CANCELLED, f"stopped with its group: {_brief(first)}")
            raise first from None
        return self._join(plan, [task.result() for task in filling], about)

    def _join(self, plan: GroupPlan, filled: Sequence[FilledPlace], about: Mapping[str, Any]) -> FinishedGroup:
        scored = [place for place in filled if place.items]
        result: dict[str, Any] = {
            "backlog": [item for place in filled for item in place.backlog],
            "outcomes": [place.outcome for place in filled if place.outcome is not None],
        }
        reason = self._too_few(filled, scored)
        if reason is None:
            items = [item for place in scored for item in place.items]
            try:
                # A rollout can be several sequences; only missing rollouts make a group smaller.
                group = group_of(items, group_size=self._config.group_size, about=about)
                return FinishedGroup(group=group, **result)
            except GroupError as error:
                reason = str(error)
        self._ledger.close_open(plan.group_id, End.REJECTED, reason)
        return FinishedGroup(reason=reason, **result)

    def _too_few(self, filled: Sequence[FilledPlace], scored: Sequence[FilledPlace]) -> str | None:
        failures = [place.failure for place in filled if not place.items]
        wanted = min(self._config.min_group_size, self._config.group_size)
        if self._config.failed_rollouts == "reject":
            wanted = self._config.group_size
        if len(scored) >= wanted:
            return None
        return f"expected at least {wanted} scored rollouts, got {len(scored)} of {len(filled)}: {failures[0]}"

    async def _fill(self, plan: GroupPlan, index: int, item: Any) -> FilledPlace:
        attempts = self._config.max_attempts if self._config.failed_rollouts == "replace" else 1
        backlog: list[Any] = []
        attempt, suspect, is_again = 0, False, True
        while is_again:
            attempt += 1
            filled = await self._attempt(Place(group=plan, index=index, attempt=attempt, suspect=suspect), item)
            backlog += filled.backlog
            # A suspect rollout is always repeated: the model must not escape a score by ending its sandbox.
            is_first_suspect = not suspect and filled.outcome is not None and filled.outcome.suspect
            suspect |= is_first_suspect
            is_again = attempt < attempts and not filled.items and not _is_hopeless(filled.outcome)
            is_again |= is_first_suspect
        return FilledPlace(items=filled.items, backlog=backlog, outcome=filled.outcome, failure=filled.failure)

    async def _attempt(self, place: Place, item: Any) -> FilledPlace:
        rollout_id = place.rollout_id
        self._ledger.begin(rollout_id, group_id=place.group.group_id, split=place.group.task.split)
        token = PLACE.set(place)
        try:
            result, backlog = await self._collect(item)
            items = [_of_rollout(made, rollout_id, place.sessions) for made in as_items(result)]
        except Exception as error:  # the boundary to an environment's own collect_trajectory
            self._ledger.close(rollout_id, End.ERRORED, _brief(error))
            if isinstance(error, HermesError) and error.fatal:
                raise
            item_run = ITEM.get()
            if item_run is not None:
                item_run.note_error(error)
            return FilledPlace(outcome=place.outcome, failure=_brief(error))
        finally:
            PLACE.reset(token)
        failure = "" if items else why_unscored(place.outcome)
        if not items:
            self._ledger.close(rollout_id, End.ERRORED, failure)
        return FilledPlace(items=items, backlog=backlog or (), outcome=place.outcome, failure=failure)


def as_items(result: Any) -> list[Item]:
    """Convert the result of `collect_trajectory` (None, one item, or several) to a list."""
    if result is None:
        return []
    return [dict(result)] if isinstance(result, Mapping) else [dict(item) for item in result if item is not None]


def rollout_ids(group: Mapping[str, Any]) -> list[str]:
    """Return the ids of the rollouts in a group, each once; empty if the group has none."""
    overrides: Iterable[Mapping[str, Any]] = group.get("overrides") or ()
    return list(dict.fromkeys(str(about["rollout_id"]) for about in overrides if about.get("rollout_id")))


def why_unscored(outcome: RolloutOutcome | None) -> str:
    """Return why a rollout has no training data."""
    if outcome is None:
        return "collect_trajectory returned nothing"
    failure = outcome.reward_failure or outcome.failure
    if failure is not None:
        return f"{outcome.stop_reason}: {failure.type}: {failure.message[:300]}"
    if outcome.reward is None:
        return f"{outcome.stop_reason}: no reward"
    if outcome.disposition == "drop":
        return f"{outcome.stop_reason}: dropped by the policy"
    return f"{outcome.stop_reason}: no sampled tokens"


def note_session(session: ModelSession) -> None:
    """Record the session with the sampled tokens for the current task's rollout."""
    place = PLACE.get()
    if place is not None:
        place.sessions.append(session)


def _of_rollout(item: Item, rollout_id: str, sessions: Sequence[ModelSession]) -> Item:
    overrides = item.get("overrides") or {}
    item = with_logprobs(check_item(item), [sample for session in sessions for sample in session.samples()])
    return {**item, "overrides": {**overrides, "rollout_id": overrides.get("rollout_id", rollout_id)}}


def _is_hopeless(outcome: RolloutOutcome | None) -> bool:
    """Return whether another rollout of the task would fail in the same way."""
    failure = None if outcome is None else outcome.reward_failure or outcome.failure
    return failure is not None and failure.blame in {Blame.TASK, Blame.USER}


def _brief(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error)[:300]}"
