"""The reward self-test: the solution scores full, nothing else does better than doing nothing, and repeats agree."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from hermes_core.contracts.errors import HermesError
from hermes_core.contracts.model import ModelClient
from hermes_core.contracts.rollout import RewardStatus, RolloutOutcome
from hermes_core.contracts.task import Cheat, Task
from hermes_core.rollout import GroupPlan, RolloutLimits, RolloutSpec, Runtime, run_rollout
from hermes_core.tooling.selection import select_tools
from hermes_models.nop import NopModel
from hermes_models.scripted import ScriptedModel

if TYPE_CHECKING:
    from hermes_core.specs import VerifierSpec

SOLUTION = "solution"
NOTHING = "nothing"

_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One way to play a task, played a number of times: its name, its rewards, and why a reward is missing."""

    name: str
    rewards: tuple[float | None, ...]
    failure: str = ""
    detail: str = ""

    @property
    def agrees(self) -> bool:
        """Whether all repeats ended the same."""
        return len(set(self.rewards)) == 1

    @property
    def reward(self) -> float | None:
        """The highest reward, None if any repeat has none."""
        known = [reward for reward in self.rewards if reward is not None]
        return max(known) if len(known) == len(self.rewards) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCheck:
    """What the self-test found for one task; it has passed when there are no problems."""

    task_id: str
    source: str
    trials: tuple[Trial, ...] = ()
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def passed(self) -> bool:
        """Whether the task's reward can be relied on."""
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        trials = [
            {"name": t.name, "rewards": list(t.rewards), "failure": t.failure, "detail": t.detail} for t in self.trials
        ]
        return {
            "task_id": self.task_id,
            "source": self.source,
            "passed": self.passed,
            "problems": list(self.problems),
            "notes": list(self.notes),
            "trials": trials,
        }


async def check_tasks(
    tasks: Iterable[Task], runtime: Runtime, *, repeats: int = 1, max_concurrent: int = 4
) -> AsyncIterator[TaskCheck]:
    """Check tasks, several at a time, and yield each result in the order of the tasks."""
    slots = asyncio.Semaphore(max_concurrent)

    async def limited(task: Task) -> TaskCheck:
        async with slots:
            return await check_task(task, runtime, repeats=repeats)

    running = [asyncio.create_task(limited(task)) for task in tasks]
    try:
        for check in running:
            yield await check
    finally:
        for check in running:
            check.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def check_task(task: Task, runtime: Runtime, *, repeats: int = 1) -> TaskCheck:
    """Play a task's solution, nothing at all and every cheat, and compare the rewards."""
    if task.verifier is None:
        return TaskCheck(task_id=task.id, source=task.source, problems=("it has no verifier",))
    try:
        spec = cast("VerifierSpec", runtime.registry.spec("verifier", task.verifier.name))
        group = GroupPlan(
            group_id=f"check-{task.id}",
            task=task,
            tools=select_tools(runtime.registry, enabled_toolsets=task.enabled_toolsets),
        )
        trials = [await _try(name, model, group, runtime, repeats) for name, model in _players(task)]
    except HermesError as error:
        return TaskCheck(task_id=task.id, source=task.source, problems=(str(error),))
    return TaskCheck(
        task_id=task.id,
        source=task.source,
        trials=tuple(trials),
        problems=tuple(_problems(task, trials, full=spec.bounds[1])),
        notes=() if task.cheats else ("it lists no cheats",),
    )


def _players(task: Task) -> list[tuple[str, ModelClient]]:
    earlier = sum(message.get("role") == "assistant" for message in task.messages)
    players: list[tuple[str, ModelClient]] = [(NOTHING, NopModel())]
    if task.solution is not None:
        players.append((SOLUTION, ScriptedModel(task.solution, task.answer, earlier_turns=earlier)))
    return players + [(_label(c), ScriptedModel(c.steps, c.answer, earlier_turns=earlier)) for c in task.cheats]


def _label(cheat: Cheat) -> str:
    return f"cheat:{cheat.name}"


async def _try(name: str, model: ModelClient, group: GroupPlan, runtime: Runtime, repeats: int) -> Trial:
    outcomes = []
    for index in range(repeats):
        rollout_id = f"check-{group.task.id}-{name}-{index}"
        limits = RolloutLimits(max_agent_turns=1000).replaced(_without_turns(group.task.limits))
        spec = RolloutSpec(rollout_id=rollout_id, group=group, index=index, limits=limits)
        outcomes.append(await run_rollout(spec, runtime, model))
    return Trial(
        name=name,
        rewards=tuple(outcome.reward for outcome in outcomes),
        failure=next(filter(None, map(_failure, outcomes)), ""),
        detail=outcomes[0].reward_detail,
    )


def _without_turns(limits: Any) -> dict[str, Any]:
    """Leave out the limit on turns: scripts make one call a turn, where a model could make several."""
    return {name: value for name, value in limits.items() if name != "max_agent_turns"}


def _failure(outcome: RolloutOutcome) -> str:
    failure = outcome.reward_failure or outcome.failure
    if failure is not None:
        return f"{failure.type}: {failure.message}"
    return "" if outcome.reward_status is RewardStatus.OK else f"no reward; it stopped with {outcome.stop_reason}"


def _problems(task: Task, trials: Sequence[Trial], *, full: float) -> list[str]:
    problems = [f"{trial.name} has no reward: {trial.failure}" for trial in trials if trial.reward is None]
    problems += [f"{trial.name} does not repeat: {_listed(trial.rewards)}" for trial in trials if not trial.agrees]
    if task.solution is None:
        problems.append("it has no solution, so nothing shows that full reward can be reached")
    floor = next(trial.reward for trial in trials if trial.name == NOTHING)
    for trial in trials:
        if trial.reward is not None and floor is not None:
            problems += _compared(trial, floor, full)
    return problems


def _listed(rewards: Sequence[float | None]) -> str:
    return "rewards " + ", ".join("none" if reward is None else f"{reward:g}" for reward in rewards)


def _compared(trial: Trial, floor: float, full: float) -> list[str]:
    reward = cast("float", trial.reward)
    why = f" ({trial.detail[:300]})" if trial.detail else ""
    if trial.name == SOLUTION and reward < full - _TOLERANCE:
        return [f"the solution scores {reward:g} of {full:g}{why}"]
    if trial.name == NOTHING and reward >= full - _TOLERANCE:
        return [f"doing nothing already scores {reward:g}"]
    if trial.name.startswith("cheat:") and reward > floor + _TOLERANCE:
        return [f"{trial.name} scores {reward:g}, more than doing nothing ({floor:g})"]
    return []
