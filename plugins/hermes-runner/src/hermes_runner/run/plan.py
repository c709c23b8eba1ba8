"""Plans a run's rollouts from its tasks and config. The same input gives the same plan, in any order of execution."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hermes_core.contracts.errors import ConfigError, HermesError, UnknownComponentError
from hermes_core.contracts.task import Task, TaskProblem
from hermes_core.discovery import Registry, known_names, package_for
from hermes_core.nearest import did_you_mean
from hermes_core.rollout import GroupPlan, RolloutSpec, merge_sandbox_spec
from hermes_core.tooling import ToolSelection, select_tools
from hermes_runner.config import RunConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """The groups that can run, and the problems of the tasks that cannot."""

    groups: tuple[GroupPlan, ...]
    problems: tuple[TaskProblem, ...]

    @property
    def skipped(self) -> tuple[str, ...]:
        """Which tools and toolsets are not offered to the model, and why, each once."""
        return tuple(dict.fromkeys(line for group in self.groups for line in group.tools.skipped))


def choose(tasks: Sequence[Task], config: RunConfig) -> tuple[Task, ...]:
    """Return the tasks that the config's filters select; an unknown id is an error."""
    if unknown := sorted(set(config.task_filter) - {task.id for task in tasks}):
        hint = f"see: hermes-core tasks list {config.tasks}"
        raise ConfigError(f"task_filter names {unknown[0]!r}, which is not in {config.tasks}", hint=hint)
    wanted = [
        task
        for task in tasks
        if (not config.task_filter or task.id in config.task_filter) and config.split in {None, task.split}
    ]
    if not wanted:
        splits = ", ".join(sorted({task.split for task in tasks}))
        raise ConfigError(f"the filters select no task of {config.tasks}", hint=f"its splits are {splits}; see --split")
    return tuple(wanted[: config.max_tasks])


def plan_groups(tasks: Sequence[Task], config: RunConfig, registry: Registry) -> RunPlan:
    """Draw each group's tools and check that its components exist.

    An error in the config is raised. A task that cannot run becomes a problem and does not stop the others, and so does
    a group for which a distribution drew nothing that is installed.
    """
    groups: list[GroupPlan] = []
    problems: list[TaskProblem] = []
    if config.distribution is not None:
        registry.spec("toolset_distribution", config.distribution)  # an unknown one is an error now, not of each task
    for task in tasks:
        seed = seed_of(config.seed, task.id)
        is_task_matter = task.enabled_toolsets is not None or config.distribution is not None
        shared = None if is_task_matter else _run_tools(config, registry, seed)
        try:
            tools = shared or _task_tools(task, config, registry, seed)
            _check(task, config, registry)
        except HermesError as error:
            problems.append(TaskProblem(source=task.source, task_id=task.id, message=str(error)))
            continue
        groups.append(
            GroupPlan(group_id=f"gr_{seed:08x}", task=task, tools=tools, seed=seed, system_prompt=config.system_prompt)
        )
    return RunPlan(groups=tuple(groups), problems=tuple(problems))


def _task_tools(task: Task, config: RunConfig, registry: Registry, seed: int) -> ToolSelection:
    if task.enabled_toolsets is None:
        return _run_tools(config, registry, seed)
    return select_tools(registry, enabled_toolsets=task.enabled_toolsets, seed=seed)


def _run_tools(config: RunConfig, registry: Registry, seed: int) -> ToolSelection:
    return select_tools(
        registry,
        enabled_toolsets=config.enabled_toolsets,
        disabled_toolsets=config.disabled_toolsets,
        distribution=config.distribution,
        seed=seed,
    )


def names_without_effect(config: RunConfig, registry: Registry) -> tuple[str, ...]:
    """Return one line about each name in `backends` and `tool_result_overrides` that no known package declares.

    It is no error, because the config may be used on another machine, which has a package that is not known here.
    """
    return tuple(
        f"{key}: no plugin here declares {kind} {name!r}, so it has no effect{_suggestion(kind, name, registry)}"
        for key, kind in (("backends", "backend"), ("tool_result_overrides", "tool"))
        for name in getattr(config, key)
        if not (_is_declared(kind, name, registry) or _is_of_known_package(kind, name))
    )


def _is_declared(kind: str, name: str, registry: Registry) -> bool:
    if kind == "tool":
        return name in registry.names(kind)  # the sizes of results are looked up by the bare name
    try:
        registry.spec(kind, name)
    except UnknownComponentError:
        return False
    except HermesError:
        return True  # by several plugins, of which a run that uses it must choose one
    return True


def _is_of_known_package(kind: str, name: str) -> bool:
    plugin, _, bare = name.rpartition(":")
    package = package_for(kind, bare)
    return package is not None and (not plugin or (kind == "backend" and plugin == package))


def _suggestion(kind: str, name: str, registry: Registry) -> str:
    hint = did_you_mean(name.rpartition(":")[2], [*registry.names(kind), *known_names(kind)])
    return f"; {hint}" if hint else ""


def check_options(config: RunConfig, registry: Registry) -> None:
    """Build each component that `options` names, so that a wrong option is an error before the run begins."""
    for kind, components in config.options.items():
        for name, options in components.items():
            try:
                registry.create(kind, name, options)
            except HermesError as error:
                raise ConfigError(f"options.{kind}.{name}: {error.message}", hint=error.hint) from error
            if ":" in name:
                bare = name.rpartition(":")[2]
                raise ConfigError(
                    f"options.{kind}: expected the name {bare!r}, got {name!r}",
                    hint=f"to choose the plugin, write plugins.prefer: {{{kind}:{bare}: {name.rpartition(':')[0]}}}",
                )


def _check(task: Task, config: RunConfig, registry: Registry) -> None:
    config.limits().with_overrides(task.limits)
    merge_sandbox_spec(config.sandbox_spec(), task.sandbox)
    if task.verifier is not None:
        registry.create("verifier", task.verifier.name, task.verifier.options)


def plan_rollouts(
    groups: Sequence[GroupPlan], config: RunConfig, run_id: str, facts: Mapping[str, Any]
) -> Iterator[RolloutSpec]:
    """Yield every rollout of the run, group by group."""
    limits, sampling = config.limits(), config.sampling()
    for group in groups:
        provenance = {**facts, "toolsets": list(group.tools.drawn), "skipped_toolsets": list(group.tools.skipped)}
        for index in range(config.group_size):
            yield RolloutSpec(
                rollout_id=f"ro_{_digest(run_id, group.task.id, index)[:16]}",
                group=group,
                index=index,
                seed=seed_of(config.seed, group.task.id, index),
                limits=limits.with_overrides(group.task.limits),
                sampling=sampling,
                provenance=provenance,
            )


def seed_of(*parts: object) -> int:
    """Return a 31-bit seed that depends on all parts and on nothing else."""
    return int(_digest(*parts)[:8], 16) >> 1


def _digest(*parts: object) -> str:
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()
