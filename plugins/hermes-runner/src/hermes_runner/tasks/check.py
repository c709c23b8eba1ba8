"""Checks a task's rewards: full for the solution, for cheats no more than for doing nothing, the same in repeats."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self, cast

from hermes_core.contracts.errors import HermesError
from hermes_core.contracts.model import ModelClient, ModelProvider, ModelSettings
from hermes_core.contracts.rollout import RewardStatus, RolloutOutcome
from hermes_core.contracts.task import Task
from hermes_core.rollout import GroupPlan, RolloutLimits, RolloutSpec, Runtime, run_rollout
from hermes_core.tooling import select_tools
from hermes_runner.tasks.judging import WITHIN_REACH, is_within_reach, judging_problem

if TYPE_CHECKING:
    from hermes_core.discovery import Registry
    from hermes_core.specs import VerifierSpec

SOLUTION: Final = "solution"
NOTHING: Final = "nothing"

_TOLERANCE: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Repeated rollouts of the solution, of a cheat or of doing nothing: rewards, and why a reward is missing."""

    name: str
    rewards: tuple[float | None, ...]
    failure: str = ""
    detail: str = ""

    @property
    def agrees(self) -> bool:
        """Whether all repeats have the same reward."""
        return len(set(self.rewards)) == 1

    @property
    def reward(self) -> float | None:
        """The highest reward, None if any repeat has none."""
        known = [reward for reward in self.rewards if reward is not None]
        return max(known) if len(known) == len(self.rewards) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCheck:
    """The result of the check of one task, which has passed if there are no problems."""

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
    """Check tasks, several at a time, and yield each result in the order of the tasks.

    Raises what `check_task` raises, before any rollout starts.
    """
    slots = asyncio.Semaphore(max_concurrent)
    trial_models = _TrialModels.of(runtime.registry)

    async def check_in_slot(task: Task) -> TaskCheck:
        async with slots:
            return await _check_one(task, runtime, trial_models, repeats)

    running = [asyncio.create_task(check_in_slot(task)) for task in tasks]
    try:
        for check in running:
            yield await check
    finally:
        for check in running:
            check.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def check_task(task: Task, runtime: Runtime, *, repeats: int = 1) -> TaskCheck:
    """Run a task's solution, a rollout that does nothing and every cheat, and compare the rewards.

    Problems of the task are in the result. Raises `UnknownComponentError` if the model `nop` or `oracle` is missing.
    """
    return await _check_one(task, runtime, _TrialModels.of(runtime.registry), repeats)


async def _check_one(task: Task, runtime: Runtime, trial_models: _TrialModels, repeats: int) -> TaskCheck:
    if task.verifier is None:
        return TaskCheck(task_id=task.id, source=task.source, problems=("it has no verifier",))
    try:
        spec = cast("VerifierSpec", runtime.registry.spec("verifier", task.verifier.name))
        group = GroupPlan(
            group_id=f"check-{task.id}",
            task=task,
            tools=select_tools(runtime.registry, enabled_toolsets=task.enabled_toolsets),
        )
        if (unjudged := judging_problem(task, runtime)) is not None:
            raise unjudged
        trials = [await _try(name, model, group, runtime, repeats) for name, model in trial_models.models(task)]
    except HermesError as error:
        return TaskCheck(task_id=task.id, source=task.source, problems=(str(error),))
    return TaskCheck(
        task_id=task.id,
        source=task.source,
        trials=tuple(trials),
        problems=tuple(_problems(task, trials, full=spec.bounds[1])),
        notes=(
            *(() if task.cheats else ("it lists no cheats",)),
            *((WITHIN_REACH,) if is_within_reach(task, runtime) else ()),
        ),
    )


@dataclass(frozen=True, slots=True)
class _TrialModels:
    """The models of the check, from the registry: `nop` does nothing, `oracle` follows a task's solution."""

    nop: ModelProvider
    oracle: ModelProvider

    @classmethod
    def of(cls, registry: Registry) -> Self:
        nop, oracle = (cast("ModelProvider", registry.create("model", name)) for name in ("nop", "oracle"))
        return cls(nop, oracle)

    def models(self, task: Task) -> list[tuple[str, ModelClient]]:
        """Return the name and model of each trial; for a cheat, `oracle` gets it as the task's solution."""
        models = [(NOTHING, self.nop.client(ModelSettings()))]
        if task.solution is not None:
            models.append((SOLUTION, self._solver(task)))
        for cheat in task.cheats:
            as_solution = dataclasses.replace(task, solution=cheat.steps, answer=cheat.answer)
            models.append((f"cheat:{cheat.name}", self._solver(as_solution)))
        return models

    def _solver(self, task: Task) -> ModelClient:
        return self.oracle.client(ModelSettings(tasks=(task,), options={"mistake_rate": 0.0}))


async def _try(name: str, model: ModelClient, group: GroupPlan, runtime: Runtime, repeats: int) -> Trial:
    outcomes = []
    for index in range(repeats):
        rollout_id = f"check-{group.task.id}-{name}-{index}"
        limits = RolloutLimits(max_agent_turns=1000).with_overrides(_without_turns(group.task.limits))
        spec = RolloutSpec(rollout_id=rollout_id, group=group, index=index, limits=limits)
        outcome = await run_rollout(spec, runtime, model)
        if outcome.suspect:
            outcome = await run_rollout(dataclasses.replace(spec, attempt=2, suspect=True), runtime, model)
        outcomes.append(outcome)
    return Trial(
        name=name,
        rewards=tuple(outcome.reward for outcome in outcomes),
        failure=next(filter(None, map(_failure, outcomes)), ""),
        detail=outcomes[0].reward_detail,
    )


def _without_turns(limits: Any) -> dict[str, Any]:
    """Leave out the limit on turns: scripts make one call per turn, where a model could make several."""
    return {name: value for name, value in limits.items() if name != "max_agent_turns"}


def _failure(outcome: RolloutOutcome) -> str:
    failure = outcome.reward_failure or outcome.failure
    if failure is not None:
        return f"{failure.type}: {failure.message}"
    return "" if outcome.reward_status is RewardStatus.OK else f"no reward; it stopped with {outcome.stop_reason}"


def _problems(task: Task, trials: Sequence[Trial], *, full: float) -> list[str]:
    problems = [f"{trial.name} has no reward: {trial.failure}" for trial in trials if trial.reward is None]
    problems += [f"{trial.name}: repeats differ, {_reward_list(trial.rewards)}" for trial in trials if not trial.agrees]
    if task.solution is None:
        problems.append("it has no solution, so nothing shows that full reward can be reached")
    floor = next(trial.reward for trial in trials if trial.name == NOTHING)
    for trial in trials:
        if trial.reward is not None and floor is not None:
            problems += _reward_problems(trial, floor, full)
    return problems


def _reward_list(rewards: Sequence[float | None]) -> str:
    return "rewards " + ", ".join("none" if reward is None else f"{reward:g}" for reward in rewards)


def _reward_problems(trial: Trial, floor: float, full: float) -> list[str]:
    reward = cast("float", trial.reward)
    why = f" ({trial.detail[:300]})" if trial.detail else ""
    if trial.name == SOLUTION and reward < full - _TOLERANCE:
        return [f"the solution scores {reward:g} of {full:g}{why}"]
    if trial.name == NOTHING and reward >= full - _TOLERANCE:
        return [f"doing nothing already scores {reward:g}"]
    if trial.name.startswith("cheat:") and reward > floor + _TOLERANCE:
        return [f"{trial.name} scores {reward:g}, more than doing nothing ({floor:g})"]
    return []
